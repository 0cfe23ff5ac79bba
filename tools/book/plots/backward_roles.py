"""Draws what the warps of step 06's tuned_64 and tuned_128 do in two rounds of their loop, and what shared memory holds meanwhile.

The order is that of the kernels' instructions, as traced in the simulator (results/sim/06_backward_roles.json). It is not time.
"""

import json
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

TILES = ["#0072b2", "#009e73", "#cc79a7", "#d55e00"]  # by the tile of queries
LIGHT = ["#cce3f0", "#c9ebe0", "#f5e4ed", "#f7dfcc"]
PLACES = {"d_o0": "dO, stage 0", "d_o1": "dO, stage 1", "q0": "Q, stage 0", "q1": "Q, stage 1", "q2": "Q, stage 2", "p": "P", "ds0": "dS, buffer 0", "ds1": "dS, buffer 1"}
REMARKS = {
    "tuned_64": "every warp: 32 keys × two halves of 32 queries; then dQ of the tile before",
    "tuned_128": "a warp of each role: 64 keys × 32 queries; dK and dQ of the tile before",
}
FIRST, LAST = 1, 2  # the rounds that are drawn: of these tiles
TOP = 0.86  # of a row's height


def rounds_of(steps):
    """Lists of [what, tile, count, position], each from a barrier of the whole block to the next one."""
    rounds = []
    for (what, tile, count), end in zip(steps, accumulate(step[2] for step in steps), strict=True):
        if what in ("B0", "B1"):
            rounds.append([])
        rounds[-1].append([what, tile, count, end - count])
    return rounds


def schedule(warps):
    """{name: [(begin, [what, tile, count, position]), …]}: every instruction takes 1, and a warp waits at a barrier until the others have come."""
    of_warps = {name: rounds_of(traced["steps"]) for name, traced in warps.items()}
    begun, starts = {name: [] for name in warps}, [0]
    for number in range(len(next(iter(of_warps.values())))):
        arrived = 0  # behind the P-warp's arrival at barrier 2
        ends = []
        for name, rounds in of_warps.items():  # the P-warp is the first
            now = starts[-1]
            for step in rounds[number]:
                if step[0] == "B2":
                    now = max(now, arrived)
                begun[name].append((now, step))
                now += step[2]
                if step[0] == "A2":
                    arrived = now
            ends.append(now)
        starts.append(max(ends))
    return begun, starts


def box(axes, begin, end, y, colour, label="", height=TOP, **style):
    axes.broken_barh([(begin, end - begin)], (y, height), facecolor=colour, **{"linewidth": 0, **style})
    axes.text((begin + end) / 2, y + height / 2 - 0.03, label, ha="center", va="center", fontsize=6.5, color="white", weight="bold", clip_on=True)


def draw_warp(axes, y, begun):
    """What it multiplies, in one row; what has too few instructions for a label inside has it above."""
    merged = []
    for begin, (what, tile, count, _) in begun:
        if what == "C":  # copies stand among the mma
            continue
        if merged and merged[-1][0] == [what, tile]:
            merged[-1][2] = begin + count
        else:
            merged.append([[what, tile], begin, begin + count])
    for (what, tile), begin, end in merged:
        if tile is None:
            continue
        narrow = end - begin < 30
        box(axes, begin, end, y, TILES[tile], "" if narrow else f"{what} {tile}", edgecolor="white", linewidth=0.6)
        if narrow:
            name = "red" if what == "R" else what
            axes.text(end, y + TOP + 0.05, name, ha="right", va="bottom", fontsize=5.8, clip_on=True)


def draw_barriers(axes, y, begun):
    for begin, (what, *_) in begun:
        if what == "B1":
            axes.text(begin + 3, y + TOP + 0.05, "1", va="bottom", fontsize=6.5, weight="bold", clip_on=True)
        if what in ("B0", "B1"):
            axes.plot([begin + 0.5] * 2, [-0.15, y + 1.25], color="black", linewidth=1.1, zorder=4)
        elif what[0] in "AB":
            axes.plot([begin + 0.5] * 2, [y - 0.1, y + 1.0], color="black", linewidth=1.1, linestyle=":" if what[0] == "A" else "-", zorder=4)
            axes.text(begin + 0.5, y - 0.13, what[1], ha="center", va="top", fontsize=6.5, weight="bold", clip_on=True)


def spells(warps, begun, place):
    """{tile: (first write, last read, [(begin and end of what each warp reads), …])}, in the schedule's time."""

    def time(name, position):
        return next(begin + position - at for begin, (_, _, count, at) in reversed(begun[name]) if at <= position)

    found = {}
    for name, traced in warps.items():
        for tile, written, _, read, end in traced["places"].get(place, []):
            first, last, reads = found.get(tile, (None, 0, []))
            if written is not None:
                first = min(time(name, written), first if first is not None else time(name, written))
            if read is not None:
                reads = [*reads, (time(name, read), time(name, end - 1) + 1)]
            found[tile] = (first, max([last] + [stop for _, stop in reads]), reads)
    return found


def draw_variant(axes, warps):
    begun, starts = schedule(warps)
    places = [place for place in PLACES if any(place in traced["places"] for traced in warps.values())]
    rows = [*begun, *places]
    height = {place: i for i, place in enumerate(reversed(places))}
    height |= {name: len(places) + 0.3 + 1.45 * i for i, name in enumerate(reversed(begun))}
    for name, steps in begun.items():
        draw_warp(axes, height[name], steps)
        draw_barriers(axes, height[name], steps)
        for begin, end in pairwise(starts):  # from its last instruction to the next barrier
            done = max(now + count for now, (_, _, count, _) in steps if begin <= now < end)
            if end - done > 30:
                axes.text((done + end) / 2, height[name] + TOP / 2, "waits", ha="center", va="center", fontsize=6.5, style="italic", color="dimgrey", clip_on=True)
    for place in places:
        for tile, (first, last, reads) in spells(warps, begun, place).items():
            if last <= starts[FIRST] or first > starts[LAST + 1]:
                continue
            axes.broken_barh([(first, last - first)], (height[place], TOP), facecolor=LIGHT[tile], linewidth=0)
            for begin, end in reads:
                axes.broken_barh([(begin, end - begin)], (height[place] + 0.15, TOP - 0.3), facecolor=TILES[tile], linewidth=0)
            left = max(first, starts[FIRST])
            behind = {"facecolor": LIGHT[tile], "linewidth": 0, "pad": 0.6}
            axes.text(left + 6, height[place] + TOP / 2 - 0.03, f"tile {tile}", va="center", fontsize=6, clip_on=True, bbox=behind, zorder=5)
    axes.set(xlim=(starts[FIRST], starts[LAST + 1] + 2), ylim=(-0.2, max(height.values()) + 1.3))
    names = {name: name if len(begun) == 1 else f"{name}s" for name in begun} | PLACES
    axes.set_yticks([height[row] + TOP / 2 for row in rows], [names[row] for row in rows], fontsize=7.5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw(variants):
    rows = [len(warps) * 1.45 + len({place for traced in warps.values() for place in traced["places"]}) + 1 for warps in variants.values()]
    figure, all_axes = plt.subplots(len(variants), 1, figsize=(8.6, 6.4), height_ratios=rows, layout="constrained")
    for axes, (name, warps) in zip(all_axes, variants.items(), strict=True):
        draw_variant(axes, warps)
        axes.set_title(name, loc="left", fontsize=9.5, weight="bold")
        axes.set_title(REMARKS[name], loc="right", fontsize=7.5)
    all_axes[-1].set_xlabel("instructions, in order, as if each took the same time; numbers and colours: the tile of queries", fontsize=7.5)
    entries = [
        (Patch(color="dimgrey"), "mma and their loads"),
        (Patch(color="lightgrey"), "held in shared memory"),
        (Patch(facecolor="dimgrey", edgecolor="lightgrey", linewidth=3), "… and being read"),
        (plt.Line2D([], [], color="black", linewidth=1.1), "barrier"),
        (plt.Line2D([], [], color="black", linewidth=1.1, linestyle=":"), "arrives, does not wait"),
    ]
    figure.legend(*zip(*entries), loc="outside lower center", ncols=len(entries), fontsize=7.5, frameon=False)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "06_backward_roles.json").read_text())["variants"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

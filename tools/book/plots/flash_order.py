"""Draws in which order one warp copies, multiplies and does its softmax over four tiles of keys, in three kernels of step 05.

The order is that of the kernels' instructions, as traced in the simulator (results/sim/05_flash_v2_order.json). It is not time. A bar is as wide as the
instructions that it stands for: copies, mma, waits and barriers as traced; of the softmax the traced shuffles and one exp2 for each score of a lane,
which follow from the mma that made the scores.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, SMALL, WIDTH, save

TILES = ["#0072b2", "#009e73", "#cc79a7", "#d55e00"]  # by the tile of keys
LINES = {"Q": ("Q copied", 5), "K": ("K copied", 4), "V": ("V copied", 3), "S": ("Q Kᵀ", 2), "X": ("softmax", 1), "P": ("P · V", 0)}
REMARKS = {
    "ldmatrix": "copies, then products",
    "registers": "the next copies, then products",
    "overlap": "the next scores before this softmax",
}
HEAD_DIM = 64  # of the traced problem
MMA_K, SCORES = 16, 4  # of an mma.m16n8k16: its part of d, and the elements of C in a lane
TOP = 0.84  # of a line's height


def exponentials(mma):
    """Of a lane, for the scores of a tile that took `mma` instructions of Q Kᵀ."""
    return mma // (HEAD_DIM // MMA_K) * SCORES


def spells(steps):
    """[(kind, tile, begin, end)]: the instructions of each run, counted from 0."""
    mma = {tile: count for kind, tile, count in steps if kind == "S"}
    found, at = [], 0
    for kind, tile, count in steps:
        width = count + (exponentials(mma[tile]) if kind == "X" else 0)
        found.append((kind, tile, at, at + width))
        at += width
    return found


def write(axes, x, y, text, **style):
    """In the line that begins at height y."""
    axes.text(x, y + TOP / 2 - 0.03, text, **{"ha": "center", "va": "center", "fontsize": SMALL, "weight": "bold", **style})


def draw_variant(axes, steps):
    copied = {}  # {(K or V, tile): its first and its last instruction}
    for kind, tile, begin, end in spells(steps):
        if kind in LINES:
            y = LINES[kind][1]
            axes.broken_barh([(begin, end - begin)], (y, TOP), facecolor="dimgrey" if tile is None else TILES[tile], linewidth=0)
            if kind in "SXP":
                write(axes, (begin + end) / 2, y, tile, color="white")
            elif kind in "KV":
                copied[kind, tile] = (copied.get((kind, tile), (begin, end))[0], end)
        elif kind == "B":
            axes.plot([(begin + end) / 2] * 2, [-0.1, 6], color="black", linewidth=1)
        elif kind == "W":
            axes.plot((begin + end) / 2, 6.3, marker="v", color="black", markersize=5, clip_on=False)
    for (kind, tile), (begin, end) in copied.items():  # too narrow for a number inside; the first tile's goes to the left
        first = tile == max(tile for _, tile in copied)
        write(axes, begin - 1.5 if first else end + 3, LINES[kind][1], tile, ha="right" if first else "left")
    axes.set(ylim=(-0.1, 6.5))
    axes.set_yticks([y + TOP / 2 for _, y in LINES.values()], [name for name, _ in LINES.values()], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def draw(variants):
    figure, all_axes = plt.subplots(len(variants), 1, figsize=(WIDTH, 6.6), sharex=True, layout="constrained")
    for axes, (name, steps) in zip(all_axes, variants.items()):
        draw_variant(axes, steps)
        axes.set_title(f"{name}:", loc="left", fontsize=SMALL, weight="bold")
        axes.set_title(REMARKS[name], loc="right", fontsize=SMALL)
    all_axes[0].set_xlim(-9, max(spells(steps)[-1][3] for steps in variants.values()) + 2)
    for axes in all_axes[:-1]:
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)
    all_axes[-1].set_xlabel("instructions of warp 0, in order; a number is a tile of keys", fontsize=SMALL)
    all_axes[-1].tick_params(axis="x", labelsize=SMALL)
    marker = {"color": "black", "marker": "v", "linestyle": "", "markersize": 5}
    entries = [(Line2D([], [], color="black", linewidth=1), "barrier"), (Line2D([], [], **marker), "wait")]
    figure.legend(*zip(*entries), loc="outside lower center", ncols=2, fontsize=SMALL, frameon=False, handlelength=1)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "05_flash_v2_order.json").read_text())["variants"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

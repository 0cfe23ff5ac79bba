"""Draws in which order one warp copies, waits and multiplies over the first k-tiles, in three kernels of step 02.

The order is that of the kernels' instructions, as traced in the simulator (results/sim/02_tiled_gemm_pipeline.json). It is not time.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

COPY, UNDER_WAY = "#d55e00", "#fbdfcc"
READ, READABLE = "#0072b2", "#cfe5f4"
MULTIPLY, MULTIPLIED = "#555555", "#e3e3e3"
REMARKS = {
    "swizzle": "loads and stores, then mma: one after the other",
    "pipeline": "cp.async two k-tiles ahead, before the mma",
    "tuned": "cp.async three k-tiles ahead, among the mma",
}


@dataclass
class Filling:
    """A k-tile in a stage of shared memory; positions count instructions."""

    stage: int
    tile: int
    first: int  # instruction that copies it
    arrived: int | None = None  # the wait, or the last store, after which this thread's part is there
    ready: int | None = None  # the barrier after which all of it is
    last: int | None = None  # behind the last instruction that reads it


def runs(order):
    """(kind, stage or operand, k-tile, position, count) of each run of equal instructions."""
    at = 0
    for count, kind, number, tile in re.findall(r"(\d*)([A-Z])(\d*):?(\d*)", order):
        count = int(count or 1)
        yield kind, int(number or 0), int(tile) if tile else None, at, count
        at += count


def fillings(order):
    """What happens to each stage, by the rules of groups and barriers."""
    all_fillings, groups, group, loaded = [], [], [], (None, None)
    for kind, number, tile, at, count in runs(order):
        latest = next((filling for filling in reversed(all_fillings) if filling.stage == number), None)
        if kind == "G" and loaded[0] != tile:
            loaded = (tile, at)
        elif kind in "CS":
            tile, first = (tile, at) if kind == "C" else loaded
            if latest is None or latest.tile != tile:
                latest = Filling(number, tile, first)
                all_fillings.append(latest)
                group.append(latest)
            if kind == "S":
                latest.arrived = at + count
        elif kind == "K":
            groups.append(group)
            group = []
        elif kind == "W":
            for done in groups[: len(groups) - number]:
                for filling in done:
                    filling.arrived = filling.arrived or at
        elif kind == "B":
            for filling in all_fillings:
                if filling.arrived and not filling.ready:
                    filling.ready = at + 1
        elif kind == "L":
            latest.last = at + count
    return all_fillings


def draw_spell(axes, y, begin, end, colour, tile):
    axes.broken_barh([(begin, end - begin)], (y, 0.86), facecolor=colour, linewidth=0)
    if end - begin > 28:
        behind = {"facecolor": colour, "linewidth": 0, "pad": 0.4}
        axes.text(begin + 2, y + 0.63, f"tile {tile}", va="center", fontsize=6.8, bbox=behind, zorder=5)


def draw_variant(axes, traced, length):
    """One panel: a line for each stage, and one for mma.sync below them."""
    order, per_tile = list(runs(traced["order"])), traced["mma_per_tile"]
    stages = 1 + max(filling.stage for filling in fillings(traced["order"]))

    def draw_instructions(kinds, y, colour, stage=None):
        found = [(at, count) for kind, number, _, at, count in order if kind in kinds and stage in (None, number)]
        axes.broken_barh(found, (y, 0.4), facecolor=colour, linewidth=0)

    for filling in fillings(traced["order"]):
        y = stages - filling.stage
        draw_spell(axes, y, filling.first, filling.arrived or length, UNDER_WAY, filling.tile)
        if filling.last:
            draw_spell(axes, y, filling.ready, filling.last, READABLE, filling.tile)
    for stage in range(stages):  # loads go to registers first: drawn where their stores will be
        draw_instructions("CGS", stages - stage, COPY, stage)
        draw_instructions("L", stages - stage, READ, stage)

    multiplied = [at + i for kind, _, _, at, count in order if kind == "M" for i in range(count)]
    for first in range(0, len(multiplied), per_tile):
        part = multiplied[first : first + per_tile]
        draw_spell(axes, 0, part[0], part[-1] + 1, MULTIPLIED, first // per_tile)
    draw_instructions("M", 0, MULTIPLY)

    marks = {
        "K": {"marker": "^", "markerfacecolor": "white"},
        "W": {"marker": "v", "markerfacecolor": "black"},
    }
    for kind, _, _, at, _ in order:
        if kind == "B":
            axes.plot([at + 0.5] * 2, [-0.1, stages + 1], color="black", linewidth=1.1, zorder=4)
        elif kind in marks:
            y = stages + (1.18 if kind == "K" else 1.5)
            axes.plot(at + 0.5, y, color="black", markersize=4, markeredgewidth=0.8, clip_on=False, **marks[kind])
    axes.set(xlim=(0, length), ylim=(-0.1, stages + (1.6 if "K" in traced["order"] else 1)))
    axes.set_yticks([y + 0.43 for y in range(stages, -1, -1)], [f"stage {s}" for s in range(stages)] + ["mma"], fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw(variants, length):
    heights = [  # in lines: the stages, mma, commits and waits, the title
        len({filling.stage for filling in fillings(traced["order"])}) + (3.2 if "K" in traced["order"] else 2.6)
        for traced in variants.values()
    ]
    figure, all_axes = plt.subplots(
        len(variants), 1, figsize=(8.2, 6.6), height_ratios=heights, sharex=True, layout="constrained"
    )
    for axes, (name, traced) in zip(all_axes, variants.items()):
        draw_variant(axes, traced, length)
        axes.set_title(name, loc="left", fontsize=9.5, weight="bold")
        axes.set_title(REMARKS[name], loc="right", fontsize=8)
    all_axes[-1].set_xlabel("instructions of warp 0, in order", fontsize=8)
    all_axes[-1].tick_params(axis="x", length=3, labelsize=7)
    marker = {"color": "black", "linestyle": "", "markersize": 5}
    entries = [
        (Patch(color=COPY), "copies"),
        (Patch(color=UNDER_WAY), "k-tile under way"),
        (Patch(color=READ), "ldmatrix"),
        (Patch(color=READABLE), "k-tile being read"),
        (Patch(color=MULTIPLY), "mma"),
        (Line2D([], [], marker="^", markerfacecolor="white", **marker), "commit"),
        (Line2D([], [], marker="v", **marker), "wait"),
        (Line2D([], [], color="black", linewidth=1.1), "barrier"),
    ]
    style = {"fontsize": 7.5, "frameon": False, "handlelength": 1.2, "columnspacing": 1.4}
    figure.legend(*zip(*entries), loc="outside lower center", ncols=len(entries), **style)
    return figure


def from_committed_numbers():
    traced = json.loads((ROOT / "results" / "sim" / "02_tiled_gemm_pipeline.json").read_text())
    return draw(traced["variants"], traced["length"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

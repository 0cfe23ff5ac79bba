"""Draws in which order one warp copies, multiplies and does its softmax over four tiles of keys, in three kernels of step 05.

The order is that of the kernels' instructions, as traced in the simulator (results/sim/05_flash_v2_order.json). It is not time.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

TILES = ["#0072b2", "#009e73", "#cc79a7", "#d55e00"]  # by the tile of keys
LINES = {"K": ("K: loads, copies", 4), "V": ("V: loads, copies", 3), "S": ("mma of Q Kᵀ", 2), "X": ("softmax", 1), "P": ("mma of P · V", 0)}
REMARKS = {
    "ldmatrix": "K and V go through registers: each round loads, multiplies, and ends with a barrier",
    "registers": "the next tile is copied while this one is multiplied; one barrier a tile",
    "overlap": "the next tile's scores before this tile's softmax; K is copied one round ahead of V",
}


def draw_variant(axes, steps):
    at = 0
    for kind, tile, count in steps:
        width = max(count, 6) if kind in "KVX" else count if kind in "SP" else 3  # few instructions must be seen, too
        if kind in LINES:
            _, y = LINES[kind]
            axes.broken_barh([(at, width)], (y, 0.86), facecolor=TILES[tile], linewidth=0)
            if kind != "X":
                axes.text(at + width / 2, y + 0.43, tile, ha="center", va="center", fontsize=6.5, color="white", weight="bold")
        elif kind == "B":
            axes.plot([at + 1.5] * 2, [-0.1, 5], color="black", linewidth=1)
        elif kind == "W":
            axes.plot(at + 1.5, 5.2, marker="v", color="black", markersize=4, clip_on=False)
        at += width
    axes.set(ylim=(-0.1, 5.3))
    axes.set_yticks([y + 0.43 for _, y in LINES.values()], [name for name, _ in LINES.values()], fontsize=7.5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def draw(variants):
    figure, all_axes = plt.subplots(len(variants), 1, figsize=(8.2, 5.6), layout="constrained")
    for axes, (name, steps) in zip(all_axes, variants.items()):
        draw_variant(axes, steps)
        axes.set_title(name, loc="left", fontsize=9.5, weight="bold")
        axes.set_title(REMARKS[name], loc="right", fontsize=7.5)
    all_axes[-1].set_xlabel("instructions of warp 0, in order; a line is a barrier, a triangle a wait for copies; numbers and colours: the tile of keys", fontsize=7.5)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "05_flash_v2_order.json").read_text())["variants"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

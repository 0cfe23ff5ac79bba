"""Draws in which round of its loop each block of keys adds to dQ of each tile of queries: tuned_64 of step 06, without and with a causal mask.

As traced in the simulator (results/sim/06_backward_additions.json).
"""

import json
import sys
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

MEET, ALONE, NEVER = "#fbdfcc", "#cfe5f4", "#f4f4f4"


def draw_mask(axes, name, traced):
    blocks, tiles = traced["masks"][name], traced["length"] // traced["queries"]
    at_once = Counter((step, tile) for block in blocks for step, tile in block)
    for row, block in enumerate(blocks):
        steps = {tile: step for step, tile in block}
        for tile in range(tiles):
            step = steps.get(tile)
            meet = at_once[step, tile] > 1
            colour = NEVER if step is None else MEET if meet else ALONE
            axes.add_patch(Rectangle((tile, row), 1, 1, facecolor=colour, edgecolor="white", linewidth=1.5))
            if step is not None:
                axes.text(tile + 0.5, row + 0.52, step, ha="center", va="center", fontsize=9, weight="bold" if meet else "normal")
    most = max(at_once.values())
    axes.set(xlim=(0, tiles), ylim=(len(blocks), 0), aspect="equal")
    axes.set_title(name, loc="left", fontsize=9, weight="bold")
    axes.set_title(f"at most {most} {'additions' if most > 1 else 'addition'} to a tile in a round", loc="right", fontsize=7.5)
    axes.set_xlabel(f"tiles of {traced['queries']} queries: rows of dQ", fontsize=8)
    axes.set_xticks([tile + 0.5 for tile in range(tiles)], range(tiles), fontsize=7)
    axes.set_yticks([row + 0.5 for row in range(len(blocks))], range(len(blocks)), fontsize=7)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def draw(traced):
    figure, all_axes = plt.subplots(1, len(traced["masks"]), figsize=(8.2, 2.8), layout="constrained")
    for axes, name in zip(all_axes, traced["masks"], strict=True):
        draw_mask(axes, name, traced)
    all_axes[0].set_ylabel(f"blocks of {traced['keys']} keys", fontsize=8)
    entries = [
        (Rectangle((0, 0), 1, 1, facecolor=MEET), "bold: other blocks add to this tile in the same round"),
        (Rectangle((0, 0), 1, 1, facecolor=ALONE), "no other block"),
        (Rectangle((0, 0), 1, 1, facecolor=NEVER), "not walked"),
    ]
    figure.legend(*zip(*entries), loc="outside lower center", ncols=3, fontsize=7.5, frameon=False)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "06_backward_additions.json").read_text()))


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

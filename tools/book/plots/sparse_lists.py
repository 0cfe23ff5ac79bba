"""Draws which tiles of keys each tile of queries visits under four masks of step 07, and the list of one tile of queries.

The lists are those of the plan's kernels, run in the simulator (results/sim/07_block_sparse_lists.json).
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

FULL, PARTIAL, DEAD = "#cfe5f4", "#fbdfcc", "#f4f4f4"
LOOKS = {"full": {"facecolor": FULL}, "partial": {"facecolor": PARTIAL, "hatch": "////"}, "dead": {"facecolor": DEAD}}
SHOWN = 5  # the tile of queries whose list is drawn


def tile_at(axes, x, y, width, height, kind):
    axes.add_patch(Rectangle((x, y), width, height, edgecolor="white", linewidth=0.8, **LOOKS[kind]))


def draw_mask(axes, name, rows, traced):
    columns = traced["tokens"] // traced["keys"]
    for row, (right, full, tiles) in rows.items():
        y, kinds = 2 * int(row), {}
        for place, tile in enumerate(tiles):
            kinds[tile] = ("full" if right <= place < right + full else "partial", place)
        for column in range(columns):
            kind, place = kinds.get(column, ("dead", None))
            tile_at(axes, column, y, 1, 2, kind)
            if place is not None:
                axes.text(column + 0.5, y + 1, place + 1, ha="center", va="center", fontsize=6.5)
    axes.add_patch(Rectangle((0, 2 * SHOWN), columns, 2, fill=False, edgecolor="black", linewidth=1.4))
    axes.set(xlim=(-0.2, columns + 0.2), ylim=(columns + 5.4, -0.2), aspect="equal")
    axes.set_title(name, fontsize=8.5, weight="bold")
    right, full, tiles = rows[str(SHOWN)]
    for place, tile in enumerate(tiles):  # the list as it lies in memory
        tile_at(axes, 1.6 * place, columns + 2.4, 1.6, 1.8, "full" if right <= place < right + full else "partial")
        axes.text(1.6 * place + 0.8, columns + 3.3, tile, ha="center", va="center", fontsize=7.5)
    left = len(tiles) - right - full
    axes.text(0, columns + 1.4, f"its list: {right} right, {full} full, {left} left", fontsize=7.5, va="center")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def draw(traced):
    figure, all_axes = plt.subplots(1, 4, figsize=(9.6, 3.6), layout="constrained")
    for axes, (name, rows) in zip(all_axes, traced["masks"].items(), strict=True):
        draw_mask(axes, name, rows, traced)
    all_axes[0].set_ylabel("tiles of 128 queries", fontsize=8)
    entries = [(Rectangle((0, 0), 1, 1, edgecolor="white", linewidth=0.8, **LOOKS[kind]), name) for kind, name in
               {"full": "full: all queries see all keys", "partial": "partial: needs a mask", "dead": "dead: not visited"}.items()]  # fmt: skip
    figure.legend(*zip(*entries, strict=True), loc="outside lower center", ncols=3, fontsize=7.5, frameon=False)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "07_block_sparse_lists.json").read_text()))


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

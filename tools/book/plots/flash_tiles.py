"""Draws which tiles of keys each tile of queries walks over, and which of them need a mask: three masks in step 05.

As traced in the simulator (results/sim/05_flash_v2_tiles.json).
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

FREE, MASKED, SKIPPED, SEEN = "#cfe5f4", "#fbdfcc", "#f4f4f4", "#0072b2"


def sees(name, query, key):
    """Whether the mask of that name lets a query see a key."""
    if name == "dense":
        return True
    return key <= query and ("window" not in name or query - key < int(name.split()[-1]))


def draw_mask(axes, name, traced):
    length, tile = traced["length"], traced["tile"]
    walks = [walk.split() for walk in traced["walks"][name]]
    tiles = range(-(-length // tile))
    for row, walk in enumerate(walks):
        for column in tiles:
            place = walk.index(f"{column}m") if f"{column}m" in walk else walk.index(str(column)) if str(column) in walk else None
            colour = SKIPPED if place is None else MASKED if walk[place].endswith("m") else FREE
            axes.add_patch(Rectangle((column * tile, row * tile), tile, tile, facecolor=colour, edgecolor="white", linewidth=1.5))
            if place is not None:
                axes.text((column + 0.5) * tile, (row + 0.5) * tile, place + 1, ha="center", va="center", fontsize=7.5)
    seen = [[key for key in range(length) if sees(name, query, key)] for query in range(length)]
    down = [query + step for query in range(length) for step in (0, 1)]  # the outline of what is seen, query by query
    for edge in ([keys[0] for keys in seen], [keys[-1] + 1 for keys in seen]):
        axes.plot([key for key in edge for _ in (0, 1)], down, color=SEEN, linewidth=1)
    size = len(tiles) * tile
    axes.set(xlim=(-4, size + 4), ylim=(size + 4, -4), aspect="equal")
    axes.set_title(name, fontsize=9, weight="bold")
    axes.set_xlabel("keys", fontsize=8)
    axes.set_xticks([0, length])
    axes.set_yticks([0, length])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=7)
    walked = sum(map(len, walks))
    axes.text(size / 2, size * 1.22, f"{walked} of {len(tiles) ** 2} tiles, {sum(t.endswith('m') for w in walks for t in w)} with a mask",
              ha="center", fontsize=8)  # fmt: skip


def draw(traced):
    figure, all_axes = plt.subplots(1, 3, figsize=(8.2, 3.5), layout="constrained")
    for axes, name in zip(all_axes, traced["walks"]):
        draw_mask(axes, name, traced)
    all_axes[0].set_ylabel("queries", fontsize=8)
    entries = [
        (Rectangle((0, 0), 1, 1, facecolor=FREE), "without a mask"),
        (Rectangle((0, 0), 1, 1, facecolor=MASKED), "peeled off: with a mask"),
        (Rectangle((0, 0), 1, 1, facecolor=SKIPPED), "skipped"),
        (plt.Line2D([], [], color=SEEN, linewidth=1), "edge of what a query sees"),
    ]
    figure.legend(*zip(*entries), loc="outside lower center", ncols=4, fontsize=7.5, frameon=False)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "05_flash_v2_tiles.json").read_text()))


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

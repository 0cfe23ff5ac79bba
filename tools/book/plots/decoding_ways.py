"""Draws who reads which keys when: a few items and many, on a device with eight SMs, shared in the four ways of step 09.

The ranges of tiles are those of the step (items.h, choice.h), written anew. The times are a model: an SM runs one block and reads one tile in each
unit of time, a second kernel that merges takes LAUNCH units, and a merge within a cluster takes CLUSTER.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from matplotlib.patches import Patch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import SMALL, WIDTH, canvas, save, write

SMS, TILES = 8, 8  # of the device; of an item
ITEMS = (3, 10)
SPLITS = CLUSTER_BLOCKS = 2
LAUNCH, CLUSTER = 2, 0.5  # time of the model
COLOURS = ["#9ecae9", "#f7c99b", "#b9dfb0", "#d9c3e8", "#f3e08a", "#f2b5b5", "#bfe3e0", "#cfcfcf", "#e3b98f", "#a9b8f0"]
MERGED = {"facecolor": "white", "hatch": "////"}


@dataclass(frozen=True)
class Piece:
    """Tiles first … last − 1 of an item, read by a block on an SM from `begin` on; then it merges for so long."""

    sm: int
    begin: float
    item: int
    first: int
    last: int
    merge: float = 0

    @property
    def end(self):
        return self.begin + self.last - self.first

    @property
    def is_cut(self):
        return self.last - self.first < TILES


def ceil_div(a, b):
    return -(-a // b)


def whole_rows(items):
    """As few blocks as have no more than the busiest needs; each goes from item to item."""
    each = ceil_div(items, min(items, SMS))
    blocks = ceil_div(items, each)
    bounds = [items * block // blocks for block in range(blocks + 1)]
    return [Piece(block, TILES * (n - bounds[block]), n, 0, TILES) for block in range(blocks) for n in range(bounds[block], bounds[block + 1])]


def part(number, parts):
    return TILES * number // parts, TILES * (number + 1) // parts


def split_kv(items):
    """Blocks take the next place that is free; all parts are alike, so they run in waves."""
    long = TILES // SPLITS
    return [Piece(n % SMS, n // SMS * long, n // SPLITS, *part(n % SPLITS, SPLITS)) for n in range(items * SPLITS)]


def stream_k(items):
    """Each block takes its share of all tiles."""
    found, units = [], items * TILES
    for block in range(SMS):
        begin = at = units * block // SMS
        end = units * (block + 1) // SMS
        while at < end:
            item, first = divmod(at, TILES)
            last = min(TILES, first + end - at)
            found.append(Piece(block, at - begin, item, first, last))
            at += last - first
    return found


def cluster(items):
    """Waves of clusters: a block ends when it has merged its share."""
    long = TILES // CLUSTER_BLOCKS + CLUSTER
    return [Piece(n % SMS, n // SMS * long, n // CLUSTER_BLOCKS, *part(n % CLUSTER_BLOCKS, CLUSTER_BLOCKS), CLUSTER) for n in range(items * CLUSTER_BLOCKS)]


WAYS = {"whole_rows": whole_rows, "split_kv": split_kv, "stream_k": stream_k, "cluster": cluster}


def ends(way, items):
    """(when the last tile is read, when all is merged)"""
    pieces = WAYS[way](items)
    read = max(piece.end + piece.merge for piece in pieces)
    merges_later = way in ("split_kv", "stream_k") and any(piece.is_cut for piece in pieces)
    return read, read + LAUNCH * merges_later


def draw_way(axes, left, top, scale, way, items):
    line, height = 0.105, 0.09
    read, end = ends(way, items)
    write(axes, left, top + 0.13, f"{way}: {end:g}", ha="left")
    for piece in WAYS[way](items):
        y = top - line * (piece.sm + 1)
        x, wide = left + piece.begin * scale, (piece.last - piece.first) * scale
        axes.broken_barh([(x, wide)], (y, height), facecolor=COLOURS[piece.item], edgecolor="white", linewidth=0.4)
        for at, cut in ((x, piece.first > 0), (x + wide, piece.last < TILES)):
            if cut:
                axes.plot([at, at], [y, y + height], color="black", linewidth=1.4, solid_capstyle="butt")
        if piece.merge:
            axes.broken_barh([(x + wide, piece.merge * scale)], (y, height), edgecolor="black", linewidth=0.4, **MERGED)
    if end > read:
        axes.broken_barh([(left + read * scale, LAUNCH * scale)], (top - line * SMS, line * SMS - 0.015), edgecolor="black", linewidth=0.5, **MERGED)
    axes.plot([left, left], [top - line * SMS - 0.03, top], color="black", linewidth=0.8)


def draw():
    figure, axes = canvas(6.1)
    columns, wide = (0.2, 2.0), (1.5, 2.6)
    for left, room, items in zip(columns, wide, ITEMS, strict=True):
        scale = room / max(ends(way, items)[1] for way in WAYS)
        write(axes, left, 5.92, f"{items} items of {TILES} tiles", ha="left", weight="bold")
        for row, way in enumerate(WAYS):
            draw_way(axes, left, 5.5 - 1.24 * row, scale, way, items)
    write(axes, WIDTH - 0.15, 0.74, "time, by a model →", ha="right")
    handles = [Patch(facecolor=COLOURS[0], edgecolor="white"), Patch(edgecolor="black", linewidth=0.5, **MERGED)]
    figure.legend(handles, ["keys of one item are read", "parts are merged"], loc="lower left", bbox_to_anchor=(0.02, 0.0), fontsize=SMALL, frameon=False, ncols=2, handlelength=1.3, columnspacing=1.2)
    write(axes, 0.2, 0.5, "A row is an SM. A thick line: a block cuts an item there.", ha="left")
    return figure


if __name__ == "__main__":
    save(__doc__, draw)

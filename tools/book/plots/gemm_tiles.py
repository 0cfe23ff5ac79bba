"""Draws how step 02's `tuned` cuts C: into tiles of blocks, those into tiles of warps, those into the 16 × 8 elements of an mma.m16n8k16.

The sizes are read from the kernel's own source: TunedTile in steps/02_tiled_gemm/08_large_tiles.cuh. C is that of the benchmark at m = n = k = 4096.
"""

import re
import sys
from pathlib import Path

from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, canvas, save, write

C = 4096  # rows and columns
K_TILE = 64  # TunedTile<64>, with which `tuned` was measured
MMA = (16, 8, 16)  # m, n, k
CHOSEN = {"facecolor": "#d55e00", "edgecolor": "black", "linewidth": 1}
PLAIN = {"facecolor": "#cfe5f4", "edgecolor": "black", "linewidth": 0.5}
OPERAND = {"facecolor": "#e8e8e8", "edgecolor": "black", "linewidth": 0.8}


def tile_of_source():
    """TunedTile's constants, and what follows from them."""
    text = (ROOT / "steps" / "02_tiled_gemm" / "08_large_tiles.cuh").read_text()
    body = re.search(r"struct TunedTile \{(.*?)\n\};", text, re.DOTALL).group(1)
    found = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)\b", body)}
    return {**found, "k": K_TILE, "warps": found["threads"] // 32, "k_steps": K_TILE // MMA[2]}


def draw_grid(axes, left, top, wide, high, rows, columns, chosen):
    """A matrix in equal parts. Returns the chosen part: its left, top, width, height."""
    w, h = wide / columns, high / rows
    axes.add_patch(Rectangle((left, top - high), wide, high, **{**PLAIN, "linewidth": 1}))
    for row in range(1, rows):
        axes.plot([left, left + wide], [top - row * h] * 2, color="black", linewidth=0.4)
    for column in range(1, columns):
        axes.plot([left + column * w] * 2, [top - high, top], color="black", linewidth=0.4)
    box = (left + chosen[1] * w, top - chosen[0] * h, w, h)
    axes.add_patch(Rectangle((box[0], box[1] - h), w, h, **CHOSEN))
    return box


def draw_zoom(axes, begin, end):
    """From the corners of a chosen part to those of the picture that shows it."""
    for corner, target in zip(begin, end, strict=True):
        axes.plot(*zip(corner, target, strict=True), color="black", linewidth=0.9, linestyle=(0, (4, 2)))


def draw_title(axes, x, y, *lines):
    for i, line in enumerate(lines):
        write(axes, x, y - 0.18 * i, line, ha="left", weight="bold" if i == 0 else "normal")


def draw(tile):
    figure, axes = canvas(5.6)
    rows, columns, warp = tile["rows"], tile["columns"], tile["warp"]
    left, right, side = 0.1, 2.6, 2.1
    # C
    top = 5.15
    draw_title(axes, left, 5.48, f"C: {C} × {C}", f"{C // rows} × {C // columns} tiles, a block each")
    x, y, w, h = draw_grid(axes, left, top, side, side, C // rows, C // columns, (4, 9))
    # the block's tile
    draw_title(axes, right, 5.48, f"a block: {rows} × {columns}", f"{tile['warps']} warps; k-tiles of {tile['k']}")
    high = side * rows / columns
    draw_zoom(axes, [(x + w, y), (x + w, y - h)], [(right, top), (right, top - high)])
    x, y, w, h = draw_grid(axes, right, top, side, high, rows // warp, columns // warp, (1, 1))
    for number in range(tile["warps"]):
        row, column = divmod(number, columns // warp)
        style = {"color": "white", "weight": "bold"} if (row, column) == (1, 1) else {}
        write(axes, right + (column + 0.5) * w, top - (row + 0.5) * h, number, **style)
    # the warp's tile
    low = 3.6
    draw_zoom(axes, [(x, y - h), (x + w, y - h)], [(right, low), (right + side, low)])
    x, y, w, h = draw_grid(axes, right, low, side, side, warp // MMA[0], warp // MMA[1], (2, 1))
    down, across = warp // MMA[0], warp // MMA[1]
    lines = [f"{down} × {across} fragments of C, so", f"{down * across} mma for each {MMA[2]} of k;", f"a k-tile has {tile['k_steps']} times {MMA[2]}"]
    draw_title(axes, right, low - side - 0.17, f"warp 5: {warp} × {warp}", *lines)
    # one mma: B above C, A beside it
    m, n, k = (size * 0.055 for size in MMA)  # inches
    corner, middle = left + 0.05 + k, 1.72  # of C: its left and its top
    draw_zoom(axes, [(x, y), (x, y - h)], [(corner + n, middle), (corner + n, middle - m)])
    axes.add_patch(Rectangle((corner, middle - m), n, m, **CHOSEN))
    axes.add_patch(Rectangle((corner - 0.05 - k, middle - m), k, m, **OPERAND))
    axes.add_patch(Rectangle((corner, middle + 0.05), n, k, **OPERAND))
    write(axes, corner + n / 2, middle - m / 2, "C", color="white", weight="bold")
    write(axes, corner - 0.05 - k / 2, middle - m / 2 + 0.09, "A", weight="bold")
    write(axes, corner - 0.05 - k / 2, middle - m / 2 - 0.12, f"{MMA[0]} × {MMA[2]}")
    write(axes, corner + n / 2, middle + 0.05 + k / 2, "B", weight="bold")
    write(axes, corner - 0.07, middle + 0.05 + k / 2, f"{MMA[2]} × {MMA[1]}", ha="right")
    write(axes, corner + n / 2, middle - m - 0.12, f"{MMA[0]} × {MMA[1]}")
    draw_title(axes, left, 0.41, "one mma.m16n8k16", "C += A · B, by 32 lanes")
    return figure


def from_committed_numbers():
    return draw(tile_of_source())


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

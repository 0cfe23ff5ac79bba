"""Draws what the loops of v1 (step 04) and of v2 (step 05) read and write: the order of the tiles of S, and the bytes of each array.

The loops are run here, one pass after the other, and every read and write of global memory is added up: one head, fp16, no mask, tiles of the same size
in both. The formulas of the IO theorem (tools/learn/io_counts.py) give the same sums; tests/tools/test_plots.py compares.
"""

import sys
from pathlib import Path

from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import WIDTH, canvas, save, write

N, D, TILE = 256, 64, 64  # tokens, head dim, queries and keys of a tile
FP16, FP32 = 2, 4  # bytes
STATE = 2 * FP32  # m and l of a row
V1 = {"facecolor": "#fbdfcc", "edgecolor": "black", "linewidth": 0.8, "hatch": "////"}
V2 = {"facecolor": "#0072b2", "edgecolor": "black", "linewidth": 0.8}
ROWS = ["K, V read", "Q read", "O read", "O written", "l, m read", "l, m written", "LSE written"]
PLAIN = {"facecolor": "#e8e8e8", "edgecolor": "black", "linewidth": 0.8}  # a tile of S
V1_CODE = [  # depth, text, whether it moves bytes
    (0, "for each tile j of keys:", False),
    (1, "read K, V", True),
    (1, "for each tile i:", False),
    (2, "read Q, O, l, m", True),
    (2, "write O, l, m", True),
]
V2_CODE = [
    (0, "read Q", True),
    (0, "for each tile j of keys:", False),
    (1, "read K, V", True),
    (1, "O, l, m: in registers", False),
    (0, "write O, LSE", True),
]


def v1_loops(n=N, d=D, tile=TILE):
    """[(tile of queries, tile of keys), …] in order, and {array: bytes}, of Algorithm 1 without the kernels around it."""
    order, moved = [], dict.fromkeys(ROWS, 0)
    for j in range(n // tile):
        moved["K, V read"] += 2 * tile * d * FP16
        for i in range(n // tile):
            moved["Q read"] += tile * d * FP16
            moved["O read"] += tile * d * FP32
            moved["l, m read"] += tile * STATE
            order.append((i, j))
            moved["O written"] += tile * d * FP32
            moved["l, m written"] += tile * STATE
    return order, moved


def v2_loops(n=N, d=D, tile=TILE):
    """The same of v2: a block for each i, and all of them at the same time; each goes from the last tile of keys to the first."""
    order, moved = [], dict.fromkeys(ROWS, 0)
    for i in range(n // tile):
        moved["Q read"] += tile * d * FP16
        for j in reversed(range(n // tile)):
            moved["K, V read"] += 2 * tile * d * FP16
            order.append((i, j))
        moved["O written"] += tile * d * FP16
        moved["LSE written"] += tile * FP32
    return order, moved


def draw_order(axes, left, top, side, order, own_blocks):
    """S in tiles, each with its place in the order: of all, or of its own block."""
    tiles = max(j for _, j in order) + 1
    size = side / tiles
    for place, (i, j) in enumerate(order):
        axes.add_patch(Rectangle((left + j * size, top - (i + 1) * size), size, size, **PLAIN))
        write(axes, left + (j + 0.5) * size, top - (i + 0.5) * size - 0.01, 1 + (place % tiles if own_blocks else place))
    write(axes, left + side / 2, top + 0.1, "keys j →")
    write(axes, left - 0.12, top - side / 2, "queries i →", rotation=270)
    style = {"facecolor": "none", "edgecolor": "black", "linewidth": 2.2}  # what one pass of the outer loop walks over
    for number in range(tiles):
        corner = (left, top - (number + 1) * size) if own_blocks else (left + number * size, top - side)
        axes.add_patch(Rectangle(corner, *((side, size) if own_blocks else (size, side)), **style))


def draw_loops(axes, left, top, lines):
    """Pseudo-code; what moves bytes is bold."""
    for i, (depth, text, moves) in enumerate(lines):
        write(axes, left + 0.16 * depth, top - 0.19 * i, text, ha="left", weight="bold" if moves else "normal")


def draw_bytes(axes, top, bars):
    """A line for each array; v1 above v2, to the same scale."""
    left, height = 1.08, 0.135
    scale = (WIDTH - left - 0.75) / max(max(moved.values()) for moved, _ in bars)
    for row, name in enumerate(ROWS):
        y = top - 0.335 * row
        write(axes, left - 0.08, y - height, name, ha="right")
        for k, (moved, style) in enumerate(bars):
            bottom = y - (k + 1) * height
            axes.add_patch(Rectangle((left, bottom), moved[name] * scale, height, **style))
            count = f"{moved[name] / 1024:g} KiB" if moved[name] else "none"
            write(axes, left + moved[name] * scale + 0.05, bottom + height / 2 - 0.005, count, ha="left", fontsize=9)


def draw():
    figure, axes = canvas(6.55)
    half = WIDTH / 2
    (v1_order, v1), (v2_order, v2) = v1_loops(), v2_loops()
    columns = [(0.1, "v1: one block a head", v1_order, False, V1_CODE), (half + 0.1, "v2: a block for each i", v2_order, True, V2_CODE)]
    for left, title, order, own_blocks, lines in columns:
        write(axes, left, 6.42, title, ha="left", weight="bold")
        draw_order(axes, left + 0.35, 6.08, 1.45, order, own_blocks)
        draw_loops(axes, left, 4.46, lines)
    axes.plot([half, half], [3.55, 6.5], color="#888888", linewidth=0.8)
    write(axes, 0.1, 3.3, f"Bytes: {N} tokens, d = {D}, tiles of {TILE}", ha="left", weight="bold")
    for k, (name, moved, style) in enumerate([("v1", v1, V1), ("v2", v2, V2)]):
        x = 0.1 + 2.3 * k
        axes.add_patch(Rectangle((x, 3.0), 0.3, 0.14, **style))
        write(axes, x + 0.38, 3.065, f"{name}: {sum(moved.values()) / 1024:g} KiB in all", ha="left")
    draw_bytes(axes, 2.83, [(v1, V1), (v2, V2)])
    write(axes, WIDTH / 2, 0.34, "Thick frames: a pass of the outer loop of v1, a block of v2.", style="italic")
    write(axes, WIDTH / 2, 0.14, "v1 keeps O in fp32 between passes.", style="italic")
    return figure


if __name__ == "__main__":
    save(__doc__, draw)

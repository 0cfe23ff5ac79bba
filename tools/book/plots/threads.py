"""Draws who is who in the launch add<<<4, 64>>> of step 00, with 250 elements: grid, block, warp, lane, and the element that one thread has."""

import sys
from pathlib import Path

from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import WIDTH, canvas, save, write

BLOCKS, THREADS, LANES, ELEMENTS = 4, 64, 32, 250
BLOCK, WARP, LANE = 1, 1, 5  # whose thread is followed
LEFT, WIDE, TALL = 0.12, WIDTH - 0.24, 0.34
CHOSEN, OTHER = {"facecolor": "#0072b2"}, {"facecolor": "#e6f0f7"}
IDLE = {"facecolor": "white", "hatch": "////"}


def element(block, thread):
    """The index that the kernel computes: blockIdx.x * blockDim.x + threadIdx.x."""
    return block * THREADS + thread


def row(axes, y, count, chosen, name):
    """`count` boxes side by side; the chosen one stands out. Returns its left and right end."""
    wide = WIDE / count
    for i in range(count):
        axes.add_patch(Rectangle((LEFT + i * wide, y), wide, TALL, edgecolor="black", linewidth=0.8, **(CHOSEN if i == chosen else OTHER)))
        if name:
            write(axes, LEFT + (i + 0.5) * wide, y + TALL / 2, name(i), color="white" if i == chosen else "black")
    return LEFT + chosen * wide, LEFT + (chosen + 1) * wide


def enlarged(axes, y, ends, below):
    """The lines from a box to the row below that shows its inside."""
    for x, edge in zip(ends, (LEFT, LEFT + WIDE), strict=True):
        axes.plot([x, edge], [y, below], color="black", linewidth=0.7, linestyle=":")


def draw():
    figure, axes = canvas(4.35)
    titles = [
        (4.2, "grid: the 4 blocks of the launch, in any order"),
        (3.2, "block 1: 64 threads, which can share memory"),
        (2.2, "warp 1 of block 1: 32 lanes"),
    ]
    for y, text in titles:
        write(axes, LEFT, y, text, ha="left", weight="bold", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, zorder=3)
    ends = row(axes, 3.7, BLOCKS, BLOCK, lambda i: f"block {i}")
    enlarged(axes, 3.7, ends, 3.04)
    ends = row(axes, 2.7, THREADS // LANES, WARP, lambda i: f"warp {i}: threads {i * LANES}–{i * LANES + LANES - 1}")
    enlarged(axes, 2.7, ends, 2.04)
    row(axes, 1.7, LANES, LANE, None)
    for lane in (0, LANE, LANES - 1):
        write(axes, LEFT + (lane + 0.5) * WIDE / LANES, 1.57, str(lane))
    thread = WARP * LANES + LANE
    write(
        axes,
        LEFT,
        1.27,
        f"lane {LANE} of warp {WARP} is thread {thread} of block {BLOCK}:\ni = {BLOCK} · {THREADS} + {thread} = {element(BLOCK, thread)}",
        ha="left",
        va="center",
    )
    # The vector: 250 elements, and the 6 threads of the last block that have none.
    wide = WIDE / (BLOCKS * THREADS)
    axes.add_patch(Rectangle((LEFT, 0.55), ELEMENTS * wide, 0.28, edgecolor="black", linewidth=0.8, **OTHER))
    axes.add_patch(Rectangle((LEFT + ELEMENTS * wide, 0.55), (BLOCKS * THREADS - ELEMENTS) * wide, 0.28, edgecolor="black", linewidth=0.8, **IDLE))
    axes.add_patch(Rectangle((LEFT + element(BLOCK, thread) * wide, 0.55), 1.5 * wide, 0.28, **CHOSEN))
    for block in range(1, BLOCKS):
        axes.plot([LEFT + block * THREADS * wide] * 2, [0.55, 0.83], color="black", linewidth=0.8)
    write(axes, LEFT + element(BLOCK, thread) * wide, 0.93, f"sum[{element(BLOCK, thread)}]")
    write(axes, LEFT, 0.27, f"the vector: {ELEMENTS} elements, 64 for each block;\nthe last {BLOCKS * THREADS - ELEMENTS} threads (hatched) find i < n false", ha="left")
    return figure


if __name__ == "__main__":
    save(__doc__, draw)

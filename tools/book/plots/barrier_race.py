"""Draws a race: a lane of one warp writes an element of shared memory, a lane of another warp reads it, with and without a barrier between.

The order of warps is not fixed, so each program is run twice by a model of two warps below: once where warp 0 is ahead, once where warp 1 is. What y
becomes is what the model says. Time has no unit.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import SMALL, WIDTH, arrow, canvas, save, write

OLD, NEW = 2, 5  # x before and after warp 0 writes it
LENGTH = 10.4  # of the time that is drawn
ACCESS = 1.5  # how long a write or a read takes
ORDERS = {"warp 0 is ahead": (1.0, 4.6), "warp 1 is ahead": (4.6, 1.0)}  # when each warp has done what comes before
BEFORE = {"facecolor": "#eeeeee", "edgecolor": "#777777", "hatch": "....", "linewidth": 0.8}
WRITES = {"facecolor": "#d55e00", "edgecolor": "black", "linewidth": 0.8}
READS = {"facecolor": "#0072b2", "edgecolor": "black", "linewidth": 0.8}
WAITS = {"facecolor": "white", "edgecolor": "#777777", "hatch": "////", "linewidth": 0.8}
LEFT = 0.95  # inches, where time begins
SCALE = (WIDTH - 0.15 - LEFT) / LENGTH


@dataclass
class Run:
    """When warp 0 writes x and warp 1 reads it, when the barrier opens, and what was read."""

    write: float
    read: float
    opens: float | None
    value: int


def run(arrivals, barrier):
    """`arrivals`: when warp 0 gets to its write, and warp 1 to its read, or to the barrier before it."""
    writes, reads = arrivals
    opens = None
    if barrier:  # warp 0 arrives behind its write; both leave together
        opens = max(writes + ACCESS, reads)
        reads = opens
    return Run(writes, reads, opens, NEW if writes + ACCESS <= reads else OLD)


def draw_bar(axes, begin, end, y, style, text=""):
    axes.add_patch(Rectangle((LEFT + begin * SCALE, y), (end - begin) * SCALE, 0.24, **style))
    colour = "white" if style in (WRITES, READS) else "black"
    write(axes, LEFT + (begin + end) / 2 * SCALE, y + 0.115, text, color=colour, weight="bold")


def draw_run(axes, top, title, arrivals, barrier):
    happened = run(arrivals, barrier)
    right = happened.value == NEW
    verdict = "right, by luck" if right and not barrier else "right" if right else "wrong"
    write(axes, 0.1, top, title, ha="left")
    write(axes, WIDTH - 0.15, top, f"y is {happened.value}: {verdict}", ha="right", weight="bold")
    warp_0, memory, warp_1 = top - 0.42, top - 0.77, top - 1.12
    for y, name in [(warp_0, "warp 0"), (memory, "shared x"), (warp_1, "warp 1")]:
        write(axes, LEFT - 0.1, y + 0.115, name, ha="right")
    draw_bar(axes, 0, happened.write, warp_0, BEFORE)
    draw_bar(axes, happened.write, happened.write + ACCESS, warp_0, WRITES, f"x = {NEW}")
    draw_bar(axes, 0, arrivals[1], warp_1, BEFORE)
    draw_bar(axes, happened.read, happened.read + ACCESS, warp_1, READS, "y = x")
    if barrier:
        for y, arrives in [(warp_0, happened.write + ACCESS), (warp_1, arrivals[1])]:
            if arrives < happened.opens:
                draw_bar(axes, arrives, happened.opens, y, WAITS)
        x = LEFT + happened.opens * SCALE
        axes.plot([x, x], [warp_1 - 0.05, warp_0 + 0.29], color="black", linewidth=2.4, solid_capstyle="butt", zorder=5)
    changes = happened.write + ACCESS
    for begin, end, value in [(0, changes, OLD), (changes, LENGTH, NEW)]:  # what lies in shared memory
        draw_bar(axes, begin, end, memory, {"facecolor": "white", "edgecolor": "black", "linewidth": 0.8})
        write(axes, LEFT + (begin + 0.35) * SCALE, memory + 0.115, value, weight="bold")
    x = LEFT + changes * SCALE
    arrow(axes, (x - 0.02, warp_0), (x - 0.02, memory + 0.24), mutation_scale=9)
    x = LEFT + (happened.read + ACCESS / 2) * SCALE
    arrow(axes, (x, memory), (x, warp_1 + 0.24), mutation_scale=9)


def draw():
    figure, axes = canvas(6.78)
    y = 6.63
    for barrier, heading in [(False, "No barrier: the result depends on the order"), (True, "__syncthreads() between: always the same result")]:
        write(axes, 0.1, y, heading, ha="left", weight="bold", fontsize=SMALL + 0.7)
        for name, arrivals in ORDERS.items():
            draw_run(axes, y - 0.24, name, arrivals, barrier)
            y -= 1.42
        y -= 0.22
    entries = [(BEFORE, "earlier work", 0.1), (WAITS, "waits at the barrier", 1.45)]
    for style, text, x in entries:
        axes.add_patch(Rectangle((x, y - 0.1), 0.28, 0.2, **style))
        write(axes, x + 0.36, y, text, ha="left")
    axes.plot([3.42, 3.42], [y - 0.12, y + 0.12], color="black", linewidth=2.4, solid_capstyle="butt")
    write(axes, 3.52, y, "barrier opens", ha="left")
    write(axes, 0.1, y - 0.27, "Time goes to the right. No rule says which warp is ahead.", ha="left", style="italic")
    return figure


if __name__ == "__main__":
    save(__doc__, draw)

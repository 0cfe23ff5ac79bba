"""Draws why blocks that wait for blocks hang when parts are taken by blockIdx, why they end when parts are drawn by ticket, and the two cases of
the proof for blocks with two parts (step 03, `in_turns`).

The upper pictures are runs of the small model below: a device with room for four blocks, and rows of three parts. The lower ones are the two orders
in which parts can have been drawn, if all blocks waited.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import save

PARTS, ROWS, ROOM = 3, "ABC", 4
STARTED = [0, 1, 3, 4, 2, 5, 6, 7, 8]  # the order in which the hardware happens to start the blocks, by blockIdx
LOAD, WRITE, SHOWN = 3, 1, 14  # time of the model
COLOURS = {"A": "#a6d3ee", "B": "#f7c99b", "C": "#b9dfb0", "R": "#a6d3ee", "S": "#f7c99b"}


@dataclass
class Block:
    """One block: its place on the device, its part, and when it started, published, and ended (None: never)."""

    place: int
    part: int
    start: int
    published: int
    end: int | None = None


def run(by_ticket):
    """The blocks of a run until nothing happens any more."""
    waiting_to_start, places, blocks = list(STARTED), dict.fromkeys(range(ROOM)), []
    for now in range(3 * SHOWN):
        for place, block in places.items():
            if block is not None and block.end == now:
                places[place] = None
            if places[place] is None and waiting_to_start:
                index = waiting_to_start.pop(0)
                block = Block(place, len(blocks) if by_ticket else index, now, now + LOAD)
                places[place] = block
                blocks.append(block)
        for row in range(len(ROWS)):
            of_row = [block for block in blocks if block.part // PARTS == row]
            if len(of_row) == PARTS and max(block.published for block in of_row) == now:
                for block in of_row:
                    block.end = now + WRITE
    return blocks


def named(part):
    return f"{ROWS[part // PARTS]}{part % PARTS}"


def box(axes, x, y, width, text, row, **looks):
    """A box with a name; `row` gives its colour."""
    style = {"facecolor": COLOURS.get(row, "#e8e8e8"), "edgecolor": "black", "linewidth": 0.8, **looks}
    axes.add_patch(Rectangle((x, y), width, 0.72, **style))
    axes.text(x + width / 2, y + 0.36, text, ha="center", va="center", fontsize=8)


def draw_run(axes, blocks, title):
    for block in blocks:
        y, row, wait_until = ROOM - 1 - block.place, ROWS[block.part // PARTS], SHOWN if block.end is None else block.end - WRITE
        axes.add_patch(
            Rectangle((block.published, y), wait_until - block.published, 0.72, facecolor="white", edgecolor="black", hatch="..", linewidth=0.8)
        )
        box(axes, block.start, y, LOAD, named(block.part), row)
        if block.end is not None:
            box(axes, wait_until, y, WRITE, "", row, hatch="////")
    never = [named(part) for part in range(PARTS * len(ROWS)) if part not in {block.part for block in blocks}]
    remark = f"{', '.join(never)} never start, and no block ends" if never else "every block ends"
    axes.set_title(title, loc="left", fontsize=9, weight="bold")
    axes.set_xlabel(f"time; {remark}", fontsize=8)
    axes.set(xlim=(0, SHOWN), ylim=(-0.15, ROOM))
    axes.set_yticks([ROOM - 1 - place + 0.36 for place in range(ROOM)], [f"place {place}" for place in range(ROOM)], fontsize=8)


# What was drawn, in time: (block, queue, row). The part for whose row a block waits is the one that it drew first.
CASES = {
    "S": [("b", 1, "S"), ("b", 0, "E"), ("c", 0, "R"), ("c", 1, "S"), ("d", 0, "R"), ("d", 1, "S")],
    "R": [("c", 0, "R"), ("c", 1, "E"), ("b", 1, "S"), ("b", 0, "R"), ("d", 1, "S"), ("d", 0, "R")],
}


def draw_case(axes, common, title, remark):
    drawn = CASES[common]
    assert all(any(block == other and row == common for other, _, row in drawn) for block in "bcd")
    for block in "bcd":
        (x0, q0), (x1, q1) = ((time, queue) for time, (owner, queue, _) in enumerate(drawn) if owner == block)
        ends = {"xytext": (x0 + 0.45, 1.86 if q0 == 0 else 0.72), "xy": (x1 + 0.45, 0.72 if q1 == 1 else 1.86)}
        axes.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": "black", "linewidth": 1})
    for time, (block, queue, row) in enumerate(drawn):
        box(axes, time, 1.86 if queue == 0 else 0, 0.9, f"{row} · {block}", row, linewidth=2 if row == common else 0.8)
    for queue, row in enumerate("RS"):
        box(axes, len(drawn) + 0.4, 1.86 if queue == 0 else 0, 0.9, f"{row} · ?", row, facecolor="white", linestyle="--")
    axes.set_title(title, loc="left", fontsize=9, weight="bold")
    axes.set_xlabel(f"order of drawing; {remark}", fontsize=8)
    axes.set(xlim=(-0.1, len(drawn) + 1.5), ylim=(-0.15, 2.75))
    axes.set_yticks([2.22, 0.36], ["queue of\nregisters", "queue of\nshared memory"], fontsize=8)


def draw():
    figure, all_axes = plt.subplots(2, 2, figsize=(9.4, 5.6), height_ratios=[1.35, 1], layout="constrained")
    draw_run(all_axes[0][0], run(by_ticket=False), "part = blockIdx: the device hangs")
    draw_run(all_axes[0][1], run(by_ticket=True), "part = ticket: every row ends")
    draw_case(all_axes[1][0], "S", "case 1: b waits for S and holds E, a row before R", "b, c and d all hold a part of S")
    draw_case(all_axes[1][1], "R", "case 2: whoever waits for S holds a part of R", "b, c and d all hold a part of R")
    for axes in all_axes.flat:
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    looks = {"loads its part, publishes (m, l)": {"facecolor": COLOURS["A"]}, "waits for the row's other parts": {"facecolor": "white", "hatch": ".."},
             "writes y": {"facecolor": COLOURS["A"], "hatch": "////"}, "not drawn yet": {"facecolor": "white", "linestyle": "--"}}  # fmt: skip
    figure.legend(
        [Patch(edgecolor="black", linewidth=0.8, **look) for look in looks.values()],
        looks,
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    return figure


if __name__ == "__main__":
    save(__doc__, draw)

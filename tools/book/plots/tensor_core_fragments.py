"""Draws who holds what in a tensor-core product: the lanes and registers of mma.m16n8k16's fragments, and what ldmatrix.x4 puts there.

All of it was observed in the simulator (tests/programs/fragments.cu), and is committed as results/sim/fragments.json.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

COLOURS = ["#a6d4f2", "#fbd38a", "#93d5bd", "#ecbcd8"]  # of registers 0 to 3
LANE = 5  # followed through all parts
UNIT = 0.16  # inches, the side of an element
LEFTS = [2.6, 23.6, 43.6]  # of the columns of matrices, in units
TOPS = [-3.6, -25.2]  # of their rows
WIDTH, HEIGHT = 52.2, 42.0


def write(axes, x, y, text, **style):
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": 8, "color": "black", **style})


def draw_fragment(axes, fragment, left, top, elements):
    """A matrix whose elements are one unit wide and high. Those that share a register are one box, with the number of its lane."""
    for lane, places in enumerate(fragment):
        for register in range(len(places) // elements):
            rows, columns = zip(*places[elements * register : elements * (register + 1)])
            x, y = left + min(columns), top - max(rows) - 1
            width, height = max(columns) - min(columns) + 1, max(rows) - min(rows) + 1
            axes.add_patch(Rectangle((x, y), width, height, facecolor=COLOURS[register], edgecolor="white", linewidth=0.8))
            if lane == LANE:
                outline = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.7, "zorder": 4}
                axes.add_patch(Rectangle((x, y), width, height, **outline))
            weight = "bold" if lane == LANE else "normal"
            write(axes, x + width / 2, y + height / 2 - 0.04, lane, fontsize=6.5, weight=weight, zorder=5)


def draw_frame(axes, left, top, columns, row_name, column_name):
    """The names of a matrix's two directions, with their first and last number."""
    for row in (0, 15):
        write(axes, left - 0.25, top - row - 0.5, row, ha="right", fontsize=6.5, color="dimgrey")
    for column in (0, columns - 1):
        write(axes, left + column + 0.5, top + 0.5, column, fontsize=6.5, color="dimgrey")
    write(axes, left - 0.6, top - 8, row_name, ha="right", style="italic", color="dimgrey")
    write(axes, left + columns / 2, top + 0.55, column_name, style="italic", color="dimgrey")


def draw_addresses(axes, addresses, left, top):
    """Which lane points to which row of 8 elements."""
    for lane, ((row, column),) in enumerate(addresses):
        text, x, side = (f"{lane} ▸", left - 0.15, "right") if column == 0 else (f"◂ {lane}", left + 16.15, "left")
        write(axes, x, top - row - 0.52, text, ha=side, fontsize=5.8, color="dimgrey")


def draw_matrix(axes, name, remark, fragment, column, row, elements=2):
    """One part of the picture with its title; its width in elements."""
    left, top = LEFTS[column], TOPS[row]
    columns = 1 + max(c for places in fragment for _, c in places)
    draw_fragment(axes, fragment, left, top, elements)
    seam = {"color": "white", "linewidth": 2.6, "solid_capstyle": "butt", "zorder": 3}  # where 8 × 8 matrices meet
    axes.plot([left, left + columns], [top - 8, top - 8], **seam)
    if columns == 16:
        axes.plot([left + 8, left + 8], [top, top - 16], **seam)
    write(axes, left + columns / 2, top + 2.7, name, weight="bold", fontsize=9.5)
    write(axes, left + columns / 2, top + 1.6, remark, fontsize=7)
    return left, top, columns


def draw_legend(axes):
    left, top = LEFTS[0], TOPS[1]
    for register, colour in enumerate(COLOURS):
        y = top - 1.7 * register - 1
        axes.add_patch(Rectangle((left, y), 2, 1, facecolor=colour))
        write(axes, left + 2.6, y + 0.46, f"register {register}", ha="left")
    axes.add_patch(Rectangle((left, top - 8.6), 2, 1, facecolor="none", edgecolor="black", linewidth=1.7))
    write(axes, left + 1, top - 8.14, LANE, fontsize=6.5, weight="bold")
    write(axes, left + 2.6, top - 8.14, "the lane that holds it;", ha="left")
    write(axes, left + 2.6, top - 9.4, f"lane {LANE} is framed", ha="left")
    write(axes, left + 1, top - 11.2, "5 ▸", fontsize=6.5, color="dimgrey")
    write(axes, left + 2.6, top - 11.2, "the lane that gives ldmatrix", ha="left")
    write(axes, left + 2.6, top - 12.4, "the address of these 16 bytes", ha="left")


def draw(fragments):
    """The figure: ldmatrix above, and the product with B above C and A beside it."""
    figure = plt.figure(figsize=(UNIT * WIDTH, UNIT * HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(-HEIGHT, 0), aspect="equal")
    axes.axis("off")
    for column, (name, remark) in enumerate([("ldmatrix.x4", "a tile in shared memory"), ("ldmatrix.x4.trans", "the same tile")]):
        left, top, _ = draw_matrix(axes, name, remark, fragments[name], column, 0)
        draw_addresses(axes, fragments["addresses"], left, top)
    for name, title, remark, column, row, elements in [
        ("B", "B", "16 bits", 2, 0, 2),
        ("A", "A of mma.m16n8k16", "16 bits", 1, 1, 2),
        ("C", "C", "fp32", 2, 1, 1),
    ]:
        place = draw_matrix(axes, title, remark, fragments[f"mma.m16n8k16 {name}"], column, row, elements)
        draw_frame(axes, *place, *{"A": "mk", "B": "kn", "C": "mn"}[name])
    draw_legend(axes)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "fragments.json").read_text()))


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

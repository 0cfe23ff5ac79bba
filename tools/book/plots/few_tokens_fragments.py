"""Draws which lane holds which weights and tokens in step 08: 16 contiguous bytes in memory, as operands of two mma.m16n8k16.

Where an mma expects its elements was observed in the simulator (tests/programs/fragments.cu), and is committed as
results/sim/fragments.json. Which words become which registers stands in `multiply_slot` of steps/08_few_tokens/fragments.cuh.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

COLOURS = ["#a6d4f2", "#fbd38a", "#93d5bd", "#ecbcd8"]  # of the words of 16 bytes
WORDS = "xyzw"
LANE = 5  # followed through all parts
UNIT = 0.115  # inches, the side of an element
LEFTS = [4.2, 42.2, 63.7]  # of memory, mma 0, mma 1, in units
TOPS = [-5.0, -28.0]  # of weights, tokens
WIDTH, HEIGHT = 80.7, 48.5


def write(axes, x, y, text, **style):
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": 8, "color": "black", **style})


def box(axes, x, y, width, height, lane, word, label=True):
    """Elements of one lane that lie together, the upper left corner at (x, y)."""
    axes.add_patch(Rectangle((x, y - height), width, height, facecolor=COLOURS[word], edgecolor="white", linewidth=0.6))
    if label:
        write(axes, x + width / 2, y - height / 2 - 0.04, lane, fontsize=5.5, weight="bold" if lane == LANE else "normal", zorder=5)


def outline(axes, x, y, width, height):
    axes.add_patch(Rectangle((x, y - height), width, height, facecolor="none", edgecolor="black", linewidth=1.5, zorder=4))


def numbers(axes, left, top, rows, columns, row_name, column_name):
    """The names of a matrix's two directions, with their first and last number."""
    for row in (0, rows - 1):
        write(axes, left - 0.3, top - row - 0.5, row, ha="right", fontsize=6, color="dimgrey")
    for column in (0, columns - 1):
        write(axes, left + column + 0.5, top + 0.7, column, fontsize=6, color="dimgrey")
    write(axes, left - 0.6, top - rows / 2, row_name, ha="right", style="italic", color="dimgrey")
    write(axes, left + columns / 2, top + 0.8, column_name, style="italic", color="dimgrey")


def draw_memory(axes, title, left, top, rows):
    """Rows of 32 k: lane (g, t) has 16 bytes of row g and, of 16 rows, of row g + 8."""
    for row in range(rows):
        for t in range(4):
            lane = row % 8 * 4 + t
            for word in range(4):
                box(axes, left + 8 * t + 2 * word, top - row, 2, 1, lane, word)
            if lane == LANE:
                outline(axes, left + 8 * t, top - row, 8, 1)
    write(axes, left + 16, top + 2.8, title, weight="bold", fontsize=9.5)


def draw_operand(axes, title, fragment, words, left, top):
    """An operand as the mma expects it; register r of a lane holds the word words[r]."""
    for lane, places in enumerate(fragment):
        for register, word in enumerate(words):
            rows, columns = zip(*places[2 * register : 2 * register + 2])
            place = left + min(columns), top - min(rows), max(columns) - min(columns) + 1, max(rows) - min(rows) + 1
            box(axes, *place, lane, word)
            if lane == LANE:
                outline(axes, *place)
    write(axes, left + (1 + max(column for places in fragment for _, column in places)) / 2, top + 2.8, title, weight="bold", fontsize=9.5)


def draw(fragments):
    """The figure: weights above, tokens below; memory on the left, and both mma beside it."""
    figure = plt.figure(figsize=(UNIT * WIDTH, UNIT * HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(-HEIGHT, 0), aspect="equal")
    axes.axis("off")
    for top, rows, title, row_name in [(TOPS[0], 16, "weights in global memory", "row"), (TOPS[1], 8, "tokens in global memory", "token")]:
        draw_memory(axes, title, LEFTS[0], top, rows)
        numbers(axes, LEFTS[0], top, rows, 32, row_name, "k")
    for mma in (0, 1):
        x, y = 2 * mma, 2 * mma + 1
        left = LEFTS[1 + mma]
        draw_operand(axes, f"A of mma {mma}", fragments["mma.m16n8k16 A"], (x, x, y, y), left, TOPS[0])
        numbers(axes, left, TOPS[0], 16, 16, "row", "k of the mma")
        draw_operand(axes, f"B of mma {mma}", fragments["mma.m16n8k16 B"], (x, y), left, TOPS[1])
        numbers(axes, left, TOPS[1], 16, 8, "k of\nthe mma", "token")
    draw_legend(axes)
    return figure


def draw_legend(axes):
    left, top = LEFTS[0], TOPS[1] - 11.0
    for word, name in enumerate(WORDS):
        y = top - 1.9 * word
        axes.add_patch(Rectangle((left, y - 1), 2, 1, facecolor=COLOURS[word]))
        write(axes, left + 2.8, y - 0.55, f"word {name} of a lane's 16 bytes: two elements", ha="left")
    outline(axes, left + 25, top, 2, 1)
    write(axes, left + 26, top - 0.55, LANE, fontsize=5.5, weight="bold")
    write(axes, left + 27.8, top - 0.55, f"lane {LANE}", ha="left")


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "fragments.json").read_text()))


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

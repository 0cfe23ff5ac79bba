"""What the scripts in tools/book/plots/ have in common: a picture of the book is the same file every time it is drawn."""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]

# A page on a phone is about 350 pixels wide: there, text of SMALL points in a picture of WIDTH inches is 7 points high.
WIDTH, SMALL = 4.8, 9.3


def canvas(height):
    """A figure of WIDTH × `height` inches, and axes over all of it, whose unit is an inch; the origin is below on the left."""
    figure = plt.figure(figsize=(WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, height), aspect="equal")
    axes.axis("off")
    return figure, axes


def write(axes, x, y, text, **style):
    """Text in the middle of (x, y)."""
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": SMALL, "color": "black", **style})


def arrow(axes, begin, end, **style):
    """From one point to another one."""
    axes.annotate("", end, begin, arrowprops={"arrowstyle": "-|>", "color": "black", "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0, **style})


def badge(name, value, colour):
    """A figure as wide as its two texts: what the README's badges are. It needs no server, so it is there without a network, too."""
    high, letter, room = 0.28, 0.098, 0.16
    parts = [(name, "#444444", len(name) * letter + room), (value, colour, len(value) * letter + room)]
    wide = sum(part[2] for part in parts)
    figure = plt.figure(figsize=(wide, high))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, wide), ylim=(0, high))
    axes.axis("off")
    left = 0
    for text, background, width in parts:
        axes.axvspan(left, left + width, color=background, linewidth=0)
        write(axes, left + width / 2, high / 2, text, color="white")
        left += width
    return figure


def save(about, draw):
    """The main() of a script: draws, and writes --out. `about` is its docstring; `draw` makes the figure, or returns None: what it would show
    was not measured yet, and there is no picture."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the SVG file to write")
    out = parser.parse_args().out
    plt.rcParams.update({"svg.hashsalt": "flashsteps", "font.family": "DejaVu Sans"})
    figure = draw()
    if figure:
        figure.savefig(out, metadata={"Date": None, "Creator": None})

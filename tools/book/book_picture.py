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


def save(about, draw):
    """The main() of a script: draws, and writes --out. `about` is its docstring; `draw` makes the figure."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the SVG file to write")
    out = parser.parse_args().out
    plt.rcParams.update({"svg.hashsalt": "flashsteps", "font.family": "DejaVu Sans"})
    draw().savefig(out, metadata={"Date": None, "Creator": None})

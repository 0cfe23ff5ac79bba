"""What the scripts in tools/book/plots/ have in common: a picture of the book is the same file every time it is drawn."""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]


def save(about, draw):
    """The main() of a script: draws, and writes --out. `about` is its docstring; `draw` makes the figure."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the SVG file to write")
    out = parser.parse_args().out
    plt.rcParams.update({"svg.hashsalt": "flashsteps", "font.family": "DejaVu Sans"})
    draw().savefig(out, metadata={"Date": None, "Creator": None})

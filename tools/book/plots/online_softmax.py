"""Draws what an online softmax knows after each score of a real row: the running maximum, the factors, and the running sum.

The row and the sums are those of step 03's variant `online`, run on a query of data/minilm_layer (results/sim/03_online_softmax_row.json).
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

SCORE, MAXIMUM, SUM = "#999999", "#d55e00", "#0072b2"


def draw():
    row = json.loads((ROOT / "results" / "sim" / "03_online_softmax_row.json").read_text())
    scores, m, l = (np.array(row[name]) for name in ("scores", "m", "l"))
    keys = np.arange(scores.size)
    moved = np.flatnonzero(np.diff(m) > 0) + 1
    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(8, 6.4), sharex=True, height_ratios=[3, 1.3, 2], layout="constrained")

    top.scatter(keys, scores, s=7, color=SCORE, label="score")
    top.step(keys, m, where="post", color=MAXIMUM, label="m, the largest so far")
    top.set_ylabel("score")
    top.legend(loc="lower right", frameon=False)
    top.set_title(f"A row of {scores.size} scores: head {row['head']}, query {row['query']}", loc="left", fontsize=11)

    middle.stem(moved, np.exp(m[moved - 1] - m[moved]), linefmt=MAXIMUM, markerfmt="o", basefmt=" ")
    middle.set_ylim(0, 1)
    middle.set_ylabel("exp(m − m′)")
    middle.text(0.99, 0.75, f"where m moves, {moved.size} times; elsewhere 1", transform=middle.transAxes, ha="right", color=MAXIMUM)

    bottom.step(keys, l, where="post", color=SUM)
    for key in moved:
        bottom.axvline(key, color=MAXIMUM, alpha=0.25, linewidth=1)
    bottom.set_ylim(0)
    bottom.set_ylabel("l, the sum so far")
    bottom.set_xlabel("key")
    for axes in (top, middle, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    save(__doc__, draw)

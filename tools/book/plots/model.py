"""Draws what the model from counts predicts for the tuned kernels, beside the times of their bursts.

Predictions of tools/measure/model.py; times of the runs in results/DEVICE/.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, SMALL, WIDTH, save
from tools.measure.committed import Results
from tools.measure.model_cells import WITHIN, cells
from tools.measure.profiling.machine import quantity

COLOURS = {"tensor cores": "#0072b2", "shared memory": "#e69f00"}
WAITING, OUTSIDE, GOOD = "#999999", "#cccccc", "#d9f0e3"
ROW, GAP = 1.0, 1.6  # heights


def shown(cell):
    """Whether a Cell is drawn: 4,096 tokens, or a mask without causality."""
    return "4096 tokens" in cell.problem or (", p " in cell.problem and "causal" not in cell.problem)


def label(cell):
    return ", ".join(part for part in cell.problem.split(", ") if part not in ("forward", "backward", "4096 tokens"))


def draw(found):
    """The figure, of Cells."""
    groups = {}
    for cell in found:
        groups.setdefault((cell.step, cell.variant), []).append(cell)
    figure, axes = plt.subplots(figsize=(WIDTH, 9), layout="constrained")
    axes.axvspan(1 - WITHIN, 1 + WITHIN, color=GOOD, zorder=0)
    y, ticks = 0.0, {}
    for (step, variant), group in groups.items():
        tokens = "16k" if step == "07" else "4k"
        axes.text(0.01, y, f"step {step}, {variant}: {tokens} tokens", fontsize=SMALL, weight="bold", va="center")
        y += ROW
        for cell in group:
            predicted, left = cell.prediction, 0.0
            for seconds, colour in [
                (predicted.unit_seconds, COLOURS[predicted.unit]),
                (predicted.loop_seconds, WAITING),
                (predicted.seconds, OUTSIDE),
            ]:
                axes.barh(y, seconds / cell.measured - left, left=left, height=0.72, color=colour, zorder=2)
                left = seconds / cell.measured
            axes.text(1.13, y, quantity(cell.measured, "s"), fontsize=SMALL, va="center")
            ticks[y] = label(cell)
            y += ROW
        y += GAP - ROW
    axes.axvline(1, color="black", linewidth=1.4, zorder=3)
    axes.set(xlim=(0, 1.38), ylim=(y - GAP + ROW / 2, -ROW), xlabel="share of the measured time, which stands on the right")
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 0.9, 1.1], ["0", "¼", "½", "¾", "0.9", "1.1"])
    axes.tick_params(labelsize=SMALL, length=2)
    axes.xaxis.label.set_size(SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    entries = {
        **{f"{unit}, the busiest unit": colour for unit, colour in COLOURS.items()},
        "other units, and waiting for a unit": WAITING,
        "beginning, end, idle SMs, other kernels": OUTSIDE,
        f"within {WITHIN:.0%} of the measured time": GOOD,
    }
    patches = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in entries.values()]
    figure.legend(patches, entries, loc="outside lower center", fontsize=SMALL, frameon=False)
    return figure


def from_committed_numbers():
    return draw([cell for cell in cells(Results(ROOT)) if shown(cell)])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

"""Draws the roofline of an H200 from the ceilings in docs/machine/h200.json, with the kernels of standard attention on it.

The kernels stand where they would if they reached their floor: this is a prediction, nothing here is a time.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save

FP32, FP16 = 4, 2  # bytes of an element


def attention(heads, n, d, element):
    """{kernel: (FLOPs, bytes)} of standard attention, and of one kernel that keeps S and P on the chip."""
    qkvo = heads * n * d * element
    s = heads * n * n * element
    lse = heads * n * 4
    product, exponentials = 2 * d * heads * n * n, 5 * heads * n * n
    return {
        "scores": (product, 2 * qkvo + s),
        "softmax": (exponentials, 2 * s + lse),
        "P·V": (product, 2 * qkvo + s),
        "one kernel": (2 * product + exponentials, 4 * qkvo + lse),
    }


def label(axes, text, x, y, offset, **style):
    """Text beside a point; the offset is in points."""
    axes.annotate(text, (x, y), offset, textcoords="offset points", fontsize=8.5, **style)


def draw(ceilings):
    """The figure. Ceilings in FLOP/s and bytes/s."""
    bandwidth = ceilings["copy_bytes_per_second"]["value"]
    roofs = {
        "fp32, no tensor cores": (ceilings["fp32_flops_per_second"]["value"], "tab:blue"),
        "fp16, mma.sync": (ceilings["mma_sync_flops_per_second"]["value"], "tab:orange"),
    }
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    intensity = np.geomspace(0.25, 4096, 400)
    for name, (peak, colour) in roofs.items():
        axes.plot(intensity, np.minimum(peak, intensity * bandwidth) / 1e12, color=colour, linewidth=2, zorder=1)
        label(axes, f"{name}: {peak / 1e12:.0f} TFLOP/s", 4096, peak / 1e12, (0, 6), color=colour, ha="right")
        ridge = peak / bandwidth
        axes.plot([ridge, ridge], [0.5, peak / 1e12], color=colour, linewidth=0.8, linestyle=":", zorder=0)
        label(axes, f"ridge: {ridge:.0f}", ridge, 0.5, (4, 5), color=colour)
    label(axes, f"copy: {bandwidth / 1e12:.2f} TB/s", 2.5, 2.5 * bandwidth / 1e12, (-8, 8), color="dimgrey", ha="right")

    series = [
        ("12 heads, N = 200, d = 32, fp32", attention(12, 200, 32, FP32), "tab:blue", "o", "white"),
        ("16 heads, N = 4096, d = 64, fp32", attention(16, 4096, 64, FP32), "tab:blue", "o", "tab:blue"),
        ("16 heads, N = 4096, d = 64, fp16", attention(16, 4096, 64, FP16), "tab:orange", "s", "tab:orange"),
    ]
    peaks = {colour: peak for peak, colour in roofs.values()}
    for title, kernels, colour, marker, fill in series:
        x = np.array([flops / moved for flops, moved in kernels.values()])
        y = np.minimum(peaks[colour], x * bandwidth) / 1e12
        axes.plot(x, y, marker, color=colour, markerfacecolor=fill, markersize=7, label=title, zorder=2)
        if fill != "white":
            label(axes, "scores, P·V", x[0], y[0], (6, -13))
            label(axes, "softmax", x[1], y[1], (8, -6))
            label(axes, "one kernel", x[3], y[3], (-6, -15))
    axes.set(xscale="log", yscale="log", xlim=(0.25, 4096), ylim=(0.5, 2000))
    axes.set_xlabel(
        "arithmetic intensity, FLOP per byte of device memory\n(ceilings: measured, docs/machine/h200.json)"
    )
    axes.set_ylabel("TFLOP/s at most")
    axes.set_title(
        "What an H200 allows: standard attention, and one kernel that keeps S and P on the chip", fontsize=10
    )
    axes.legend(loc="upper left", fontsize=8.5, title="predicted, not measured", title_fontsize=8.5, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())["ceilings"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

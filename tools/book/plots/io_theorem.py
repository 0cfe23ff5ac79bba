"""Draws the IO theorem: bytes that attention asks of memory for each pair of a query and a key, by formula (lines) and as counted in the simulator (dots).

The counts are results/sim/io_theorem.json, made by tools/learn/io_counts.py.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save
from tools.learn.io_counts import (
    MEMORIES,
    STANDARD,
    V1,
    V2,
    block_sizes,
    standard_bytes,
    v1_bytes,
    v2_bytes,
)

N, D = 1024, 64
COLOURS = {STANDARD: "tab:red", 48: "tab:cyan", 99: "tab:blue", 227: "tab:purple", V2: "tab:green"}


def dots(axes, points, horizontal, colour_of):
    for point in points:
        per_pair = point["counted"] / point["n"] ** 2
        axes.plot(point[horizontal], per_pair, "o", color=colour_of(point), markersize=5, zorder=3)


def label(axes, text, x, y, colour, offset=(5, 0), **style):
    axes.annotate(text, (x, y), offset, textcoords="offset points", color=colour, fontsize=8.5, va="center", **style)


def by_dim(axes, points):
    """Standard attention, v1 with three memories, v2."""
    dims = np.arange(32, 257, 8)
    curves = {STANDARD: standard_bytes, V2: v2_bytes} | {
        kib: lambda n, d, kib=kib: v1_bytes(n, d, kib) for kib in MEMORIES
    }
    for key, formula in curves.items():
        y = [formula(N, int(d)) / N**2 for d in dims]
        axes.plot(dims, y, color=COLOURS[key], linewidth=1.6)
        label(axes, f"v1, {key} KB" if key in MEMORIES else key, dims[-1], y[-1], COLOURS[key])
    dots(axes, points, "d", lambda p: COLOURS[p["kib"] or p["algorithm"]])
    axes.set(xscale="log", yscale="log", xlim=(29, 520))
    axes.set_xticks([32, 64, 128, 256], ["32", "64", "128", "256"])
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    axes.minorticks_off()
    axes.set_xlabel(f"d (lines: N = {N})")
    axes.set_ylabel("bytes requested, for each query and key; fp16")


def by_memory(axes, points):
    """v1 over the shared memory of its blocks."""
    memories = np.arange(24, 513, 1)
    axes.plot(memories, [v1_bytes(N, D, int(kib)) / N**2 for kib in memories], color=COLOURS[227], linewidth=1.6)
    axes.plot(memories, 30 * D**2 / (memories * 256), color="dimgrey", linewidth=1, linestyle="--")
    for key, y, above in ((STANDARD, standard_bytes(N, D) / N**2, 7), (V2, v2_bytes(N, D) / N**2, -7)):
        axes.axhline(y, color=COLOURS[key], linewidth=1.6)
        label(axes, key, 500, y, COLOURS[key], (0, above), ha="right")
    dots(
        axes,
        [p for p in points if p["algorithm"] == V1 and (p["n"], p["d"]) == (N, D)],
        "kib",
        lambda p: COLOURS[p["kib"]],
    )
    for kib in MEMORIES:
        rows, keys = block_sizes(kib * 256, D)
        label(axes, f"{rows} × {keys}", kib, v1_bytes(N, D, kib) / N**2, COLOURS[kib], (7, 9))
    label(axes, "30 d² / M", 140, 30 * D**2 / (140 * 256), "dimgrey", (-6, -6), ha="right")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks([24, 48, 99, 227, 512], ["24", "48", "99", "227", "512"])
    axes.set_yticks([2, 5, 10, 20, 40], ["2", "5", "10", "20", "40"])
    axes.minorticks_off()
    axes.set_xlabel(f"shared memory of a block, KB (N = {N}, d = {D})")


def draw(points):
    """The figure, from the points of io_theorem.json."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.2, 3.9), layout="constrained")
    by_dim(left, points)
    by_memory(right, points)
    left.set_title("Lines: by formula. Dots: counted.", fontsize=9.5, loc="left")
    right.set_title("v1 by its shared memory; Br × Bc", fontsize=9.5, loc="left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "results" / "sim" / "io_theorem.json").read_text())["points"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

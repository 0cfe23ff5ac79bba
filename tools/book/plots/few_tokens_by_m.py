"""Draws which kernel is fastest for how many tokens: GEMV, skinny and tiled products, cuBLAS, and reading alone, for 1 to 256 tokens.

From the sweep in results/DEVICE/few_tokens_sweep.json, of fp16: its `shapes` are as those of few_tokens_peers.json, one for each m, n and k.
Of each kind the fastest contender counts. Before a sweep is committed, there is no picture.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, SMALL, WIDTH, save
from tools.measure.committed import ResultError, Results

STYLES = {
    "read only": {"color": "black", "linestyle": "--", "linewidth": 1.2},
    "cuBLAS": {"color": "#999999", "marker": "v"},
    "GEMV": {"color": "#009e73", "marker": "^"},
    "skinny": {"color": "#d55e00", "marker": "o", "linewidth": 2.2, "zorder": 3},
    "tiled": {"color": "#0072b2", "marker": "s"},
}
GEMV = ("thread_per_row", "warp_per_row", "wide_loads", "in_flight")


def kind(name):
    """The kind of a contender; None for what is not drawn, the best of cublasLt."""
    if name in STYLES:
        return name
    if name.startswith("cublasLt"):
        return None
    if name.startswith(GEMV):
        return "GEMV"
    return "tiled" if name.startswith("02") else "skinny"


def fastest(shapes):
    """{(n, k): {kind: {m: µs}}}, of fp16."""
    found = {}
    for shape, cell in shapes.items():
        problem = cell["problem"]
        if problem["dtype"] != "fp16" or problem.get("dtype_a", "fp16") != "fp16":
            continue
        kinds = found.setdefault((problem["n"], problem["k"]), {})
        for one in cell["contenders"]:
            if one["verdict"] != "ok" and one["name"] != "read only":  # which computes nothing that could be checked
                raise ResultError(f"few_tokens_sweep.json: the result of {one['name']} is wrong at {shape}")
            if of := kind(one["name"]):
                times = kinds.setdefault(of, {})
                times[problem["m"]] = min(times.get(problem["m"], float("inf")), 1e3 * one["burst_ms"]["median"])
    return found


def draw(shapes, device):
    """The figure: a panel for each size of the weights."""
    found = fastest(shapes)
    rows = (len(found) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(WIDTH, 0.9 + 2.2 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(found) :]:
        axis.axis("off")
    for axis, ((n, k), kinds) in zip(axes.flat, sorted(found.items(), reverse=True), strict=False):
        for name, style in STYLES.items():
            if name in kinds:
                axis.plot(*zip(*sorted(kinds[name].items()), strict=True), label=name, markersize=4, **style)
        axis.set_title(f"{n} × {k}", fontsize=SMALL)
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        axis.set_xlabel("tokens", fontsize=SMALL)
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=SMALL)
    figure.supylabel(f"µs a launch, {device.upper()}, fp16", fontsize=SMALL)
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)
    return figure


def from_committed_numbers():
    run = Results(ROOT)
    return draw(run.read("few_tokens_sweep.json")["shapes"], run.device) if run.has("few_tokens_sweep.json") else None


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

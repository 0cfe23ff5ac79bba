"""Draws how long block-sparse attention takes, step 07 beside dense attention and FlexAttention, against the share of live blocks.

From the run in results/DEVICE/sparse_peers.json. Before one is committed, the panels say so.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save
from tools.measure.committed import Results

OURS, FLEX = "ours", "FlexAttention"
# markers and kinds of lines tell everything apart, so that nothing depends on colours
KINDS = {"random": "o", "all": "o", "band": "s", "uneven": "^", "mixed": "D", "full row": "x", "full column": "+"}
DENSE = {
    "dense, ours": {"color": "#d55e00", "linestyle": "-", "label": "dense: steps 05 and 06"},
    "FlashAttention-2": {"color": "#0072b2", "linestyle": "--", "label": "dense: FlashAttention-2"},
    "cuDNN": {"color": "#009e73", "linestyle": ":", "label": "dense: cuDNN"},
}
PANELS = [(backward, dim, causal) for backward in (False, True) for dim in (64, 128) for causal in (False, True)]


def of_panel(cells, backward, dim, causal):
    """({contender: {kind: [(p, ms)]}}, {dense kernel: ms}): medians; of a dense kernel the median of all cells."""
    points, dense = {}, {}
    for cell in cells.values():
        problem = cell["problem"]
        if (problem["backward"], problem["dim"], problem["causal"]) != (backward, dim, causal):
            continue
        for contender in cell["contenders"]:
            ms, kind = contender["burst_ms"]["median"], contender.get("mask")
            if kind:
                points.setdefault(contender["name"].split(",")[0], {}).setdefault(kind, []).append((cell["masks"][kind]["p"], ms))
            else:
                dense.setdefault(contender["name"], []).append(ms)
    return points, {name: sorted(times)[len(times) // 2] for name, times in dense.items()}


def break_evens(claims, backward, dim, causal):
    """{dense kernel: share of live blocks}."""
    problem = f"{'backward' if backward else 'forward'}, d {dim}{', causal' if causal else ''}"
    found = {}
    for claim in claims:
        for name in DENSE:
            if f"break-even share of live blocks beside {name}," in claim["what"] and problem in claim["cells"]:
                found[name] = claim["cells"][problem]
    return found


def draw_panel(axes, points, dense, shares):
    for name, style in DENSE.items():
        if name not in dense:
            continue
        axes.axhline(dense[name], linewidth=1.4, **style)
        share = shares.get(name)
        if share is not None and 0 < share < 1:
            axes.plot([share, share], [0, dense[name]], color=style["color"], linestyle=style["linestyle"], linewidth=0.9)
            axes.plot([share], [dense[name]], marker="*", markersize=9, color="black", linestyle="none", label="break-even")
            axes.annotate(f"{share:.2f}", (share, dense[name]), xytext=(-3, 5), textcoords="offset points", ha="right", fontsize=7.5)
    for name, style in ((FLEX, {"color": "#777777", "linestyle": "-."}), (OURS, {"color": "black", "linestyle": "-"})):
        kinds = points.get(name, {})
        line = sorted(kinds.get("random", []) + kinds.get("all", []))
        if line:
            axes.plot(*zip(*line, strict=True), linewidth=1.6, label=f"{name}: random", marker="o", markersize=4, **style)
    for kind, marker in KINDS.items():
        if kind not in ("random", "all") and (found := points.get(OURS, {}).get(kind)):
            axes.plot(*zip(*sorted(found), strict=True), marker=marker, markersize=5, color="black", fillstyle="none", linestyle="none", label=f"ours: {kind}")
    if not points:
        axes.text(0.5, 0.45, "no run is committed yet", transform=axes.transAxes, ha="center", fontsize=9, color="dimgrey")
    axes.set_xlim(0, 1.05)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def draw(report, device="h200"):
    """The figure. `report` as benchmarks/sparse_peers.py writes it."""
    figure, axes = plt.subplots(2, 4, figsize=(11, 6.4), layout="constrained")
    for axis, panel in zip(axes.flat, PANELS, strict=True):
        draw_panel(axis, *of_panel(report["cells"], *panel), break_evens(report["claims"], *panel))
        backward, dim, causal = panel
        axis.set_title(f"{'backward' if backward else 'forward'}, d {dim}{', causal' if causal else ''}", fontsize=9.5)
        if backward:
            axis.set_xlabel("share p of tiles that are live", fontsize=8.5)
    for row in axes:
        row[0].set_ylabel("ms, bursts, plan included", fontsize=8.5)
    labelled = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    if labelled:
        figure.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=min(6, len(labelled)), fontsize=8.5, frameon=False)
    figure.suptitle(f"Block-sparse attention on an {device.upper()}: fp16, one sequence of 16k tokens, blocks of 128 × 128, heads × dim = 2048", fontsize=10)
    return figure


def from_committed_numbers():
    run, file = Results(ROOT), "sparse_peers.json"
    report = run.read(file) if run.has(file) else {"cells": {}, "claims": []}
    return draw(report, run.device)


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

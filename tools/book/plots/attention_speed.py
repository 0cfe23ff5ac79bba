"""Draws how fast attention is, step 05 beside other people's kernels and under the roof of mma.sync, against the sequence length.

From the run in results/DEVICE/attention_peers.json. Before one is committed there is only the roof, as step 00 measured it.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, SMALL, WIDTH, save
from tools.measure.committed import Results

ROOF = "roof of mma.sync"
STYLES = {
    "cuDNN": {"color": "#009e73", "marker": "s"},
    "FlashAttention-2": {"color": "#0072b2", "marker": "^"},
    "memory-efficient": {"color": "#999999", "marker": "v"},
}
OURS = {"color": "#d55e00", "marker": "o", "linewidth": 2.2, "zorder": 3}
PANELS = [(dim, causal) for dim in (64, 128) for causal in (False, True)]
LENGTHS = (512, 2048, 4096, 16384)


def of_panel(cells, dim, causal):
    """{contender: {sequence length: TFLOP/s as median, min, max}}, fp16."""
    found = {}
    for cell in cells.values():
        problem = cell["problem"]
        if (problem["dim"], problem["causal"], problem["dtype"]) == (dim, causal, "fp16"):
            for contender in cell["contenders"]:
                found.setdefault(contender["name"], {})[problem["seq"]] = contender["tflops"]
    return found


def draw_panel(axes, found, variants, roof):
    """`roof` in TFLOP/s, where the run has none of its own."""
    heights = found.get(ROOF) or {seq: {"median": roof} for seq in LENGTHS}
    axes.plot(sorted(heights), [heights[seq]["median"] for seq in sorted(heights)], color="black", linestyle="--", label=ROOF)
    styles = {variants[0]: OURS} if variants else {}
    styles |= {name: {**OURS, "linestyle": ":", "linewidth": 1.2} for name in variants[1:]}
    for name, style in (styles | STYLES).items():
        if name in found:
            lengths = sorted(found[name])
            rates = [found[name][seq] for seq in lengths]
            medians = [rate["median"] for rate in rates]
            below, above = ([abs(rate[end] - rate["median"]) for rate in rates] for end in ("min", "max"))
            label = f"ours: {name}" if name in variants else name
            axes.errorbar(lengths, medians, [below, above], markersize=4.5, capsize=2, label=label, **style)
    if not found:
        axes.text(0.5, 0.45, "no run is committed yet", transform=axes.transAxes, ha="center", fontsize=SMALL, color="dimgrey")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(heights), [f"{seq // 1024}k" if seq >= 1024 else str(seq) for seq in sorted(heights)])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)


def draw(report, roof, what="Attention forward", device="h200"):
    """The figure. `report` as benchmarks/attention_peers.py or backward_peers.py writes it."""
    figure, axes = plt.subplots(2, 2, figsize=(WIDTH, 6), sharex=True, sharey=True, layout="constrained")
    for axis, (dim, causal) in zip(axes.flat, PANELS, strict=True):
        draw_panel(axis, of_panel(report["cells"], dim, causal), report["variants"], roof)
        axis.set_title(f"d {dim}{', causal' if causal else ''}", fontsize=SMALL)
    axes[0, 0].set_ylim(bottom=0)  # of all panels, now that the highest point is known
    for axis in axes[:, 0]:
        axis.set_ylabel("TFLOP/s, bursts", fontsize=SMALL)
    for axis in axes[1]:
        axis.set_xlabel("tokens in a sequence", fontsize=SMALL)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=SMALL, frameon=False)
    figure.suptitle(f"{what} on an {device.upper()}: fp16,\n16k tokens in all, heads × dim = 2048", fontsize=SMALL)
    return figure


def from_committed_numbers():
    run, file = Results(ROOT), "attention_peers.json"
    report = run.read(file) if run.has(file) else {"cells": {}, "variants": []}
    return draw(report, run.machine()["ceilings"]["mma_sync_flops_per_second"]["value"] / 1e12, device=run.device)


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

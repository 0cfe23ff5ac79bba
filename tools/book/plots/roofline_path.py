"""Draws a measured roofline: where the variants of steps 01, 04 and 05 (attention) and of step 02 (products) stand, in the order of the book.

Speed: TFLOP/s of the median time in results/h200/bench.json. Attention has 16 heads of 4096 tokens at d = 64, the products are 4096 × 4096 × 4096.
Bytes: those read from and written to device memory, by Nsight Compute (results/h200/ncu_*.csv), of all kernels of a variant, at the same shape.
Intensity: the FLOPs that bench.json divides by the time, over these bytes. Step 05 was not profiled at this shape without dropout; the bytes of its two
points are those of the profile with dropout, which moves the same arrays. Roofs: the measured ceilings in docs/machine/h200.json;
results/h200/ceilings.json is a later run that agrees with them.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, SMALL, WIDTH, save
from tools.measure.profiling import ncu

SHAPE = "4k"
STYLES = {  # markers tell the steps apart without colours
    "01_naive_mha": {"color": "#555555", "marker": "o"},
    "02_tiled_gemm": {"color": "#555555", "marker": "o"},
    "04_flash_v1": {"color": "#d55e00", "marker": "s"},
    "05_flash_v2": {"color": "#0072b2", "marker": "^"},
}
PANELS = {"attention, 16 heads, 4096 tokens, d = 64": ["01_naive_mha", "04_flash_v1", "05_flash_v2"], "product, m = n = k = 4096": ["02_tiled_gemm"]}
NAMES = {"01_naive_mha": "step 01, fp32", "02_tiled_gemm": "step 02, fp16", "04_flash_v1": "step 04, fp16", "05_flash_v2": "step 05, fp16"}
PROFILED_WITH_DROPOUT = ["scalar", "tuned", "any_dim"]  # of step 05, in the order of its profile
ASIDE = ["scores_bshs", "tuned_99k", "edges", "any_k", "any_dim"]  # not on the way from a slower variant to a faster one
TEXTS = {("02_tiled_gemm", "wide_epilogue"): "padding to\nwide_epilogue"}  # for several points
LABELS = {  # offsets in points, from the point to the text
    ("01_naive_mha", "row_per_thread"): (-4, -14, "left"),
    ("01_naive_mha", "element_uncoalesced"): (7, -3, "left"),
    ("01_naive_mha", "element_coalesced"): (8, -9, "left"),
    ("01_naive_mha", "block_softmax"): (8, -3, "left"),
    ("04_flash_v1", "scalar_48k"): (-8, -7, "right"),
    ("04_flash_v1", "register_softmax"): (-8, 0, "right"),
    ("04_flash_v1", "tensor_cores"): (-8, 0, "right"),
    ("05_flash_v2", "scalar"): (3, -15, "center"),
    ("05_flash_v2", "tuned"): (8, -4, "left"),
    ("02_tiled_gemm", "element_per_thread"): (8, -4, "left"),
    ("02_tiled_gemm", "shared_tile"): (8, -7, "left"),
    ("02_tiled_gemm", "register_tile"): (8, -7, "left"),
    ("02_tiled_gemm", "tensor_cores"): (8, -12, "left"),
    ("02_tiled_gemm", "wide_epilogue"): (8, -19, "left"),
    ("02_tiled_gemm", "tuned"): (8, -3, "left"),
}


@dataclass(frozen=True)
class Point:
    """A variant as it was measured."""

    variant: str
    intensity: float  # FLOP per byte of device memory
    tflops: float


def moved(rows):
    """Bytes of device memory, read and written, of these launches."""
    return sum(ncu.number(row[f"dram__bytes_{way}.sum"]) for row in rows for way in ("read", "write"))


def bytes_by_variant(profile, report, variants):
    """{variant: bytes}: the launches stand in the order of the variants, those of a variant in the order of its kernels."""
    found, rows = {}, iter(profile)
    for result in (result for result in report["results"] if result["variant"] in variants):
        own = [next(rows) for _ in result["kernels"]]
        assert [ncu.base_name(row["Kernel Name"]) for row in own] == [kernel["kernel"] for kernel in result["kernels"]]
        found[result["variant"]] = moved(own)
    assert next(rows, None) is None
    return found


def points(step, report, profiles):
    """The step's points, in its own order."""
    by_name = {result["variant"]: result for result in report["results"]}
    if step == "05_flash_v2":
        rows = profiles["4k dropout"]
        found = {variant: moved([row]) for variant, row in zip(PROFILED_WITH_DROPOUT, rows, strict=True)}
        for variant, row in zip(PROFILED_WITH_DROPOUT, rows, strict=True):
            assert ncu.base_name(row["Kernel Name"]) == by_name[variant]["kernels"][0]["kernel"]
    else:
        found = bytes_by_variant(profiles[SHAPE], report, by_name)
    made = []
    for variant, count in found.items():
        result = by_name[variant]
        flops = result["tflops"] * 1e12 * result["times_ms"]["median"] * 1e-3
        made.append(Point(variant, flops / count, result["tflops"]))
    return [point for point in made if point.variant not in ASIDE]


def committed():
    """{step: its points}."""
    reports = {(report["step"], report["shape"]): report for report in json.loads((ROOT / "results" / "h200" / "bench.json").read_text())}
    profile = lambda step: ncu.measured(ROOT / "results" / "h200" / f"ncu_{step}.csv")
    return {step: points(step, reports[step, SHAPE], profile(step)) for steps in PANELS.values() for step in steps}


def draw_roofs(axes, ceilings):
    bandwidth = ceilings["copy_bytes_per_second"]["value"]
    x = np.geomspace(0.4, 10000, 400)
    right = {"xytext": (0, 4), "textcoords": "offset points", "ha": "right", "fontsize": SMALL}
    for key, name, line, end in [("mma_sync_flops_per_second", "mma.sync", "-", 10000), ("fma_flops_per_second", "fp32", "--", 300)]:
        peak = ceilings[key]["value"]
        axes.plot(x, np.minimum(peak, x * bandwidth) / 1e12, color="black", linewidth=1.4, linestyle=line, zorder=1)
        axes.annotate(f"{name}: {peak / 1e12:.0f}", (end, peak / 1e12), **right)
    axes.annotate(f"{bandwidth / 1e12:.2f} TB/s", (5, 5 * bandwidth / 1e12), **right)


def draw_steps(axes, found):
    for step, path in found.items():
        style = STYLES[step]
        x, y = [point.intensity for point in path], [point.tflops for point in path]
        axes.plot(x, y, markersize=6, linewidth=1, linestyle=":", markeredgecolor="white", label=NAMES[step], zorder=3, **style)
        for point in path:
            if (step, point.variant) in LABELS:
                right, up, side = LABELS[step, point.variant]
                text, place = TEXTS.get((step, point.variant), point.variant), (point.intensity, point.tflops)
                axes.annotate(text, place, (right, up), textcoords="offset points", ha=side, fontsize=SMALL, color=style["color"])


def draw(found, ceilings):
    figure, all_axes = plt.subplots(2, 1, figsize=(WIDTH, 7.2), sharex=True, sharey=True, layout="constrained")
    for axes, (title, steps) in zip(all_axes, PANELS.items(), strict=True):
        draw_roofs(axes, ceilings)
        draw_steps(axes, {step: found[step] for step in steps})
        axes.set(xscale="log", yscale="log", xlim=(0.4, 11000), ylim=(0.2, 2000))
        axes.set_title(title, fontsize=SMALL, weight="bold", loc="left")
        axes.set_ylabel("TFLOP/s, measured", fontsize=SMALL)
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
        axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
        axes.minorticks_off()
        axes.tick_params(labelsize=SMALL)
        axes.legend(loc="upper left", fontsize=SMALL, frameon=False, handlelength=1.4, borderaxespad=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[-1].set_xlabel("FLOP per byte of device memory, measured", fontsize=SMALL)
    return figure


def from_committed_numbers():
    return draw(committed(), json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())["ceilings"])


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

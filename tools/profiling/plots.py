"""Pictures of a profile: the roofline where there are times, the lines of the source where there are counts."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from profiling.launch import LANES, SECTOR

ROOFS = {
    "fp32_flops_per_second": ("fp32, no tensor cores", "tab:blue"),
    "mma_sync_flops_per_second": ("mma.sync", "tab:orange"),
}


def points(groups):
    """[(variant, FLOP per byte of device memory, FLOP/s)]: all kernels of a variant together. Bytes as measured. Variants whose
    operations or times are not known are left out."""
    found = []
    for variant, launches in groups.items():
        moved = sum(launch.sum("dram__bytes_read.sum", "dram__bytes_write.sum") or 0 for launch in launches)
        if moved and all(launch.cost and launch.seconds for launch in launches):
            flops = sum(launch.cost["flops"] for launch in launches)
            found.append((variant, flops / moved, flops / sum(launch.seconds for launch in launches)))
    return found


def draw_roofline(groups, machine, title):
    """The roofline of the measured ceilings, with the variants on it as a path, in the step's order."""
    bandwidth = machine["ceilings"]["copy_bytes_per_second"]["value"]
    path = points(groups)
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    right = max([1024, *(4 * x for _, x, _ in path)])
    intensity = np.geomspace(0.25, right, 400)
    for name, (label, colour) in ROOFS.items():
        peak = machine["ceilings"][name]["value"]
        axes.plot(intensity, np.minimum(peak, intensity * bandwidth), color=colour, linewidth=2)
        axes.annotate(f"{label}: {peak / 1e12:.0f} TFLOP/s", (right, peak), (0, 5), textcoords="offset points", ha="right", color=colour)
    axes.plot([x for _, x, _ in path], [y for _, _, y in path], color="tab:red", linewidth=1)
    for number, (variant, x, y) in enumerate(path, 1):
        axes.plot(x, y, "o", color="tab:red", markersize=5, label=f"{number}  {variant}")
        axes.annotate(str(number), (x, y), (6 - 11 * (number % 2), 5), textcoords="offset points", fontsize=9)
    axes.legend(loc="upper left", fontsize=8.5, frameon=False, handlelength=0, markerscale=0)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of device memory, as measured", ylabel="FLOP/s", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def by_line(launches):
    """[(label, sectors each, ideal), …] and [(label, wavefronts each, ideal), …]: of each line of the source, per request. Kernels that
    several variants share appear once."""
    sectors, wavefronts = {}, {}
    for launch in launches:
        for line in launch.lines:
            label = f"{line['where'].split('/')[-1]} {line['op']}\n{launch.kernel}"
            if line["space"] == "global":
                sectors[label] = (line["sectors"] / line["requests"], line["bytes"] * LANES / SECTOR)
            if line["wavefronts"]:
                wavefronts[label] = (line["wavefronts"] / line["requests"], line["wavefronts_ideal"] / line["requests"])
    return [[(label, *pair) for label, pair in found.items()] for found in (sectors, wavefronts)]


def draw_lines(launches, title):
    """Bars of what a request of each line needs, and a mark where it would be ideal: sectors of device memory, wavefronts of shared memory.
    (The counts say how many passes a line needs, not which banks it wants: the report holds nothing about single banks.)"""
    names = ["sectors per request", "shared wavefronts per request"]
    panels = [(name, rows) for name, rows in zip(names, by_line(launches)) if rows]
    heights = [len(rows) for _, rows in panels] or [1]
    figure, all_axes = plt.subplots(
        len(heights), 1, figsize=(8, 1.5 + 0.38 * sum(heights)), layout="constrained", height_ratios=heights, squeeze=False
    )
    for axes, (name, rows) in zip(all_axes[:, 0], panels):
        y = np.arange(len(rows))
        axes.barh(y, [value for _, value, _ in rows], color=["tab:red" if value > 1.01 * ideal else "tab:blue" for _, value, ideal in rows])
        axes.plot([ideal for _, _, ideal in rows], y, "k|", markersize=12, label="ideal")
        axes.set_yticks(y, [label for label, _, _ in rows], fontsize=6.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)  # the first line on top
        axes.set_xlabel(name)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    return figure


def draw(launches, groups, machine, title):
    """The roofline if the source knows times, the lines of the source otherwise."""
    return draw_roofline(groups, machine, title) if points(groups) else draw_lines(launches, title)

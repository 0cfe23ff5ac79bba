"""Pictures of a profile: the roofline where there are times, the lines of the source where there are counts."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch

from tools.measure.profiling import banks
from tools.measure.profiling.launch import LANES, SECTOR

ROOFS = {
    "fp32_flops_per_second": ("fp32, no tensor cores", "tab:blue"),
    "mma_sync_flops_per_second": ("mma.sync", "tab:orange"),
}
# How many words of a bank are wanted, and the colour of that: from one on, each colour is twice as many.
WORDS = {
    "none": "#f1f1f1", "1: no conflict": "#d3e5f3", "2": "#fbd9a5", "3–4": "#f2a65a", "5–8": "#d55e00", "9–16": "#9a3b00", "17–32": "#541d00",
}  # fmt: skip


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
            if line["space"] == "global" and line["requests"]:  # there are none if all lanes of a copy want zeros
                sectors[label] = (line["sectors"] / line["requests"], line["bytes"] * LANES / SECTOR)
            if line["wavefronts"]:
                wavefronts[label] = (line["wavefronts"] / line["instructions"], line["wavefronts_ideal"] / line["instructions"])
    return [[(label, *pair) for label, pair in found.items()] for found in (sectors, wavefronts)]


def draw_bars(figure, panels):
    """Bars of what a request of each line needs, and a mark where it would be ideal: sectors of device memory, wavefronts of shared memory."""
    heights = [len(rows) for _, rows in panels] or [1]
    all_axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)
    for axes, (name, rows) in zip(all_axes[:, 0], panels):
        y = np.arange(len(rows))
        axes.barh(y, [value for _, value, _ in rows], color=["tab:red" if value > 1.01 * ideal else "tab:blue" for _, value, ideal in rows])
        axes.plot([ideal for _, _, ideal in rows], y, "k|", markersize=12, label="ideal")
        axes.set_yticks(y, [label for label, _, _ in rows], fontsize=6.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)  # the first line on top
        axes.set_xlabel(name)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)


def draw_banks(figure, panels):
    """For each kernel, a row of 32 banks for each line: how many different words a group of lanes wants of a bank, at the most."""
    names = [(access.where, access.op, access.member) for _, accesses in panels for access in accesses]
    widths = [max(map(len, column)) for column in zip(*names)]
    colours, norm = ListedColormap(list(WORDS.values())), BoundaryNorm([0, 1, 2, 3, 5, 9, 17, banks.BANKS + 1], len(WORDS))
    heights = [len(accesses) for _, accesses in panels]
    all_axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False, sharex=True)[:, 0]
    for axes, ((kernel, accesses), variants) in zip(all_axes, panels.items()):
        axes.pcolormesh([access.words for access in accesses], cmap=colours, norm=norm, edgecolors="white", linewidth=1)
        for y, access in enumerate(accesses):
            for bank, words in enumerate(access.words):
                if words > 1:
                    axes.text(bank + 0.5, y + 0.53, words, ha="center", va="center", fontsize=6.5, color="white" if words > 4 else "black")
            style = {"color": WORDS["5–8"], "weight": "bold"} if access.wavefronts > access.ideal else {}
            axes.text(banks.BANKS + 0.6, y + 0.5, f"{access.wavefronts:.3g} / {access.ideal:.3g}", va="center", fontsize=7.5, **style)
        labels = ["  ".join(map(str.ljust, (a.where, a.op, a.member), widths)) for a in accesses]
        axes.set_yticks(np.arange(len(accesses)) + 0.5, labels, fontsize=7, family="monospace")
        axes.set_ylim(len(accesses), 0)
        axes.set_title(f"{kernel} ({', '.join(dict.fromkeys(variants))})", fontsize=8.5, loc="left")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    all_axes[0].text(banks.BANKS + 0.6, -0.2, "wavefronts\na request:\nneeded / ideal", fontsize=7.5, va="bottom")
    all_axes[-1].set_xticks(np.arange(0, banks.BANKS, 4) + 0.5, range(0, banks.BANKS, 4), fontsize=7.5)
    all_axes[-1].set_xlabel("bank of shared memory")
    handles = [Patch(color=colour, label=words) for words, colour in WORDS.items()]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(WORDS), frameon=False, fontsize=8, title_fontsize=8,
        title="different words that one group of lanes wants of a bank, at the most (warp 0 of block 0)",
    )  # fmt: skip


def draw_lines(launches, title):
    """What each line of the source needs; and, of traced launches with shared memory, of which banks."""
    names = ["sectors per request", "shared wavefronts per request"]
    bars, maps = [(name, rows) for name, rows in zip(names, by_line(launches)) if rows], banks.panels(launches)
    heights = [1.5 + 0.38 * sum(len(rows) for _, rows in bars)]
    if maps:
        heights.append(1.3 + sum(0.35 + 0.22 * len(accesses) for _, accesses in maps))
    figure = plt.figure(figsize=(8, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_bars(parts[0], bars)
    if maps:
        draw_banks(parts[1], maps)
    figure.suptitle(title, fontsize=10)
    return figure


def draw(launches, groups, machine, title):
    """The roofline if the source knows times, the lines of the source otherwise."""
    return draw_roofline(groups, machine, title) if points(groups) else draw_lines(launches, title)

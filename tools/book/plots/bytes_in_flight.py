"""Draws how fast step 08 reads with 8 to 64 KB in flight on an SM, under what Little's law allows.

From the run in results/DEVICE/few_tokens_peers.json. Before one with these variants is committed, there is no picture.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, SMALL, WIDTH, save
from tools.measure.committed import Results
from tools.measure.shapes import OF_STEP

KILOBYTES = OF_STEP["08_few_tokens"]["IN_FLIGHT"]  # {variant: KB on an SM, at most}
STYLES = [{"color": "#d55e00", "marker": "o"}, {"color": "#0072b2", "marker": "s"}, {"color": "#009e73", "marker": "^"}]


def measured(shapes):
    """{shape: [TB/s of each variant]}, of the shapes at which all four ran."""
    found = {}
    for shape, cell in shapes.items():
        rates = {one["name"]: one["bytes"] / one["burst_ms"]["median"] * 1e-9 for one in cell["contenders"]}
        if KILOBYTES.keys() <= rates.keys():
            found[shape] = [rates[variant] for variant in KILOBYTES]
    return found


def bound(machine, kilobytes):
    """TB/s at most: what is in flight arrives once in a latency, and the memory has its rate."""
    latency = machine["latency_cycles"]["hbm"] / (machine["sm_clock_mhz"] * 1e6)
    return np.minimum(machine["multiprocessors"] * 1024 * kilobytes / latency, machine["ceilings"]["read_bytes_per_second"]["value"]) / 1e12


def draw(shapes, machine, device):
    """The figure; None where no shape has the variants."""
    found = measured(shapes)
    if not found:
        return None
    figure, axes = plt.subplots(figsize=(WIDTH, 3.7), layout="constrained")
    kilobytes = np.geomspace(4, 100, 200)
    axes.plot(kilobytes, bound(machine, kilobytes), color="black", linestyle="--", label="bytes in flight / latency, up to the memory's rate")
    for (shape, rates), style in zip(found.items(), STYLES, strict=False):
        axes.plot(KILOBYTES.values(), rates, label=shape, linewidth=1.8, **style)
    axes.set_xscale("log", base=2)
    axes.set_xticks([*KILOBYTES.values()], [f"{held} KB" for held in KILOBYTES.values()])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    axes.set_xlabel("in flight on an SM, at most", fontsize=SMALL)
    axes.set_ylabel(f"TB/s of weights, {device.upper()}", fontsize=SMALL)
    figure.legend(loc="outside lower center", fontsize=SMALL, frameon=False)
    return figure


def from_committed_numbers():
    run = Results(ROOT)
    shapes = run.read("few_tokens_peers.json")["shapes"]
    return draw(shapes, run.machine(), run.device)


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

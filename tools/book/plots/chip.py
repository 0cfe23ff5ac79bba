"""Draws the chip: which memories an H200 has, how far each one is, and how many bytes each one delivers; below them, what computes.

Sizes, latencies, bandwidths and arithmetic are those measured on one H200 (docs/machine/h200.json). The pipes between the memories are as wide as the
bytes that one SM gets through them in a cycle when all SMs read. mma.sync lowers the clock, so what a tensor core does in a cycle is counted
in cycles and not divided by the highest clock.
"""

import json
import sys
from pathlib import Path

from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, WIDTH, arrow, canvas, save, write
from tools.measure.profiling.bounds import FLOPS_OF_MMA, SCHEDULERS
from tools.measure.profiling.machine import MMA_CYCLES

MEMORY, ON_SM, COMPUTES, PIPE = "#e8e8e8", "#cfe5f4", "#fbdfcc", "#0072b2"
L1_KIB = 256  # of an SM, shared memory included: NVIDIA, Hopper Tuning Guide
HEIGHT, LEFT, RIGHT = 6.1, 0.1, WIDTH - 0.1
SCALE = 1.7 / 128  # inches of a pipe's width for each byte of a cycle
MIDDLE = 1.15  # of the pipes


def per_cycle(rate, h200):
    """What one SM has of the whole GPU's rate per second, per cycle."""
    return rate / (h200["multiprocessors"] * h200["sm_clock_mhz"] * 1e6)


def tensor_flops_per_cycle():
    """What the tensor cores of one SM do in a cycle, one at each scheduler."""
    return SCHEDULERS * FLOPS_OF_MMA / MMA_CYCLES


def draw_box(axes, y, height, name, lines, colour, left=LEFT, right=RIGHT, **style):
    axes.add_patch(Rectangle((left, y), right - left, height, facecolor=colour, edgecolor="black", linewidth=1, **style))
    for i, line in enumerate([name, *lines]):
        weight = "bold" if i == 0 else "normal"
        write(axes, (left + right) / 2, y + height * (1 - (i + 0.5) / (len(lines) + 1)), line, weight=weight)


def draw_pipe(axes, top, bottom, bytes_per_cycle, lines):
    """An arrow from a memory down to the next one."""
    wide = bytes_per_cycle * SCALE
    axes.add_patch(Rectangle((MIDDLE - wide / 2, bottom), wide, top - bottom, facecolor=PIPE, linewidth=0))
    for i, line in enumerate([*lines, f"{bytes_per_cycle:.0f} bytes per cycle for each SM"]):
        write(axes, 2.12, (top + bottom) / 2 + 0.09 - 0.18 * i, line, ha="left")


def draw(h200):
    figure, axes = canvas(HEIGHT)
    clock, cycles, read = h200["sm_clock_mhz"] * 1e6, h200["latency_cycles"], h200["read_bytes_per_second"]
    ceilings = {name: entry["value"] for name, entry in h200["ceilings"].items()}

    def far(level):
        return f"{cycles[level]:.0f} cycles, {cycles[level] / clock * 1e9:.0f} ns"

    draw_box(axes, 5.5, 0.5, f"device memory, {h200['memory_bytes'] / 1e9:.0f} GB", [f"a load takes {far('hbm')}"], MEMORY)
    rate = ceilings["read_bytes_per_second"]
    draw_pipe(axes, 5.5, 5.05, per_cycle(rate, h200), [f"{rate / 1e12:.2f} TB/s read"])
    draw_box(axes, 4.55, 0.5, f"L2 cache, {h200['l2_bytes'] // 2**20} MiB", [f"a load takes {far('l2')}"], MEMORY)
    draw_pipe(axes, 4.55, 4.1, per_cycle(read["l2"], h200), [f"{read['l2'] / 1e12:.1f} TB/s read"])

    for i in (2, 1, 0):  # the SM, in front of others
        inside = {"facecolor": "white", "edgecolor": "black", "linewidth": 1}
        axes.add_patch(Rectangle((LEFT + 0.06 * i, 0.5 - 0.06 * i), RIGHT - LEFT - 0.12, 3.6, **inside))
    left, right = LEFT + 0.12, RIGHT - 0.24
    write(axes, right, 3.97, f"one of {h200['multiprocessors']} SMs", weight="bold", ha="right")
    shared = h200["shared_bytes_per_multiprocessor"] // 1024
    lines = [f"shared memory: up to {shared} KiB, {far('shared')}", f"L1: the rest, {far('l1')}"]
    draw_box(axes, 3.08, 0.75, f"shared memory and L1 cache, {L1_KIB} KiB", lines, ON_SM, left, right)
    lines = [f"{read['shared'] / 1e12:.1f} TB/s read (L1: {read['l1'] / 1e12:.1f})"]
    draw_pipe(axes, 3.08, 2.63, per_cycle(read["shared"], h200), lines)
    registers = 4 * h200["registers_per_multiprocessor"] // 1024
    draw_box(axes, 2.13, 0.5, f"registers, {registers} KiB", ["operands of the next instruction"], ON_SM, left, right)
    centre = (left + right) / 2
    for begin, end, key, name, what, flops in [
        (left, centre - 0.06, "mma_sync_flops_per_second", "tensor cores", "fp16 mma.sync", tensor_flops_per_cycle()),
        (centre + 0.06, right, "fma_flops_per_second", "fp32 units", "multiply-adds", per_cycle(ceilings["fma_flops_per_second"], h200)),
    ]:
        arrow(axes, ((begin + end) / 2, 2.13), ((begin + end) / 2, 1.8), mutation_scale=14, linewidth=2)
        rate = ceilings[key]
        lines = [what, f"{rate / 1e12:.{0 if rate > 1e14 else 1}f} TFLOP/s in all", f"{flops:.0f} FLOP per cycle", "for each SM"]
        draw_box(axes, 0.68, 1.12, name, lines, COMPUTES, begin, end)
    write(axes, WIDTH / 2, 0.17, f"The width of a pipe is its bytes per cycle, at {h200['sm_clock_mhz']} MHz.", style="italic")
    return figure


def from_committed_numbers():
    return draw(json.loads((ROOT / "docs" / "machine" / "h200.json").read_text()))


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

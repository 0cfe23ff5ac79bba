"""What the grader expects, and how it comes by that: to be read after your own answer."""

import json
from pathlib import Path

from tools.measure.profiling.machine import MMA_CYCLES

SCHEDULERS = 4  # of a multiprocessor


def expected():
    """What exercise 4 of step 00 asks for, of the GPU in its machine.json: the rates that the clock allows, and what follows from three that
    were measured. The H200's own are printed on the page."""
    gpu = json.loads(Path(__file__).with_name("machine.json").read_text())
    clock, copy, mma = gpu["sm_clock_mhz"] * 1e6, gpu["copy_bytes_per_second"], gpu["mma_sync_flops_per_second"]
    instructions = gpu["multiprocessors"] * SCHEDULERS * clock  # of warps, in a second
    return {
        "fma_tflops": instructions * 32 * 2 / 1e12,
        "mma_tflops": instructions / MMA_CYCLES * 2 * 16 * 8 * 16 / 1e12,
        "bytes_under_way": gpu["read_bytes_per_second"] * gpu["latency_cycles"]["hbm"] / clock,
        "ridge_flop_per_byte": mma / copy,
        "transpose_microseconds": 2 * 4096 * 4096 * 2 / copy * 1e6,
    }

"""What the grader expects, and how it comes by that: to be read after your own answer."""

import math

from tools.learn.grading.numbers import MEASURED_BANDWIDTH
from tools.learn.grading.run import BUILD, counters_of, results_of


def expected():
    """What exercise 1 of step 03 asks for: bytes as the executable predicts them, sectors of a load as the simulator counts them, and a
    merge by hand. In fp32: the page has fp16."""
    step = BUILD / "bin" / "03_online_softmax"
    large = results_of(step, "--variant", "all", "--dtype", "fp32", "--rows", "50", "--cols", "3000", "--no-check")
    moved = {
        variant: 200 * sum(kernel["bytes_read"] + kernel["bytes_written"] for kernel in result["kernels"])  # 10000 rows are 200 × 50
        for variant, result in large.items()
    }
    sectors = {}
    for variant, columns in (("three_pass", 4), ("warp_per_row", 1024), ("vectorised", 1024)):
        shape = ["--dtype", "fp32", "--rows", "64", "--cols", str(columns), "--no-check"]
        (counted,) = counters_of(step, "--variant", variant, *shape).values()
        requests, touched = (counted[f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum"] for what in ("requests", "sectors"))
        sectors[f"{variant}_sectors"] = touched / requests
    return {
        **{f"{variant}_bytes": moved[variant] for variant in ("three_pass", "online", "vectorised")},
        "vectorised_microseconds": moved["vectorised"] / MEASURED_BANDWIDTH * 1e6,
        **sectors,
        "merged_m": max(3, 5),
        "merged_l": 2 + math.exp(3 - 5) * (math.exp(-2) + math.exp(-1) + 1),
    }

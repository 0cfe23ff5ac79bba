"""What the grader expects, and how it comes by that: to be read after your own answer."""

from tools.learn.grading.numbers import MEASURED_BANDWIDTH
from tools.learn.grading.run import BUILD, results_of


def expected():
    """What exercise 1 of step 01 asks for, computed from the executable's own prediction."""
    shape = ["--heads", "8", "--seq-q", "300", "--dim", "40"]
    (result,) = results_of(BUILD / "bin" / "01_naive_mha", "--variant", "row_per_thread", *shape, "--no-check").values()
    scores, softmax, pv = result["kernels"]
    moved = [kernel["bytes_read"] + kernel["bytes_written"] for kernel in (scores, softmax, pv)]
    return {
        "S_bytes": scores["bytes_written"],
        "scores_flops": scores["flops"],
        "softmax_bytes": moved[1],
        "all_kernels_bytes": sum(moved),
        "floor_microseconds": sum(moved) / MEASURED_BANDWIDTH * 1e6,
    }

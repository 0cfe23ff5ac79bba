"""What each step tells the tools about itself: the shapes at which it is measured, and beside whom.

A step's own stand in tests/steps/NN_name/shapes.py:

LAYERED     True: the step carries the whole layer (--layer)
FORWARD     the namespace of another step's kernels that make inputs: they are no part of the step's profile
FORWARD_ENDS    of a step with both passes: the last kernel of the forward pass that makes inputs of the backward one, --backward
FIXED       small shapes, where the simulator's counters are compared with Nsight Compute's. "tour" is the layer in
            data/minilm_layer (of step 02, the product that makes Q, K and V); "ragged" has extents that no tile divides, and is
            causal where a step knows that
COUNTED_ON  the device whose counts the simulator is compared with, where it is not the one whose times are in the book: a kernel changed
RENAMED     what kernels are called now that had another name, and other code, when the committed times were measured
NOT_MEASURED    variants that are newer than the committed measurements: the comparison with Nsight Compute leaves them out
CHANGED     variants whose kernels changed since the committed measurements, which have them as they were: the same
NOT_COMPARED    why `make sass` does not compare the step's accesses with the machine code; it says so
REACHED     beyond these, what `make sass` runs, so that the simulator comes by every kernel and every line that accesses memory
PROFILED    large shapes for Nsight Compute: where memory is what a real model makes of it
SANITIZED   small, because sanitizers slow a kernel down a hundredfold, and with every irregularity
BENCHED     what the benchmarks run
PEERS       programs of benchmarks/ that `make gpu-check` runs for the step, beside PyTorch's kernels
SPEED_OVER  what the README's table says of others: the `run` in results/, and in it the `others`; or the `share` that it gives, `of` what,
            and a word in the names of the `shapes` that count
"""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_STEP = {path.parent.name: runpy.run_path(str(path)) for path in sorted(ROOT.glob("tests/steps/*/shapes.py"))}


def listed(name):
    """{step: what it calls so, mostly a list}, of the steps that do."""
    return {step: lists[name] for step, lists in OF_STEP.items() if name in lists}


LAYERED = list(listed("LAYERED"))
FORWARD, FORWARD_ENDS = listed("FORWARD"), listed("FORWARD_ENDS")
COUNTED_ON, RENAMED, NOT_MEASURED, CHANGED, NOT_COMPARED = map(listed, ("COUNTED_ON", "RENAMED", "NOT_MEASURED", "CHANGED", "NOT_COMPARED"))
FIXED, REACHED, PROFILED, SANITIZED, BENCHED = map(listed, ("FIXED", "REACHED", "PROFILED", "SANITIZED", "BENCHED"))
PEERS, SPEED_OVER = map(listed, ("PEERS", "SPEED_OVER"))


def making_inputs(step, flags):
    """Which launches of a shape make inputs, as ncu.raw_page takes it: {name of the argument: value}"""
    return {"forward": FORWARD.get(step), "forward_ends": FORWARD_ENDS.get(step) if "--backward" in flags else None}


# Of BENCHED, the large shapes at which a rung of the ladder is compared with its predecessor.
LADDER = {step: [name for name in shapes if name.removesuffix(" backward") in ("4k", "4k-d128", "16k × 4k", "16k", "16k-d128")] for step, shapes in BENCHED.items()}

# What benchmarks/softmax_peers runs beside a copy of the same bytes: arguments, and the variants.
SOFTMAX_PEERS = {
    f"{rows} × {cols}, {dtype}": (
        ["--rows", str(rows), "--cols", str(cols), "--dtype", dtype],
        [*(["vectorised"] if cols <= 65536 else []), "held_parts", "in_turns", "tuned"],
    )
    for dtype in ("fp16", "fp32")
    for rows, cols in ((16384, 4096), (4096, 16384), (1024, 65536), (64, 1048576))
}

# What benchmarks/gemm_peers runs beside cuBLAS and the roof of mma.sync: arguments, and the variants (none: all).
FAST = ["pipeline", "tuned", "tuned_99k", "edges", "any_k"]
GEMM_PEERS = {
    "4096³ fp16": (["--m", "4096", "--n", "4096", "--k", "4096"], []),
    "4096³ bf16": (["--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "bf16"], FAST),
    "8192³ fp16": (["--m", "8192", "--n", "8192", "--k", "8192"], FAST),
    "8192³ bf16": (["--m", "8192", "--n", "8192", "--k", "8192", "--dtype", "bf16"], FAST),
    "4095 × 4095 × 4096 fp16": (["--m", "4095", "--n", "4095", "--k", "4096"], FAST),
    "4097 × 4097 × 4096 fp16": (["--m", "4097", "--n", "4097", "--k", "4096"], FAST),
    "4096 × 4096 × 4095 fp16": (["--m", "4096", "--n", "4096", "--k", "4095"], ["any_k"]),
}

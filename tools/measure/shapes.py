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
RUNGS_AT    of BENCHED, the large shapes at which a rung of the ladder is compared with its predecessor
SHOWN_AT    of BENCHED, the shapes in docs/ladder.md, in order; the first but "tour" is the README's
CONTENDERS  programs of benchmarks/, built with the step, that `make gpu-check` runs: {program: {shape: (arguments, the variants; none: all)}}
CLAIMS      what such a program's report says: {program: function of its shapes, [(what, "at most" or "at least", target, {cell: value}), …]}
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
RUNGS_AT, SHOWN_AT, CONTENDERS, CLAIMS, PEERS, SPEED_OVER = map(listed, ("RUNGS_AT", "SHOWN_AT", "CONTENDERS", "CLAIMS", "PEERS", "SPEED_OVER"))


def making_inputs(step, flags):
    """Which launches of a shape make inputs, as ncu.raw_page takes it: {name of the argument: value}"""
    return {"forward": FORWARD.get(step), "forward_ends": FORWARD_ENDS.get(step) if "--backward" in flags else None}


def claims(step, program, shapes):
    """What the report of a program of CONTENDERS says, as JSON: each claim with its cells. What was measured at no shape is left out."""
    said = []
    for what, bound, target, cells in CLAIMS.get(step, {}).get(program, lambda shapes: [])(shapes):
        if not cells:
            continue
        least, most = min(cells.values()), max(cells.values())
        holds = most <= target if bound == "at most" else least >= target
        said.append({"what": what, "bound": bound, "target": target, "least": least, "most": most, "holds": holds, "cells": cells})
    return said

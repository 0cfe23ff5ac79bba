"""What is committed of the benchmarks of the steps, for the book's tables and for the tour: results/DEVICE/bench.json."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.measure.profiling.machine import quantity

RESULTS = "results/h200"
SHORT_SHAPES = ("16k", "16k × 4k", "4k", "tour")  # of the README's ladder: the first of these at which a step was measured


class ResultError(Exception):
    """A committed result that is missing or not right; its text says which."""


def read_json(root, path):
    """A committed JSON file; ResultError if it is not there."""
    if not (root / path).is_file():
        raise ResultError(f"{path} does not exist")
    return json.loads((root / path).read_text())


def benchmarks(root):
    """{(step, shape): report} of the committed benchmarks; nothing before the first ones are committed."""
    if not (root / RESULTS / "bench.json").exists():
        return {}
    return {(report["step"], report["shape"]): report for report in read_json(root, f"{RESULTS}/bench.json")}


def by_variant(report):
    """{variant: result}; ResultError where a check failed, because then a time means nothing."""
    for result in report["results"]:
        if not result["verdict"] or not result["verdict"]["pass"]:
            raise ResultError(f"{report['step']}, {result['variant']}: its result was not checked or not right")
    return {result["variant"]: result for result in report["results"]}


def median(result):
    return quantity(result["times_ms"]["median"] / 1000, "s")


def described(report):
    """The problem of a report in a few words: "16 heads, 1024 tokens, d = 64, causal", "m = n = k = 4096, fp16"."""
    problem = report["results"][0]["problem"]
    if problem["family"] == "gemm":
        sizes = [problem["m"], problem["n"], problem["k"]]
        return (f"m = n = k = {sizes[0]}" if len(set(sizes)) == 1 else " × ".join(map(str, sizes))) + f", {problem['dtype']}"
    if problem["family"] == "softmax":
        return f"{problem['rows']} × {problem['cols']}, {problem['dtype']}"
    tokens = f"{problem['seq_q']} tokens"
    if problem["seq_k"] != problem["seq_q"]:
        tokens = f"{problem['seq_q']} queries, {problem['seq_k']} keys"
    batch = f"batch {problem['batch']}, " if problem["batch"] > 1 else ""
    causal = ", causal" if problem["causal"] else ""
    dtype = "" if problem["dtype"] == "fp32" else f", {problem['dtype']}"
    backward = "backward, " if problem["family"] == "backward" else ""
    live = f", {100 * live_share(problem):.0f} % live" if problem.get("sparse") else ""
    return f"{backward}{batch}{problem['heads']} heads, {tokens}, d = {problem['dim']}{causal}{live}{dtype}"


def live_share(problem):
    """The share of pairs that a sparse mask leaves, of those that a causal mask leaves; windows do not count."""
    queries, keys = problem["seq_q"], problem["seq_k"]
    pairs = sum(min(max(i + 1 + keys - queries, 0), keys) for i in range(queries)) if problem["causal"] else queries * keys
    return problem["sparse"]["live_pairs"] / (problem["batch"] * problem["heads"] * pairs)

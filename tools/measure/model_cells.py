"""The problems for which tools/measure/model.py predicts a time, each beside the burst that was measured (results/DEVICE/*_peers.json)."""

import statistics
from dataclasses import dataclass

from tools.measure.committed import read_json
from tools.measure.model import Prediction, Round, copied, predicted

STEPS = ("05_flash_v2", "06_backward", "07_block_sparse")
SELDOM = {64: 204, 128: 256}  # {head dim: instructions of the main loop that run only where m moves}, of flash_tuned and sparse_balanced: page 05b
WITHIN = 0.1  # of the measured time: what was hoped for
BLOCK = 128  # queries and keys of a block of a mask
TUNED = "flash_tuned<__half, TunedTile<{}>>".format
RUNS = [  # (step, file, {contender: variant forward, variant backward}, head dims that the model knows)
    ("05", "attention_peers.json", {"tuned": ("tuned", None)}, (64, 96, 128, 256)),
    ("06", "backward_peers.json", {"tuned": (None, "tuned"), "deterministic": (None, "deterministic")}, (64, 128)),
    ("07", "sparse_peers.json", dict.fromkeys(("ours, random", "ours, all"), ("balanced", "backward")), (64, 128)),
]


@dataclass(frozen=True)
class Cell:
    """A problem of one variant."""

    step: str  # "05"
    variant: str
    dim: int
    problem: str  # as the run calls it
    prediction: Prediction
    measured: float  # seconds

    @property
    def off(self):
        """How far the prediction is from the time, as a share of the time."""
        return self.prediction.seconds / self.measured - 1


def rounds_of_kernels(root):
    """{kernel: Round}. Head dims 96 and 256 of step 05 have no committed machine code: 96 takes as many instructions for each mma as its neighbours in
    the mean, and 256 as many as 128."""
    found, per_mma = {}, {}
    counted = {step: read_json(root, f"results/sim/{step}_counts.json")["rounds"] for step in STEPS}
    for step in STEPS:
        for kernel, code in read_json(root, f"results/machine_code/{step}.json")["kernels"].items():
            if kernel in counted[step]:
                seldom = SELDOM[64 if "<64>" in kernel else 128] if kernel.startswith(("flash_tuned", "sparse_balanced")) else 0
                per_mma[kernel] = (code["loop"]["instructions"] - seldom) / code["loop"]["HMMA"] - 1
    per_mma[TUNED(96)] = statistics.mean(per_mma[TUNED(dim)] for dim in (64, 128))
    per_mma[TUNED(256)] = per_mma[TUNED(128)]
    for step in STEPS:
        for kernel, counts in counted[step].items():
            found[kernel] = Round(**counts, instructions=per_mma[kernel] * counts["mma"])
    return found


def live_blocks(tokens, causal, share):
    """How many blocks of keys each row of blocks sees: of a random mask, of which all rows have this share (benchmarks/sparse_peers.py)."""
    rows = tokens // BLOCK
    return [max(1, round(share * (row + 1 if causal else rows))) for row in range(rows)]


def blocks_of_columns(rows, causal):
    """How many of them each column of blocks has in the mean: its own, and the others by chance."""
    if not causal:
        return [sum(rows) / len(rows)] * len(rows)
    return [1 + sum((rows[row] - 1) / row for row in range(column + 1, len(rows))) for column in range(len(rows))]


def walked(of, tokens, causal, heads, keys_walked):
    """(the rounds of each block in the order of their start, how many of them have a mask): tiles of queries walk over keys, the last one first, or tiles
    of keys over queries."""
    tile, step = (of.queries, of.keys) if keys_walked else (of.keys, of.queries)
    seen = [first + tile if causal else tokens for first in range(0, tokens, tile)]
    longest_first = sorted((length / step for length in seen), reverse=True)
    return longest_first * heads, tile / step if causal else 0


def predict(machine, rounds, step, variant, tokens, dim, causal, heads, share=None, plan_seconds=0.0):
    """The Prediction of a variant. `share`: of a random mask of blocks, whose plan was measured: its kernels only wait."""
    elements = tokens * dim * heads
    beginning, end = copied(machine, 8 * elements), copied(machine, 6 * elements)  # D and zeros for dQ's sums from O and dO; dQ from its sums
    dense = lambda name, keys_walked=False: predicted(machine, rounds[name], *walked(rounds[name], tokens, causal, heads, keys_walked))
    if step == "05":
        return dense(TUNED(dim), keys_walked=True)
    if variant == "tuned":
        return beginning + dense(f"backward_tuned_{dim}<__half, {dim}, true>") + end
    if variant == "deterministic":
        of_keys, of_queries = dense(f"backward_tuned_{dim}<__half, {dim}, false>"), dense(f"gradient_of_queries_32<__half, {dim}>", keys_walked=True)
        return copied(machine, 4 * elements) + of_keys + of_queries
    rows, forward = live_blocks(tokens, causal, share), variant == "balanced"
    of = rounds[f"sparse_balanced<__half, Tile128<{dim}>>" if forward else f"sparse_backward_{dim}<__half, {dim}>"]
    blocks, step_of_walk = (rows, of.keys) if forward else (blocks_of_columns(rows, causal), of.queries)
    longest_first = sorted((count * BLOCK / step_of_walk for count in blocks * heads), reverse=True)
    plan_and_merge = Prediction("", 0, 0, plan_seconds + machine["launch_seconds"])
    loop = predicted(machine, of, longest_first, masked=BLOCK / step_of_walk if causal else 0) + plan_and_merge
    return loop if forward else beginning + loop + end


def cells(run):
    """The Cells of a device's committed runs (tools/measure/committed.Results), by step, variant and head dim: fp16, the tuned kernels."""
    machine, rounds = run.machine(), rounds_of_kernels(run.root)
    found = []
    for step, file, variants, dims in RUNS:
        for name, cell in run.read(file)["cells"].items():
            problem = cell["problem"]
            if problem.get("dtype", "fp16") != "fp16" or problem["dim"] not in dims:
                continue
            backward = problem.get("backward", step == "06")
            shape = problem["seq"], problem["dim"], problem["causal"], problem["heads"] * problem.get("batch", 1), problem.get("share")
            for contender in cell["contenders"]:
                if contender["name"] in variants:
                    variant = variants[contender["name"]][backward]
                    plan = cell["masks"][contender["mask"]]["plan_ms"] / 1000 if "masks" in cell else 0.0
                    prediction = predict(machine, rounds, step, variant, *shape, plan)
                    measured = contender["burst_ms"]["median"] / 1000
                    found.append(Cell(step, variant, problem["dim"], name.removesuffix(", fp16"), prediction, measured))
    order = list(dict.fromkeys((cell.step, cell.variant) for cell in found))
    return sorted(found, key=lambda cell: (order.index((cell.step, cell.variant)), cell.dim))

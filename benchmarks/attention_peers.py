"""A step of the forward pass beside the kernels that PyTorch has, and beside the roof of mma.sync, in one run.

    python benchmarks/attention_peers.py --json results/h200/attention_peers.json

The peers are reached through torch.nn.functional.scaled_dot_product_attention: FlashAttention-2, cuDNN and the memory-efficient
kernel. Inputs are random normal. What it needs, how contenders are measured and checked, and its exit status: peers.py.
"""

import contextlib
import itertools
import math
import statistics
import sys

from peers import (
    PEERS,
    ROOF,
    Benchmark,
    Cell,
    Contest,
    bf16_over_fp16,
    by_problem,
    claims_of,
    problem_of,
    run,
    sampled_rows,
)

DIMS, LENGTHS = (64, 128), (512, 2048, 4096, 16384)
TARGETS = LENGTHS[1:]  # where something is claimed


def all_cells():
    cells = [Cell(seq, dim, causal) for dim in DIMS for causal in (False, True) for seq in LENGTHS]
    cells += [Cell(4096, dim, causal, "bf16") for dim in DIMS for causal in (False, True)]
    return cells + [Cell(4096, dim, causal) for dim in (96, 256) for causal in (False, True)]


def operations(cell):
    """4 · dim for each pair of a query and a key that it sees."""
    return 4 * cell.dim * cell.pairs


class Truth:
    """What the sampled rows of O and LSE must be, in double precision, and what an honest implementation gets. `mask`: what dropout
    multiplies P by [batch, heads, rows, keys], where there is dropout. `live`: the keys that a sparse mask lets these rows see, of the same
    shape; some of each row."""

    def __init__(self, torch, q, k, v, causal, rows, mask=None, live=None):
        self._torch = torch
        self._rows = torch.tensor(rows, device=q.device)
        hidden = torch.arange(k.shape[2], device=q.device) > self._rows[:, None] if causal else None

        def attend(real, rounded):
            scores = q[:, :, self._rows].to(real) @ k.to(real).mT / math.sqrt(q.shape[-1])
            if causal:
                scores = scores.masked_fill(hidden, -math.inf)
            if live is not None:
                scores = scores.masked_fill(~live, -math.inf)
            p = scores.softmax(-1).to(rounded).to(real)
            if mask is not None:
                p = p * mask.to(real)
            return (p @ v.to(real)).to(rounded).double(), scores.logsumexp(-1)

        self._o, self._lse = attend(torch.float64, torch.float64)
        self._honest, _ = attend(torch.float32, q.dtype)

    def worst_ratio(self, o, lse=None):
        """The largest error over what docs/checking.md allows it, of O [batch, heads, seq, dim] and of LSE [batch, heads, seq];
        infinite where an element is not finite. At most 1 is right."""
        torch = self._torch
        if not o.isfinite().all() or (lse is not None and not lse.isfinite().all()):
            return math.inf
        error, honest = ((of - self._o).abs() for of in (o[:, :, self._rows].double(), self._honest))
        smallest, bits = (-24, 11) if o.dtype == torch.float16 else (-133, 8)
        exponent = torch.frexp(self._o.abs().amax(-1)).exponent
        floor = 2 * torch.exp2((exponent - bits).clamp(min=smallest).double())
        ratios = [
            (error.amax(-1) / (2 * torch.maximum(honest.amax(-1), floor))).max(),
            error.mean() / (1.5 * torch.maximum(honest.mean(), floor.mean())),
        ]
        if lse is not None:
            ratios.append((lse[:, :, self._rows].double() - self._lse).abs().max() / 1e-3)
        return max(ratio.item() for ratio in ratios)


def measure_cell(torch, library, variants, cell, options, seed):
    """The cell as JSON."""
    torch.manual_seed(seed)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[cell.dtype]
    q, k, v = (torch.randn(cell.shape, device="cuda", dtype=dtype) for _ in range(3))
    v += 0.5  # as in the steps' own inputs: outputs keep away from zero
    o, lse = torch.empty_like(q), torch.empty(cell.shape[:3], device="cuda")
    truth = Truth(torch, q, k, v, cell.causal, sampled_rows(cell.seq, seed))

    def prepare(chosen):
        def launch():
            with chosen():
                return [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cell.causal)]

        return launch

    with contextlib.ExitStack() as held:
        contest = Contest(torch, library, cell, operations(cell), held)
        for name in PEERS:
            contest.enter_peer(name, prepare, truth.worst_ratio)
        for name in variants:
            contest.enter_variant(name, library.variant(name, problem_of(cell, q, k, v, o, lse)), held, (o, lse), truth.worst_ratio)
        return contest.measured(options)


def claims(cells, variants):
    """What may be said of the first variant, with the targets: [{what, value, target}]. `cells` as in the JSON; what they do not cover
    is left out."""
    measured_at = by_problem(cells)

    def ours(seq, dim, causal, dtype):
        return measured_at.get((seq, dim, causal, dtype), {}).get(variants[0])

    def median_ratios(other, dims=DIMS, lengths=TARGETS):
        problems = itertools.product(lengths, dims, (False, True), ["fp16"])
        found = [contender["of"] for contender in itertools.starmap(ours, problems) if contender]
        return [of[other]["median"] for of in found if other in of]

    return claims_of(
        [
            ("geometric mean of the speed over FlashAttention-2's", statistics.geometric_mean, median_ratios("FlashAttention-2"), 1.15),
            ("the least of these", min, median_ratios("FlashAttention-2"), 1.05),
            ("geometric mean of the speed over cuDNN's", statistics.geometric_mean, median_ratios("cuDNN"), None),
            ("least share of the roof at d 128 from 4096 tokens", min, median_ratios(ROOF, [128], TARGETS[1:]), 0.70),
            ("bf16 over fp16, the least", min, bf16_over_fp16(measured_at, variants[0]), 0.97),
        ]
    )


BENCHMARK = Benchmark(
    name="attention_peers",
    about=__doc__.splitlines()[0],
    step="05_flash_v2",
    default_variants=lambda built: [built["default"]],
    cells=all_cells(),
    measure_cell=measure_cell,
    claims=claims,
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))

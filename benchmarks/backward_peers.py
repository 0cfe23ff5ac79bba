"""A step of the backward pass beside the kernels that PyTorch has, and beside the roof of mma.sync, in one run.

    python benchmarks/backward_peers.py --json results/h200/backward_peers.json

The peers are the gradients of torch.nn.functional.scaled_dot_product_attention: FlashAttention-2, cuDNN and the memory-efficient
kernel. The forward pass runs once, before all times; the kernels around the main one (D of each row, dQ to 16 bits) are within them,
of all contenders. Inputs are random normal. What it needs, how contenders are measured and checked, and its exit status: peers.py.
"""

import contextlib
import itertools
import math
import statistics
import sys

from peers import (
    PEERS,
    Benchmark,
    Cell,
    Contest,
    Gradients,
    bf16_over_fp16,
    by_problem,
    claims_of,
    problem_of,
    run,
    sampled_rows,
    tensor_of,
)

DIMS, LENGTHS = (64, 128), (2048, 4096, 16384)
OTHER_DIMS = (32, 96)  # with a target of their own
DETERMINISTIC = "deterministic"  # the variant whose dQ has the same bits in every run
SCORES = 2**28  # of the truth, at a time: 2 GiB for each of its matrices


def all_cells():
    cells = [Cell(seq, dim, causal) for dim in DIMS for causal in (False, True) for seq in LENGTHS]
    cells += [Cell(4096, dim, causal, "bf16") for dim in DIMS for causal in (False, True)]
    return cells + [Cell(4096, dim, causal) for dim in (*OTHER_DIMS, 256) for causal in (False, True)]


def operations(cell):
    """10 · dim for each pair of a query and a key that it sees: five products."""
    return 10 * cell.dim * cell.pairs


class Truth:
    """What the sampled rows of dQ, dK and dV must be, in double precision, and how far off an honest implementation may be. An honest
    one rounds P, dS and O to the dtype, and takes D from O as it was rounded. Both passes are honest: this O was made with a rounded P.
    What it is off by in a row is compared by the row's largest element. Two errors need a size of their own, because an honest
    implementation is at times lucky with them in a whole row: D from a rounded O, and dP − D where the two cancel in fp32.

    mask(begin, end): what dropout multiplies P by [end − begin, seq, seq], of heads `begin` to `end` of all batch entries' heads, where
    there is dropout. live(begin, end): the keys that a sparse mask lets queries see, of the same shape; some of each query."""

    def __init__(self, torch, q, k, v, d_o, causal, rows, mask=None, live=None):
        self._torch = torch
        self._rows = torch.tensor(rows, device=q.device)
        heads = [x.flatten(0, 1) for x in (q, k, v, d_o)]
        at_once = max(1, SCORES // (q.shape[2] * k.shape[2]))
        parts = []
        for first in range(0, len(heads[0]), at_once):
            end = min(first + at_once, len(heads[0]))
            given = (None if of is None else of(first, end) for of in (mask, live))
            parts.append(self._part(*(x[first:end] for x in heads), causal, *given))
        # of dQ, dK and dV: [batch · heads, rows, dim], the last one [batch · heads, rows]
        self._exact, self._honest, self._unlucky = ([torch.cat([part[kind][n] for part in parts]) for n in range(3)] for kind in range(3))

    def _part(self, q, k, v, d_o, causal, mask, live):
        """(exact, honest, what a row may be off by beside that) of some heads [heads, seq, dim]."""
        torch, rows, dtype, scale = self._torch, self._rows, q.dtype, 1 / math.sqrt(q.shape[-1])
        scores = (q.double() @ k.double().mT).mul_(scale)
        if causal:
            at = torch.arange(k.shape[1], device=q.device)
            scores.masked_fill_(at > at[:, None], -math.inf)
        if live is not None:
            scores.masked_fill_(~live, -math.inf)
        p = scores.sub_(scores.logsumexp(-1, keepdim=True)).exp_()
        del scores
        of_queries, of_keys = p[:, rows], p[:, :, rows]  # P of the sampled rows
        mask_of_queries, mask_of_keys = (None, None) if mask is None else (mask[:, rows], mask[:, :, rows])

        def dropped(pairs, weights):
            return pairs if weights is None else pairs * weights.to(pairs.dtype)

        def gradients(real, rounded):
            q_, k_, v_, d_o_ = (x.to(real) for x in (q, k, v, d_o))
            o = (dropped(p.to(rounded).to(real), mask) @ v_).to(rounded).to(real)
            delta = (d_o_ * o).sum(-1, keepdim=True)
            dp_of_queries, dp_of_keys = dropped(d_o_[:, rows] @ v_.mT, mask_of_queries), dropped(d_o_ @ v_[:, rows].mT, mask_of_keys)
            ds_of_queries = (of_queries.to(real) * (dp_of_queries - delta[:, rows])).to(rounded).to(real)
            ds_of_keys = (of_keys.to(real) * (dp_of_keys - delta)).to(rounded).to(real)
            p_of_keys = dropped(of_keys.to(rounded).to(real), mask_of_keys)
            found = scale * ds_of_queries @ k_, scale * ds_of_keys.mT @ q_, p_of_keys.mT @ d_o_
            return [x.to(rounded).double() for x in found]

        # The standard deviation of D, at most, where each element of O is off by half an ulp, and dP − D by 2⁻²² of its terms.
        o = dropped(p, mask) @ v.double()
        terms = (d_o.double() * o).norm(dim=-1, keepdim=True)
        lost = 2**-22 * d_o.double().norm(dim=-1, keepdim=True) * v.double().norm(dim=-1).amax() * (1 if mask is None else mask.amax())
        delta = terms * (2**-11 if dtype == torch.float16 else 2**-8) + lost
        unlucky = [
            scale * (delta[:, rows] * (of_queries @ k.double())).abs() + scale * lost[:, rows] * k.double().abs().amax(),
            scale * ((of_keys * delta).mT ** 2 @ q.double() ** 2).sqrt(),
            torch.zeros_like(of_queries[..., :1]),
        ]
        return gradients(torch.float64, torch.float64), gradients(torch.float32, dtype), [x.amax(-1) for x in unlucky]

    def worst_ratio(self, *gradients):
        """The largest error of dQ, dK and dV [batch, heads, seq, dim] over what is allowed; infinite where an element is not finite. At
        most 1 is right."""
        torch = self._torch
        if not all(x.isfinite().all() for x in gradients):
            return math.inf
        ratios = []
        for found, exact, honest, unlucky in zip(gradients, self._exact, self._honest, self._unlucky, strict=True):
            error, usual = ((of - exact).abs() for of in (found.flatten(0, 1)[:, self._rows].double(), honest))
            smallest, bits = (-24, 11) if found.dtype == torch.float16 else (-133, 8)
            exponent = torch.frexp(exact.abs().amax(-1)).exponent
            floor = 2 * torch.exp2((exponent - bits).clamp(min=smallest).double()) + unlucky
            ratios += [
                (error.amax(-1) / (3 * torch.maximum(usual.amax(-1), floor))).max(),
                error.mean() / (1.5 * torch.maximum(usual.mean(), floor.mean())),
            ]
        return max(ratio.item() for ratio in ratios)


def measure_cell(torch, library, variants, cell, options, seed):
    """The cell as JSON."""
    torch.manual_seed(seed)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[cell.dtype]
    q, k, v, d_o = (torch.randn(cell.shape, device="cuda", dtype=dtype) for _ in range(4))
    v += 0.5  # as in the steps' own inputs: outputs keep away from zero
    truth = Truth(torch, q, k, v, d_o, cell.causal, sampled_rows(cell.seq, seed))
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def prepare(chosen):
        with chosen():
            o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=cell.causal)
        return lambda: torch.autograd.grad(o, leaves, d_o, retain_graph=True)

    o, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, cell.causal)[:2]
    gradients = [torch.empty_like(x) for x in (q, k, v)]
    tensors = Gradients(*(tensor_of(x) for x in (d_o, *gradients)))
    with contextlib.ExitStack() as held:
        contest = Contest(torch, library, cell, operations(cell), held)
        for name in PEERS:
            contest.enter_peer(name, prepare, truth.worst_ratio)
        for name in variants:
            program = library.variant(name, problem_of(cell, q, k, v, o, lse), tensors)
            contest.enter_variant(name, program, held, gradients, truth.worst_ratio)
        return contest.measured(options)


def claims(cells, variants):
    """What may be said of the first variant, with the targets: [{what, value, target}]. `cells` as in the JSON; what they do not cover
    is left out."""
    measured_at = by_problem(cells)

    def ratios(other, dims, lengths=LENGTHS):
        problems = itertools.product(lengths, dims, (False, True), ["fp16"])
        found = [measured_at.get(problem, {}).get(variants[0]) for problem in problems]
        return [contender["of"][other]["median"] for contender in found if contender and other in contender["of"]]

    def over_ours(name):
        both = [(named.get(name), named.get(variants[0])) for (_, dim, _, dtype), named in measured_at.items() if dim in DIMS and dtype == "fp16"]
        return [other["tflops"]["median"] / ours["tflops"]["median"] for other, ours in both if other and ours]

    fa2 = "FlashAttention-2"
    return claims_of(
        [
            ("d 64: the least of the speeds over FlashAttention-2's", min, ratios(fa2, [64]), 1.35),
            ("d 128: the least of the speeds over FlashAttention-2's", min, ratios(fa2, [128]), 1.15),
            ("geometric mean of these", statistics.geometric_mean, ratios(fa2, DIMS), 1.28),
            ("d 32 and d 96: the least", min, ratios(fa2, OTHER_DIMS), 1.0),
            ("geometric mean of the speed over cuDNN's", statistics.geometric_mean, ratios("cuDNN", DIMS), None),
            ("bf16 over fp16, the least", min, bf16_over_fp16(measured_at, variants[0]), 0.97),
            (f"{DETERMINISTIC}, whose bits are the same in every run, over {variants[0]}, the least", min, over_ours(DETERMINISTIC), 0.70),
        ]
    )


BENCHMARK = Benchmark(
    name="backward_peers",
    about=__doc__.splitlines()[0],
    step="06_backward",
    default_variants=lambda built: [built["default"], DETERMINISTIC],
    cells=all_cells(),
    measure_cell=measure_cell,
    claims=claims,
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))

"""Dropout: steps 05 and 06 beside PyTorch's kernels with dropout, and beside themselves without it, in one run.

    python benchmarks/dropout_peers.py --json results/h200/dropout_peers.json

The peers are reached through torch.nn.functional.scaled_dot_product_attention(dropout_p=0.1) and its gradients: FlashAttention-2, cuDNN
and the memory-efficient kernel. Ours leave out 26 of 256 pairs; so does FlashAttention-2, which has bytes as well. Forward passes that
gradients need run before all times. Inputs are random normal. What it needs, and how contenders take turns: peers.py.

Each of our results is checked in sampled rows of every head against float64, with the mask that our kernels must have: Philox by the place
of a pair, made anew here. Nobody knows the masks of the peers. Their results are checked in the same rows by mean and variance, which
are known (dropout_truth.Statistics): that they drop a tenth and multiply the rest by 10 / 9, not which pairs. Exit status: as peers.py.
"""

import contextlib
import statistics
import sys
from dataclasses import dataclass

import attention_peers
import backward_peers
import peers
from dropout_truth import Statistics, backward_moments, forward_moments, weights
from peers import (
    PEERS,
    Contest,
    Gradients,
    bf16_over_fp16,
    by_problem,
    claims_of,
    problem_of,
    run_both_passes,
    sampled_rows,
    tensor_of,
)

OF_256, SHARE = 26, 0.1  # what is left out: of ours, and of the peers
OURS = "tuned"
WITHOUT = f"{OURS}, without dropout"
FA2 = "FlashAttention-2"
LENGTHS, DIMS = (2048, 4096, 16384), (64, 128)


@dataclass(frozen=True)
class Cell(peers.Cell):
    backward: bool = False

    @property
    def name(self):
        return f"{'backward' if self.backward else 'forward'}, {super().name}"

    @property
    def operations(self):
        """Of a launch. What dropout needs is not counted."""
        return (backward_peers if self.backward else attention_peers).operations(self)


def all_cells():
    problems = [(seq, dim, causal, "fp16") for dim in DIMS for causal in (False, True) for seq in LENGTHS] + [(4096, 128, False, "bf16")]
    return [Cell(*problem, backward) for backward in (False, True) for problem in problems]


def with_dropout(problem, of_256, seed):
    if of_256:
        problem.dropout, problem.dropout_seed = of_256, seed
    return problem


def enter_forward(torch, contest, libraries, cell, seed, rows, q, k, v, held):
    """All contenders of a forward pass; returns the tensors that ours use."""

    def prepare(chosen):
        def launch():
            with chosen():
                return [torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=SHARE, is_causal=cell.causal)]

        return launch

    of_peers = Statistics(torch, forward_moments, (q, k, v), cell.causal, rows, SHARE)
    for name in PEERS:
        contest.enter_peer(name, prepare, of_peers.worst_ratio)
    o, lse = torch.empty_like(q), torch.empty(cell.shape[:3], device=q.device)
    mask = weights(torch, OF_256, seed, cell.heads, 0, cell.batch * cell.heads, rows, cell.seq, q.device).unflatten(0, cell.shape[:2])
    for name, of_256 in ((OURS, OF_256), (WITHOUT, 0)):
        truth = attention_peers.Truth(torch, q, k, v, cell.causal, rows, mask if of_256 else None)
        program = libraries[False].variant(OURS, with_dropout(problem_of(cell, q, k, v, o, lse), of_256, seed))
        contest.enter_variant(name, program, held, (o, lse), truth.worst_ratio)
    return o, lse


def enter_backward(torch, contest, libraries, cell, seed, rows, q, k, v, held):
    """All contenders of a backward pass; returns the tensors that ours use."""
    d_o = torch.randn_like(q)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def prepare(chosen):
        with chosen():
            o = torch.nn.functional.scaled_dot_product_attention(*leaves, dropout_p=SHARE, is_causal=cell.causal)
        return lambda: torch.autograd.grad(o, leaves, d_o, retain_graph=True)

    of_peers = Statistics(torch, backward_moments, (q, k, v, d_o), cell.causal, rows, SHARE)
    for name in PEERS:
        contest.enter_peer(name, prepare, of_peers.worst_ratio)
    gradients = [torch.empty_like(x) for x in (q, k, v)]
    used = [d_o, *gradients]
    mask = lambda begin, end: weights(torch, OF_256, seed, cell.heads, begin, end, range(cell.seq), cell.seq, q.device)
    for name, of_256 in ((OURS, OF_256), (WITHOUT, 0)):
        o, lse = torch.empty_like(q), torch.empty(cell.shape[:3], device=q.device)
        problem = with_dropout(problem_of(cell, q, k, v, o, lse), of_256, seed)
        with libraries[False].variant(OURS, problem) as (launch, _):
            launch()
            torch.cuda.synchronize()
        truth = backward_peers.Truth(torch, q, k, v, d_o, cell.causal, rows, mask if of_256 else None)
        program = libraries[True].variant(OURS, problem, Gradients(*(tensor_of(x) for x in (d_o, *gradients))))
        contest.enter_variant(name, program, held, gradients, truth.worst_ratio)
        used += [o, lse]
    return used


def measure_cell(torch, libraries, cell, options, seed):
    """The cell as JSON."""
    torch.manual_seed(seed)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[cell.dtype]
    q, k, v = (torch.randn(cell.shape, device="cuda", dtype=dtype) for _ in range(3))
    v += 0.5  # as in the steps' own inputs: outputs keep away from zero
    with contextlib.ExitStack() as held:
        contest = Contest(torch, None, cell, cell.operations, held)  # without the roof
        enter = enter_backward if cell.backward else enter_forward
        used = enter(torch, contest, libraries, cell, 2**63 + seed, sampled_rows(cell.seq, seed), q, k, v, held)
        measured = contest.measured(options, (*PEERS, WITHOUT))
        del used  # only now may this memory serve others
    return measured


def claims(cells):
    """What may be said of ours with dropout, with the targets: [{what, value, target}]. `cells` as in the JSON; what they do not cover is left
    out."""
    figures = []
    for backward, name, target in ((False, "forward", 1.25), (True, "backward", 1.15)):
        measured_at = by_problem({at: cell for at, cell in cells.items() if cell["problem"]["backward"] == backward})
        ours = [named[OURS] for (*_, dtype), named in measured_at.items() if dtype == "fp16" and OURS in named]
        over = lambda other, ours=ours: [contender["of"][other]["median"] for contender in ours if other in contender["of"]]
        price = [1 / speed for speed in over(WITHOUT)]
        figures += [
            (f"{name} with dropout: the least of the speeds over FlashAttention-2's with dropout", min, over(FA2), target),
            (f"{name} with dropout: geometric mean of these", statistics.geometric_mean, over(FA2), None),
            (f"{name} with dropout: geometric mean of the speed over cuDNN's with dropout", statistics.geometric_mean, over("cuDNN"), None),
            (f"{name}: time with dropout over time without, geometric mean", statistics.geometric_mean, price, None),
            (f"{name}: time with dropout over time without, the most", max, price, None),
            (f"{name} with dropout: bf16 over fp16", min, bf16_over_fp16(measured_at, OURS), None),
        ]
    return claims_of(figures)


def main(arguments=None):
    """The program; returns its exit status."""
    head = {"dropout": {"of_256": OF_256, "of_peers": SHARE}, "variants": [OURS, WITHOUT]}
    return run_both_passes("dropout_peers", __doc__.splitlines()[0], all_cells(), measure_cell, claims, head, arguments, sustained_ms=100)


if __name__ == "__main__":
    sys.exit(main())

"""Packed sequences: steps 05 and 06 beside padding and beside FlashAttention-2's kernels for packed sequences, in one run.

    python benchmarks/packed_peers.py --json results/h200/packed_peers.json

Texts of different lengths, 16384 tokens in all, are computed in three ways: packed; padded to the longest, one text in each batch
entry; packed, by FlashAttention-2 as PyTorch has it (torch.ops.aten._flash_attention_forward and _backward). Only
the work of the texts counts; work on padding does not. Texts of equal length show what packing itself costs. What it needs, and how contenders
take turns: peers.py. Each packed result is checked, text by text, in sampled rows of every head, against float64. Padded results are
not: padding is there for its time. Exit status: as peers.py.
"""

import contextlib
import ctypes
import itertools
import math
import random
import statistics
import sys
from dataclasses import asdict, dataclass

import attention_peers
import backward_peers
from peers import (
    TOKENS,
    WIDTH,
    Gpu,
    Gradients,
    claims_of,
    first_line,
    problem_at,
    run_both_passes,
    sampled_rows,
    tensor_of,
)
from turns import Contender, entry, measure

FA2 = "FlashAttention-2, packed"
PACKED, PADDED = "packed", "padded"
LONGEST = 2048


def mixed_lengths():
    """About log-uniform from 64 to LONGEST, which is among them; their sum is TOKENS."""
    numbers = random.Random(1)
    lengths = [LONGEST]
    while sum(lengths) < TOKENS:
        lengths.append(min(int(64 * 2 ** numbers.uniform(0, 5)), TOKENS - sum(lengths)))
    numbers.shuffle(lengths)
    return lengths


LENGTHS = {"mixed": mixed_lengths(), "equal": [LONGEST] * (TOKENS // LONGEST)}


@dataclass(frozen=True)
class Cell:
    backward: bool
    lengths: str  # of LENGTHS
    dim: int
    causal: bool

    @property
    def name(self):
        return f"{'backward' if self.backward else 'forward'}, {self.lengths}, d {self.dim}{', causal' if self.causal else ''}"

    @property
    def heads(self):
        return WIDTH // self.dim

    @property
    def operations(self):
        pairs = sum(n * (n + 1) / 2 if self.causal else n**2 for n in LENGTHS[self.lengths])
        return (10 if self.backward else 4) * self.dim * pairs * self.heads


CELLS = [Cell(backward, lengths, dim, causal) for backward in (False, True) for lengths in LENGTHS for dim in (64, 128) for causal in (False, True)]


def problem_of(cell, q, k, v, o, lse, sums=None, on_device=None):
    """[batch, heads, seq, dim] tensors; `sums` of packed ones are a ctypes array and a tensor, which must live as long as the problem."""
    problem = problem_at(q.shape, "fp16", map(tensor_of, (q, k, v, o)), lse.data_ptr(), causal=int(cell.causal))
    if sums is not None:
        problem.cu_seqlens, problem.cu_seqlens_host = on_device.data_ptr(), ctypes.addressof(sums)
        problem.cu_seqlens_count = len(sums)
    return problem


class Arrays:
    """The tensors of one layout: [batch, heads, seq, dim], tokens first in memory; O and LSE of our forward pass."""

    def __init__(self, torch, forward, cell, batch, seq, sums=None):
        def random_normal():
            return torch.randn((batch, seq, cell.heads, cell.dim), device="cuda", dtype=torch.float16).transpose(1, 2)

        self.sums = sums
        self.sums_on_device = None if sums is None else torch.tensor(list(sums), dtype=torch.int32, device="cuda")
        self.q, self.k, self.v, self.d_o = (random_normal() for _ in range(4))
        self.v += 0.5
        self.o, self.dq, self.dk, self.dv = (torch.empty_like(self.q) for _ in range(4))
        self.lse = torch.empty((batch, cell.heads, seq), device="cuda")
        self.problem = problem_of(cell, self.q, self.k, self.v, self.o, self.lse, sums, self.sums_on_device)
        self.gradients = Gradients(*(tensor_of(x) for x in (self.d_o, self.dq, self.dk, self.dv)))
        if cell.backward:
            with forward.variant("tuned", self.problem) as (launch, _):
                launch()
                torch.cuda.synchronize()

    def results(self, backward):
        return (self.dq, self.dk, self.dv) if backward else (self.o, self.lse)


class Truth:
    """Of each text by itself, as attention_peers and backward_peers have it."""

    def __init__(self, torch, cell, arrays, seed):
        self._parts, begin = [], 0
        inputs = [arrays.q, arrays.k, arrays.v] + [arrays.d_o] * cell.backward
        family = backward_peers if cell.backward else attention_peers
        for length in LENGTHS[cell.lengths]:
            text = slice(begin, begin + length)
            rows = sampled_rows(length, seed)
            self._parts.append((text, family.Truth(torch, *(x[:, :, text].contiguous() for x in inputs), cell.causal, rows)))
            begin += length

    def worst_ratio(self, *results):
        return max(truth.worst_ratio(*(x[:, :, text] for x in results)) for text, truth in self._parts)


def flash_attention_2(torch, cell, arrays):
    """Its launch, which returns its results as [1, heads, tokens, dim]."""
    q, k, v, d_o = (x[0].transpose(0, 1) for x in (arrays.q, arrays.k, arrays.v, arrays.d_o))  # [tokens, heads, dim], contiguous
    sums = torch.tensor(list(arrays.sums), dtype=torch.int32, device="cuda")
    longest = max(end - begin for begin, end in itertools.pairwise(arrays.sums))
    ways = (sums, sums, longest, longest, 0.0, cell.causal)
    forward = lambda: torch.ops.aten._flash_attention_forward(q, k, v, *ways, False)
    of_heads = lambda tensors: [x.transpose(0, 1)[None] for x in tensors]
    if not cell.backward:
        return lambda: of_heads(forward()[:1])
    o, lse, state, unused = forward()[:4]
    return lambda: of_heads(torch.ops.aten._flash_attention_backward(d_o, q, k, v, o, lse, *ways, state, unused))


def measure_cell(torch, libraries, cell, options, seed):
    """The cell as JSON."""
    torch.manual_seed(seed)
    lengths = LENGTHS[cell.lengths]
    sums = (ctypes.c_int * (len(lengths) + 1))(0, *(sum(lengths[: n + 1]) for n in range(len(lengths))))
    packed = Arrays(torch, libraries[False], cell, 1, TOKENS, sums)
    padded = Arrays(torch, libraries[False], cell, len(lengths), max(lengths))
    truth = Truth(torch, cell, packed, seed)
    contenders, refused = [], {}
    with contextlib.ExitStack() as held:
        try:
            launch = flash_attention_2(torch, cell, packed)
            ratio = truth.worst_ratio(*launch())
            contenders.append(Contender(FA2, cell.operations, launch, "ok" if ratio <= 1 else "WRONG", ratio))
        except RuntimeError as error:
            refused[FA2] = first_line(error)
        for name, arrays in ((PACKED, packed), (PADDED, padded)):
            gradients = (arrays.gradients,) if cell.backward else ()
            launch, _ = held.enter_context(libraries[cell.backward].variant("tuned", arrays.problem, *gradients))
            results = arrays.results(cell.backward)
            for result in results:
                result.fill_(math.nan)
            launch()
            ratio = truth.worst_ratio(*results) if name == PACKED else None
            contenders.append(Contender(name, cell.operations, launch, "" if ratio is None else "ok" if ratio <= 1 else "WRONG", ratio))
        measure(contenders, Gpu(torch), options.rounds, options.repetitions, options.pause_ms, options.sustained_ms)
    return {"problem": {**asdict(cell), "heads": cell.heads}, "contenders": [entry(c, contenders) for c in contenders], "refused": refused}


def claims(cells):
    """[{what, value, target}]."""

    def of(other, lengths, backward):
        named = [{c["name"]: c for c in cell["contenders"]} for cell in cells.values() if (cell["problem"]["lengths"], cell["problem"]["backward"]) == (lengths, backward)]
        return [contenders[PACKED]["of"][other]["median"] for contenders in named if other in contenders]

    figures = []
    for backward, name in ((False, "forward"), (True, "backward")):
        figures += [
            (f"{name}: packed over padded, texts of different lengths, geometric mean", statistics.geometric_mean, of(PADDED, "mixed", backward), None),
            (f"{name}: packed over padded, equal texts: what packing costs, the least", min, of(PADDED, "equal", backward), None),
            (f"{name}: over FlashAttention-2's, texts of different lengths, the least", min, of(FA2, "mixed", backward), 1.0),
            (f"{name}: over FlashAttention-2's, all, geometric mean", statistics.geometric_mean, of(FA2, "mixed", backward) + of(FA2, "equal", backward), None),
        ]
    return claims_of(figures)


def main(arguments=None):
    """The program; returns its exit status."""
    return run_both_passes("packed_peers", __doc__.splitlines()[0], CELLS, measure_cell, claims, {"lengths": LENGTHS}, arguments)


if __name__ == "__main__":
    sys.exit(main())

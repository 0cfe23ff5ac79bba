"""Problems that may be cliffs, and what each is compared with: the rows of cliffs.py, but for those of the host."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from odd_elements import INPUTS, VALUES, Odd
from sparse_peers import BLOCK, DENSE_STEPS, FA2, STEP, make_mask

VALUES_SEQ = 4096
PLACES = {"first": 0, "middle": VALUES_SEQ // 2 + 37, "last": VALUES_SEQ - 1}  # the middle of a tile, too
LADDERS = ([(1, heads) for heads in (1, 16, 256, 4096, 70_000)], [(batch, 32) for batch in (1, 64, 512, 2048)])  # (batch, heads)
MOST_OF_A_GRID = 65535  # blocks along y and z: FlashAttention-2 has its heads there
SHARED = ((32, 1), (32, 8), (16, 2))
WHOLE = "heads that are not split over blocks"
DIMS = sorted([*range(8, 257, 8), 33, 63, 65, 127, 129])
SHORT = [dim for dim in DIMS if dim <= 129 and dim not in (32, 64, 96, 128)]
PADDED = [*(("forward", dim) for dim in [*SHORT, *range(200, 256, 8)]), *(("backward", dim) for dim in SHORT)]  # up to what has a tuned kernel
WINDOWS = (1, 16, 64, 256, 1024, 4096, 0)  # 0: none
UNEVEN = {  # lengths, and what they are compared with
    "one of 8192, then 8192 of 1": ((8192, *[1] * 8192), (4096,) * 4),
    "8192 of 1, then one of 8192": ((*[1] * 8192, 8192), (4096,) * 4),
    "two halves": ((8192, 8192), (16384,)),
    "powers of two": ((*(2**n for n in range(13, -1, -1)), 1), (5461,) * 3),
}
MASKS = ("one block", "block row", "block column")
PLANNED = ((32, 128, 64, "all"), (32, 4096, 64, "random"), (32, 16_384, 64, "random"), (16, 16_384, 128, "random"))


@dataclass(frozen=True)
class Case:
    """A problem of ours."""

    backward: bool = False
    batch: int = 1
    heads: int = 16
    kv_heads: int = 0  # 0: as many as heads
    seq: int = 2048
    dim: int = 64
    causal: bool = False
    window: int = 0
    lengths: tuple = ()  # of packed sequences: their sum is seq
    mask: str = ""  # of blocks: then step 07 serves, otherwise 05 or 06
    variant: str = ""  # of its own pass; without one, the best
    keeps_plan: bool = False  # of the mask, from one launch to the next

    @property
    def pass_(self):
        return "backward" if self.backward else "forward"

    @property
    def name(self):
        heads = f"{self.heads}/{self.kv_heads}" if self.kv_heads else self.heads
        options = ["causal"] * self.causal + [f"window {self.window}"] * bool(self.window) + [f"mask: {self.mask}"] * bool(self.mask)
        return ", ".join([self.pass_, f"{self.batch} × {heads} heads", f"{self.seq} tokens", f"d {self.dim}", *options])

    @property
    def steps(self):
        """Of its forward pass, and its own."""
        return (STEP, STEP) if self.mask else (DENSE_STEPS[False], DENSE_STEPS[self.backward])

    @property
    def live(self):
        """Blocks [heads, blocks, blocks] of the mask."""
        blocks = self.seq // BLOCK
        at, live = blocks // 2, np.zeros((blocks, blocks), bool)
        if self.mask in MASKS:
            live[{"one block": (at, at), "block row": at, "block column": (slice(None), at)}[self.mask]] = True
        else:
            live = make_mask(self.mask, 0.25, self.causal, 1, 1, blocks)[0]
        return np.broadcast_to(live, (self.heads, blocks, blocks))

    def seen(self, torch, device):
        """Pairs [1, queries, keys]."""
        seen = torch.ones((self.seq, self.seq), dtype=torch.bool, device=device)
        if self.causal:
            seen = seen.tril()
        if self.mask:
            live = torch.from_numpy(self.live[0].copy()).to(device)
            seen &= live.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return seen[None]


@dataclass(frozen=True)
class Row:
    group: str
    name: str
    case: Case
    of: str = ""  # what it is compared with, in words
    others: tuple = ()  # the same as problems: the fastest counts. None where `of` is FA2
    by_operation: bool = False
    fa2: bool = False  # whether FlashAttention-2's time stands beside, without an odd element
    odd: Odd | None = None


def value_rows():
    def row(case, odd, place):
        name = f"{'sparse ' * bool(case.mask)}{case.pass_}, {INPUTS[odd.tensor]} {odd.value}, {place}{', every head' * odd.every_head}{f', d {case.dim}' * (case.dim != 64)}"
        return Row("values", name, case, "the same without", (case,), fa2=not case.mask, odd=odd)

    for backward in (False, True):
        case = Case(backward, heads=32, seq=VALUES_SEQ, causal=True)
        for tensor, value, (place, at) in itertools.product([*"qkv"] + ["d_o"] * backward, VALUES, PLACES.items()):
            for every_head in (False, True) if value in ("inf", "nan") else (False,):
                yield row(case, Odd(tensor, value, at, every_head=every_head), f"{place} row")
        if backward:
            yield row(case, Odd("d_o", "inf", PLACES["middle"], whole_row=True), "all of the middle row")
            for dim, every_head in itertools.product((64, 128), (False, True)):
                yield row(replace(case, dim=dim), Odd("d_o", "inf", None, every_head=every_head), "one in each row")
        for tensor, value in [("v", "nan"), ("k", "inf")] + [("d_o", "inf")] * backward:
            yield row(replace(case, mask="band"), Odd(tensor, value, PLACES["middle"]), "middle row")


def head_rows():
    group = "heads and batch"
    for ladder, backward in itertools.product(LADDERS, (False, True)):
        cases = [Case(backward, batch, heads, seq=128) for batch, heads in ladder]
        for case, smaller in zip(cases, [(), *([case] for case in cases)], strict=False):
            yield Row(group, case.name, case, "the next smaller" if smaller else "", tuple(smaller), True, fa2=case.heads <= MOST_OF_A_GRID)
        for case in cases if not backward else ():
            sparse = replace(case, mask="all")
            yield Row(group, sparse.name, sparse, "step 05", (case,))


def shared_rows():
    for (heads, kv_heads), seq, dim, causal in itertools.product(SHARED, (1024, 4096), (64, 128), (False, True)):
        case = Case(True, 1, heads, kv_heads, seq, dim, causal)
        yield Row("shared heads", case.name, case, FA2, fa2=True)
        yield Row("shared heads", case.name, case, f"{heads} key/value heads", (replace(case, kv_heads=0),))
        yield Row("shared heads", case.name, case, WHOLE, (replace(case, variant=f"tuned_{dim}"),))


def dim_rows():
    for backward, dim in itertools.product((False, True), DIMS):
        case, above = Case(backward, dim=dim), -(-dim // 32) * 32
        others = tuple(replace(case, dim=other) for other in (above, above + 32) if other <= 256)
        yield Row("dims", case.name, case, "d " + " or ".join(str(other.dim) for other in others), others, True, fa2=True)


def window_rows():
    for backward, (window, larger) in itertools.product((False, True), itertools.pairwise(WINDOWS)):
        case = Case(backward, seq=4096, causal=True, window=window)
        yield Row("windows", case.name, case, f"window {larger}" if larger else "no window", (replace(case, window=larger),))


def uneven_rows():
    for backward, causal, (name, (lengths, even)) in itertools.product((False, True), (False, True), UNEVEN.items()):
        case = Case(backward, seq=sum(lengths), causal=causal, lengths=lengths)
        other = replace(case, seq=sum(even), lengths=even)
        what = f"{case.pass_}, {name}{', causal' * causal}"
        yield Row("uneven lengths", what, case, f"{len(even)} of {even[0]}", (other,), True, fa2=True)


def mask_rows():
    for backward, mask in itertools.product((False, True), MASKS):
        case = Case(backward, seq=8192, mask=mask)
        yield Row("masks", f"{case.pass_}, {mask}", case, "dense", (replace(case, mask=""),))


def plan_rows():
    for backward, (heads, seq, dim, mask) in itertools.product((False, True), PLANNED):
        case = Case(backward, heads=heads, seq=seq, dim=dim, mask=mask, keeps_plan=True)
        yield Row("plans", case.name, case, "a plan at each launch", (replace(case, keeps_plan=False),))


GROUPS = {
    "values": value_rows,
    "heads and batch": head_rows,
    "shared heads": shared_rows,
    "dims": dim_rows,
    "windows": window_rows,
    "uneven lengths": uneven_rows,
    "masks": mask_rows,
    "plans": plan_rows,
}

"""One odd element in the inputs of attention: which rows of the results depend on it (for cliffs.py)."""

import math
from dataclasses import dataclass, replace

APART = 2**-7  # what rows that do not depend on an odd element may differ by, as a share of the largest element
VALUES = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "lowest": -65504.0, "denormal": 2.0**-24}  # fp16
INPUTS = {"q": "Q", "k": "K", "v": "V", "d_o": "dO"}
RESULTS = {False: ("o", "lse"), True: ("dq", "dk", "dv")}  # by pass


@dataclass(frozen=True)
class Odd:
    """An element of an input that is not like the others."""

    tensor: str  # of INPUTS
    value: str  # of VALUES
    row: int | None  # None: one element in each row, at a random column
    whole_row: bool = False
    every_head: bool = False  # otherwise the first one

    @property
    def heads(self):
        return slice(None) if self.every_head else slice(0, 1)

    def put(self, torch, tensors):
        """Into tensors [batch, heads, rows, dim], by name."""
        x, value = tensors[self.tensor][:, self.heads], VALUES[self.value]
        if self.row is None:
            columns = torch.randint(x.shape[-1], (*x.shape[:-1], 1), device=x.device)
            x.scatter_(-1, columns, value)
        else:
            x[:, :, self.row, slice(None) if self.whole_row else x.shape[-1] // 3] = value


def by_tiles(pairs, queries, keys):
    """Pairs [heads, rows, columns] as a kernel multiplies them: all of a tile that holds one."""
    tiles = pairs.unflatten(2, (-1, keys)).unflatten(1, (-1, queries))
    return tiles.any(4, keepdim=True).any(2, keepdim=True).expand_as(tiles).flatten(1, 2).flatten(2)


def not_finite(torch, q, k, v, d_o, seen, multiplied):
    """Which rows [heads, rows] of each result are not finite, of inputs [heads, rows, dim]: by name, three times. First those that must be
    so. Then those that may be: a query whose scores are all −∞ may add nothing to a gradient, or 0 · NaN (docs/checking.md). Then those that
    a kernel would make so which adds all products of `multiplied` pairs and repairs nothing. Pairs: [1, rows, rows]."""
    odd_q, odd_k, odd_v, odd_d_o = (~x.isfinite().all(-1) for x in (q, k, v, d_o))
    scores = q.float() @ k.float().mT
    lse = (seen & (scores.isnan() | (scores == math.inf))).any(-1)
    empty = (~seen | (scores == -math.inf)).all(-1)
    del scores
    delta = lse | (seen & odd_v[:, None]).any(-1) | odd_d_o

    def of(pairs):
        to_keys = lambda rows: (pairs & rows[:, :, None]).any(1)
        return {
            "o": lse | (pairs & odd_v[:, None]).any(-1),
            "lse": lse | empty,
            "dq": (pairs & (delta[:, :, None] | (odd_k | odd_v)[:, None])).any(-1),
            "dk": to_keys(delta | odd_q),
            "dv": to_keys(lse | odd_d_o),
        }

    return of(seen & ~empty[:, :, None]), of(seen), of(multiplied)


def judge(torch, odd, backward, pairs, inputs, results, clean):
    """(whether the results are right; whether products of tiles spread what is not finite to rows, or elements of dV, that do not depend on
    it). `pairs`: those that are seen, and those that the kernel multiplies. `inputs` by name, `results` in the order of RESULTS, and `clean`,
    the same results without the odd element: all [1, heads, rows, dim], but LSE, which has no dim."""
    of_heads = lambda tensors: [x[0, odd.heads] for x in tensors.values()]
    least, most, of_tiles = not_finite(torch, *of_heads(inputs), *pairs)
    spread = any(bool((of_tiles[name] & ~most[name]).any()) for name in RESULTS[backward])
    if odd.tensor == "d_o":
        columns = ~inputs["d_o"][0, odd.heads].isfinite()
        of_dv, of_products = ((some.float().mT @ columns.float()) > 0 for some in pairs)
        spread = spread or bool((of_products & ~of_dv).any())
    other = {**inputs, odd.tensor: inputs[odd.tensor].clone()}
    replace(odd, value="nan").put(torch, other)
    _, depends, _ = not_finite(torch, *of_heads(other), *pairs)
    if odd.value == "lowest":
        most = depends  # a product may overflow
    right = True
    for name, result, before in zip(RESULTS[backward], results, clean, strict=True):
        found = ~result[0].isfinite() if name == "lse" else ~result[0].isfinite().all(-1)
        of_odd = found[odd.heads]
        right &= not bool(((least[name] & ~of_odd) | (of_odd & ~most[name])).any())
        same = torch.ones_like(found)
        same[odd.heads] = ~depends[name]
        apart = (result[0].float() - before[0].float()).abs()[same]
        right &= not apart.numel() or bool(apart.max() <= APART * before.abs().max())  # no NaN is, and no infinity
    return right, spread

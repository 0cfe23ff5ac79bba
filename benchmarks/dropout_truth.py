"""What is known of results with dropout: the mask of our kernels by the place of a pair, and mean and variance of results whose mask
nobody knows. No GPU is needed here; the mask is computed with NumPy or with PyTorch.
"""

import math

SLOPE, SPREAD = 0.02, 0.15  # what Statistics allows: see there


# ---- the mask of our kernels ----


def philox(counter, key, rounds=7):
    """Philox 4x32: four arrays of words for four arrays of counters (int64, from 0 to 2³² − 1), which are broadcast. `key`: two numbers.
    A product has 64 bits and may be negative as an int64; its 64 bits are right."""
    low = 0xFFFFFFFF
    c, (k0, k1) = counter, key
    for _ in range(rounds):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = (b >> 32 & low) ^ c[1] ^ k0, b & low, (a >> 32 & low) ^ c[3] ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c


def kept(xp, n, seed, batches, heads, queries, keys):
    """Whether dropout keeps each pair [heads, queries, keys], as common/device/dropout.h decides it: n of 256 are left out. The numbers of
    batch entries and heads [heads], of queries and of keys are arrays of int64; xp is numpy or torch, whichever they are of."""
    octets = 3 << 3  # bits 3 and 4: 16 pairs share a call
    (some_queries, of_query), (some_keys, of_key) = (xp.unique(x & ~octets, return_inverse=True) for x in (queries, keys))
    counter = some_queries[:, None], some_keys, heads[:, None, None], batches[:, None, None]
    words = xp.stack(philox(counter, (seed & 0xFFFFFFFF, seed >> 32)))  # [4, heads, some queries, some keys]
    words = words[queries >> 3 & 3, :, of_query][..., of_key]  # [queries, heads, keys]
    return ((words >> (keys & octets) & 255) >= n).swapaxes(0, 1)


def weights(torch, n, seed, heads, begin, end, queries, keys, device):
    """What P is multiplied by [end − begin, queries, keys], in double precision: 0 or 256 / (256 − n). Of heads `begin` to `end` of all
    batch entries' heads, of which each entry has `heads`; `queries`: their numbers; `keys`: how many."""
    flat = torch.arange(begin, end, device=device)
    queries = torch.as_tensor(queries, device=device)
    of_pairs = kept(torch, n, seed, flat // heads, flat % heads, queries, torch.arange(keys, device=device))
    return of_pairs.double() * (256 / (256 - n))


# ---- results with a mask that nobody knows ----


def probabilities(torch, q, k, causal, rows):
    """P [heads, rows, keys] in double precision."""
    scores = q[:, rows].double() @ k.double().mT / math.sqrt(q.shape[-1])
    if causal:
        scores.masked_fill_(torch.arange(k.shape[1], device=q.device) > rows[:, None], -math.inf)
    return scores.softmax(-1)


def forward_moments(torch, q, k, v, causal, rows):
    """[(mean, variance)] of O [heads, rows, dim] in the sampled rows; the variance is that of a mask whose odds are 1."""
    p, v = probabilities(torch, q, k, causal, rows), v.double()
    return [(p @ v, p**2 @ v**2)]


def backward_moments(torch, q, k, v, d_o, causal, rows):
    """[(mean, variance)] of dQ, dK and dV. D = rowsum(P ∘ dP) has the mask in it as dP has; so dQ and dK are linear in the mask. An element M_il
    adds P_il dP_il (K_l − Σ_j P_ij K_j) to row i of dQ, and −P_ij P_il dP_il Q_i to row j of dK, if j is l P_ij dP_ij (1 − P_ij) Q_i."""
    p = probabilities(torch, q, k, causal, torch.arange(q.shape[1], device=q.device))
    q, k, v, d_o = (x.double() for x in (q, k, v, d_o))
    dp, scale = d_o @ v.mT, 1 / math.sqrt(q.shape[-1])
    terms = p * dp
    delta, squares = terms.sum(-1, keepdim=True), terms.square().sum(-1, keepdim=True)
    of_queries, p_of_queries, p_of_keys = terms[:, rows], p[:, rows], p[:, :, rows]
    ds_of_queries, ds_of_keys = of_queries - p_of_queries * delta[:, rows], terms[:, :, rows] - p_of_keys * delta
    centre, of_queries = p_of_queries @ k, of_queries**2
    spread_of_dq = of_queries @ k**2 - 2 * centre * (of_queries @ k) + centre**2 * squares[:, rows]
    spread_of_dk = (p_of_keys**2 * (dp[:, :, rows] ** 2 * (1 - 2 * p_of_keys) + squares)).mT @ q**2
    return [
        (scale * ds_of_queries @ k, scale**2 * spread_of_dq),
        (scale * ds_of_keys.mT @ q, scale**2 * spread_of_dk),
        (p_of_keys.mT @ d_o, (p_of_keys**2).mT @ d_o**2),
    ]


class Statistics:
    """Judges results [batch, heads, seq, dim] with a mask that nobody knows, in sampled rows of every head. Without the mask there is no
    right value; but each pair is left out with the probability `share`, by itself, and the others are multiplied by 1 / (1 − share). So
    each element has a mean, that without dropout, and a variance, and both are known. Two figures must be 1:

        slope    of the results over their means, weighted by 1 / variance: within 2 %; without the factor it is 1 − share
        spread   (result − mean)² / variance, on average: within 15 %; without dropout it is 0, with twice the share more than 2

    An error in single elements, or masks that depend on each other, this does not find."""

    def __init__(self, torch, moments, inputs, causal, rows, share, pairs=2**28):
        """`moments`: forward_moments or backward_moments; inputs [batch, heads, seq, dim]; `pairs`: so many at a time."""
        self._rows = torch.tensor(rows, device=inputs[0].device)
        heads = [x.flatten(0, 1) for x in inputs]
        at_once = max(1, pairs // inputs[0].shape[2] ** 2)
        parts = [moments(torch, *(x[first : first + at_once] for x in heads), causal, self._rows) for first in range(0, len(heads[0]), at_once)]
        odds = share / (1 - share)
        self._moments = [(torch.cat([mean for mean, _ in part]), odds * torch.cat([variance for _, variance in part])) for part in zip(*parts, strict=True)]

    def figures(self, *results):
        """[(slope, spread)] of each result."""
        found = []
        for result, (mean, variance) in zip(results, self._moments, strict=True):
            tells = variance > 1e-6 * variance.mean()  # a query that sees one key has dQ = 0, with any mask
            x, mean, variance = result.flatten(0, 1)[:, self._rows].double()[tells], mean[tells], variance[tells]
            slope = (x * mean / variance).sum() / (mean**2 / variance).sum()
            found.append((slope.item(), ((x - mean) ** 2 / variance).mean().item()))
        return found

    def worst_ratio(self, *results):
        """The largest distance of a figure from 1 over what is allowed; infinite where an element is not finite. At most 1 is right."""
        if not all(x.isfinite().all() for x in results):
            return math.inf
        return max(ratio for slope, spread in self.figures(*results) for ratio in (abs(slope - 1) / SLOPE, abs(spread - 1) / SPREAD))

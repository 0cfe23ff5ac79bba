"""What to expect of rounding, from double precision alone.

Rounding changes a number x by an error of at most u · |x|, where u is the type's UNIT: 2⁻¹¹ in fp16, 2⁻⁸ in bf16. It is spread evenly between
−u · |x| and u · |x| at worst, so its standard deviation is at most u · |x| / √3. If the gradient of the loss with respect to x is dx, the
error moves the loss by dx times it. Errors of many numbers are independent, so their squares add up:

    standard deviation of the loss  ≤  u / √3 · √( Σ (dx · x)² )      over all that is rounded: Q, K, V, P and O

This is the noise of one step. What rounding did in earlier steps, to the parameters, comes on top.
"""

import block
import numpy as np
from attentions import InNumPy, transposed


class Watched(InNumPy):
    """The attention in double precision, which also says what rounding would do."""

    noise = None  # of the last step: the bound above, over u

    def forward(self, q, k, v, seed):
        self._inputs = q, k, v
        return super().forward(q, k, v, seed)

    def backward(self, d_o):
        gradients = super().backward(d_o)
        _, _, v, p, mask, weight, _, o = self._saved
        dp = mask * weight * (d_o @ transposed(v))
        moved = [dx * x for dx, x in zip((*gradients, d_o, dp), (*self._inputs, o, p), strict=True)]
        self.noise = np.sqrt(sum((of**2).sum() for of in moved) / 3) / block.LOSS_SCALE
        return gradients


def expected(of_256=0, steps=block.STEPS):
    """Yields (loss, noise) of each step in double precision; the noise times a type's UNIT is the standard deviation that its rounding gives
    the loss, at most."""
    attention = Watched(of_256=of_256)
    for loss in block.train(attention, steps):
        yield loss, attention.noise

"""What step 07 does on the tour: the layer's attention of the longest input, under a mask of blocks, and its gradients."""

from tools.measure.layers import BLOCK, Stop, masked_layer

NOTE = (
    "Step 07 computes the same layer on the model's longest input, 512 tokens, under a mask. The mask keeps the fewest blocks of 128 × 128 that hold 95 % of "
    "the probability. “Off the model” is the distance from this masked attention in double precision, and from the gradients of half the sum of O²."
)


def stops(step, _):
    masked = masked_layer()
    inputs = {"q": masked.q, "k": masked.k, "v": masked.v}
    flags = ["--dtype", "fp16", "--block-q", str(BLOCK), "--block-k", str(BLOCK)]
    common = {"dtype": "fp16", "mask": masked.mask, "note": NOTE}
    return [
        Stop(step, "attention under a mask of blocks", inputs, flags, {"o": masked.o}, **common),
        Stop(step, "gradients under that mask", inputs | {"do": masked.o}, ["--backward", *flags], masked.gradient, **common),
    ]

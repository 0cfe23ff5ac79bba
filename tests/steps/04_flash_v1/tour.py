"""What step 04 does on the tour: the attention."""

from tools.measure.layers import attention


def stops(step, layer):
    return [attention(step, layer, "fp16", long=("scalar_48k", "scalar_99k", "scalar"))]

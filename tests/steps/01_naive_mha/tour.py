"""What step 01 does on the tour: the attention, and the whole layer."""

from tools.measure.layers import LAYER, Stop, attention

LONG = ("row_per_thread", "element_uncoalesced", "element_coalesced", "block_softmax", "scores_bshs")


def stops(step, layer):
    whole = Stop(step, "the whole layer", {}, ["--layer", LAYER], {"y": layer.y}, "fp32", "default", "{}, layer")
    return [attention(step, layer, "fp32", LONG), whole]

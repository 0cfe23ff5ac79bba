"""What step 03 does on the tour: the softmax of the attention's scores."""

from tools.measure.layers import Stop


def stops(step, layer):
    rows = lambda values: values.reshape(-1, values.shape[-1])  # of all heads
    return [Stop(step, "its softmax", {"x": rows(layer.scores)}, ["--dtype", "fp32"], {"y": rows(layer.p)})]

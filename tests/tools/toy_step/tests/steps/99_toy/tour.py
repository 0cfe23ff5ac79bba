"""What step 99 does on the tour: the softmax of the first head's scores."""

from tools.measure.layers import Stop


def stops(step, layer):
    return [Stop(step, "the softmax of a head", {"x": layer.scores[0]}, ["--dtype", "fp32"], {"y": layer.p[0]})]

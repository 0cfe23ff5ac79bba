"""What step 08 does on the tour: the projection that makes Q, K and V, of a few tokens instead of all 207."""

from tools.measure.layers import Stop


def projection(step, layer, tokens):
    x = layer.x[:tokens]
    inputs, truth = {"a": x, "b": layer.weight, "bias": layer.bias}, {"c": x @ layer.weight.T + layer.bias}
    return Stop(step, "the projection that makes Q, K and V", inputs, ["--dtype", "fp16"], truth, "fp16", label="{}, m = " + str(tokens))


def stops(step, layer):
    return [projection(step, layer, tokens) for tokens in (1, 7, 16)]

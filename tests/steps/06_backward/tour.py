"""What step 06 does on the tour: the gradients of a loss."""

from tools.measure.layers import Stop, first_heads

LONG = ("standard", "recompute")
NOTE = (
    "Step 06 gets the dO of a loss. The loss is half the sum of squared distances, from the layer's output for a token to its input for the next token. "
    "dq, dk and dv are compared with the gradients of this loss that PyTorch's autograd computed in double precision."
)


def stops(step, layer):
    inputs = {"q": layer.q, "k": layer.k, "v": layer.v, "do": layer.gradient["do"]}
    truth = {name: layer.gradient[name] for name in ("dq", "dk", "dv")}
    what = "the gradients of a loss through that attention"
    return [Stop(step, what, inputs, ["--dtype", "fp16"], truth, "fp16", note=NOTE, long=LONG, shorter=first_heads)]

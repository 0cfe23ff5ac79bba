"""What step 09 does on the tour: the layer's last tokens, as if the others had come before, and their keys and values were kept."""

import numpy as np

from tools.measure.layers import Stop

QUERIES = 7
NOTE = (
    f"Step 09 has only the last {QUERIES} tokens as queries. They read the keys and values of all 207 tokens, and a token sees none that come after it. "
    "“Off the model” is the distance from this causal attention in double precision; the layer itself has no mask."
)


def stops(step, layer):
    q = layer.q[:, -QUERIES:]
    tokens = np.arange(len(layer.x))
    seen = tokens[None, :] <= tokens[-QUERIES:, None]
    p = np.exp(np.where(seen, layer.scores[:, -QUERIES:], -np.inf))
    truth = {"o": p / p.sum(axis=-1, keepdims=True) @ layer.v}
    inputs = {"q": q, "k": layer.k, "v": layer.v}
    return [Stop(step, f"attention of the last {QUERIES} tokens", inputs, ["--dtype", "fp16", "--causal"], truth, "fp16", note=NOTE)]

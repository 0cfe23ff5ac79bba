"""One transformer block that learns a paragraph, forwards and backwards, in NumPy and double precision.

The text and the attention layer are those of data/minilm_layer. For token numbers t [tokens]:

    x        = embedding[t]                                   [tokens, width]
    q, k, v  = x · in_projᵀ + bias                            each [1, heads, tokens, width / heads]
    o        = attention(q, k, v), causal                     by whomever the caller names: attentions.py
    y        = norm(x + o · out_projᵀ + bias)                 [tokens, width]
    z        = norm(y + silu(y · mlp_inᵀ + bias) · mlp_outᵀ + bias)
    logits   = z · headᵀ + bias                               [tokens, words]
    loss     = the mean of −log softmax(logits)[the next token], over all tokens but the last

in_proj and out_proj start as the real layer's. The embedding of a word starts as the mean of its hidden states in x.npy; the rest
starts at random. All of them learn. There are no positions: the causal mask alone tells one place of a word from another.

What this is not: a test of a language model. We read one text, and x.npy comes from a model that had read it in both directions. So the
loss says how well the block learns this text by heart. That is enough to see whether training feels the rounding of its attention.
"""

import json
from pathlib import Path

import numpy as np

LAYER = Path(__file__).resolve().parents[2] / "data" / "minilm_layer"
HEADS = json.loads((LAYER / "layer.json").read_text())["heads"]
STEPS = 200
RATE, MOMENTUM = 0.005, 0.9
EPSILON = 1e-5  # of the norms
# Gradients of attention near 1e-5 would lose bits in fp16, whose normal numbers begin at 6.1e-5. So the loss is multiplied by this before
# the backward pass, and the gradients are divided by it afterwards. A power of two changes no bit in double precision.
LOSS_SCALE = 1024.0


def seed_of(step):
    """Of the dropout of a step; steps count from 0."""
    return 1 + step


def words():
    """The text, token by token."""
    return (LAYER / "tokens.txt").read_text().split()


def token_numbers():
    """[tokens]: the words of the text, numbered in the order in which they first come."""
    numbers = {word: n for n, word in enumerate(dict.fromkeys(words()))}
    return np.array([numbers[word] for word in words()])


def initial_parameters():
    """{name: array} in double precision, the same in every run; weights are [out, in]."""
    tokens, x = token_numbers(), np.load(LAYER / "x.npy")[0]
    width, different = x.shape[1], tokens.max() + 1
    random = np.random.default_rng(1)
    parameters = {"embedding": np.stack([x[tokens == word].mean(axis=0) for word in range(different)])}
    for name in ("in_proj", "out_proj"):
        parameters |= {f"{name}_{part}": np.load(LAYER / f"{name}_{part}.npy") for part in ("weight", "bias")}
    for name, out in (("mlp_in", width), ("mlp_out", width), ("head", different)):
        parameters |= {f"{name}_weight": 0.02 * random.standard_normal((out, width)), f"{name}_bias": np.zeros(out)}
    for name in ("norm_1", "norm_2"):
        parameters |= {f"{name}_weight": np.ones(width), f"{name}_bias": np.zeros(width)}
    return {name: array.astype(np.float64) for name, array in parameters.items()}


# ---- the parts: each with its gradients. p: the parameters; g: where gradients of parameters go ----


def linear(x, p, name):
    return x @ p[f"{name}_weight"].T + p[f"{name}_bias"]


def linear_gradient(d_y, x, p, g, name):
    """d_x, for y = linear(x)."""
    g[f"{name}_weight"], g[f"{name}_bias"] = d_y.T @ x, d_y.sum(axis=0)
    return d_y @ p[f"{name}_weight"]


def norm(x, p, name):
    """(y, what the gradient needs): each row with mean 0 and variance 1, times a weight, plus a bias."""
    centred = x - x.mean(axis=1, keepdims=True)
    factor = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON)
    normed = centred * factor
    return normed * p[f"{name}_weight"] + p[f"{name}_bias"], (normed, factor)


def norm_gradient(d_y, saved, p, g, name):
    """d_x, for y = norm(x)."""
    normed, factor = saved
    g[f"{name}_weight"], g[f"{name}_bias"] = (d_y * normed).sum(axis=0), d_y.sum(axis=0)
    d_normed = d_y * p[f"{name}_weight"]
    along = (d_normed * normed).mean(axis=1, keepdims=True)
    return factor * (d_normed - d_normed.mean(axis=1, keepdims=True) - normed * along)


def silu(u):
    """(u · sigmoid(u), its derivative). It is smooth. The derivative of max(0, u) has a jump, at which rounding may switch a unit off."""
    sigmoid = 1 / (1 + np.exp(-u))
    return u * sigmoid, sigmoid * (1 + u * (1 - sigmoid))


def heads_of(x):
    """[tokens, width] as [1, heads, tokens, width / heads]."""
    return np.ascontiguousarray(x.reshape(len(x), HEADS, -1).swapaxes(0, 1))[None]


def without_heads(x):
    """The way back."""
    return x[0].swapaxes(0, 1).reshape(x.shape[2], -1)


# ---- the block ----


def loss_and_gradients(p, tokens, attention, seed):
    """(loss, {name: LOSS_SCALE times the gradient}). attention: as attentions.py says; seed: of its dropout."""
    g = {}
    x = p["embedding"][tokens]
    qkv = np.split(linear(x, p, "in_proj"), 3, axis=1)
    o = without_heads(attention.forward(*map(heads_of, qkv), seed))
    y, saved_1 = norm(x + linear(o, p, "out_proj"), p, "norm_1")
    hidden, slope = silu(linear(y, p, "mlp_in"))
    z, saved_2 = norm(y + linear(hidden, p, "mlp_out"), p, "norm_2")
    logits = linear(z[:-1], p, "head")

    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    here, following = np.arange(len(tokens) - 1), tokens[1:]
    loss = -log_p[here, following].mean()

    d_logits = np.exp(log_p)
    d_logits[here, following] -= 1
    d_z = np.zeros_like(z)  # the last token has no next one
    d_z[:-1] = linear_gradient(LOSS_SCALE / len(here) * d_logits, z[:-1], p, g, "head")
    d_sum = norm_gradient(d_z, saved_2, p, g, "norm_2")
    d_u = linear_gradient(d_sum, hidden, p, g, "mlp_out") * slope
    d_y = d_sum + linear_gradient(d_u, y, p, g, "mlp_in")
    d_sum = norm_gradient(d_y, saved_1, p, g, "norm_1")
    d_o = linear_gradient(d_sum, o, p, g, "out_proj")
    d_qkv = np.concatenate([without_heads(d) for d in attention.backward(heads_of(d_o))], axis=1)
    d_x = d_sum + linear_gradient(d_qkv, x, p, g, "in_proj")
    g["embedding"] = np.zeros_like(p["embedding"])
    np.add.at(g["embedding"], tokens, d_x)  # a word that comes twice gets both
    return loss, g


def train(attention, steps=STEPS):
    """Yields the loss of each step, before the step changes the parameters: gradient descent with momentum."""
    parameters, tokens = initial_parameters(), token_numbers()
    velocity = {name: np.zeros_like(array) for name, array in parameters.items()}
    for step in range(steps):
        loss, gradients = loss_and_gradients(parameters, tokens, attention, seed_of(step))
        yield float(loss)
        for name, array in parameters.items():
            velocity[name] = MOMENTUM * velocity[name] + gradients[name] / LOSS_SCALE
            array -= RATE * velocity[name]


def loss_without_context():
    """The least loss of a model that sees only the current token: −mean log of how often the next one follows it in this text."""
    tokens = token_numbers()
    follows = np.zeros((tokens.max() + 1,) * 2)
    np.add.at(follows, (tokens[:-1], tokens[1:]), 1)
    share = follows[tokens[:-1], tokens[1:]] / follows.sum(axis=1)[tokens[:-1]]
    return float(-np.log(share).mean())

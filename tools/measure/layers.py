"""The attention layer that the tour runs the steps on, in double precision, and what a step's tour.py says with it.

A step's tests/steps/NN_name/tour.py defines stops(step, layer): its Stops, in the order of the report. A program without variants has PROGRAM, a few words on
it, instead.
"""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LAYER = ROOT / "data" / "minilm_layer"
LONG_LAYER = ROOT / "data" / "minilm_long"
WHOLE = "whole"
HEADS_OF_PART = 3  # a quarter
BLOCK = 128  # queries and keys of a block of the mask


class Layer:
    """The layer in double precision: q, k, v, p and o are [heads, tokens, dim], or [heads, tokens, tokens]; so are do, dq, dk and dv in
    `gradient`, which PyTorch's autograd computed when the data was made."""

    def __init__(self):
        heads = json.loads((LAYER / "layer.json").read_text())["heads"]
        names = ("x", "y_model", "in_proj_weight", "in_proj_bias")
        x, y, self.weight, self.bias = (np.load(LAYER / f"{name}.npy").astype(np.float64) for name in names)
        self.x, self.y = x[0], y[0]
        tokens, width = self.x.shape
        self.product = self.x @ self.weight.T  # without the bias
        self.q, self.k, self.v = (self.product + self.bias).reshape(tokens, 3, heads, width // heads).transpose(1, 2, 0, 3)
        self.scores = self.q @ self.k.transpose(0, 2, 1) / np.sqrt(self.q.shape[-1])
        p = np.exp(self.scores - self.scores.max(axis=-1, keepdims=True))
        self.p = p / p.sum(axis=-1, keepdims=True)
        self.o = self.p @ self.v
        self.gradient = {name: np.load(LAYER / f"{name}.npy")[0].astype(np.float64) for name in ("do", "dq", "dk", "dv")}
        self.text = (LAYER / "tokens.txt").read_text().splitlines()[:tokens]


class MaskedLayer:
    """The same layer on its model's longest input, under the mask of blocks that lies beside it, in double precision; and the gradients of half the
    sum of O², so that dO is O. q, k, v, o, dq, dk, dv are [heads, tokens, dim]."""

    def __init__(self):
        self.q, self.k, self.v = (np.load(LONG_LAYER / f"{name}.npy")[0].astype(np.float64) for name in "qkv")
        self.mask = {name: np.load(LONG_LAYER / f"{name}.npy") for name in ("block_mask", "head_type")}
        blocks = self.mask["block_mask"][0] | (self.mask["head_type"] == 0)[:, None, None]  # dense heads see all
        seen = np.repeat(np.repeat(blocks, BLOCK, axis=1), BLOCK, axis=2)
        scale = 1 / np.sqrt(self.q.shape[-1])
        scores = np.where(seen, scale * self.q @ self.k.transpose(0, 2, 1), -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        self.o = p @ self.v
        ds = p * (self.o @ self.v.transpose(0, 2, 1) - (self.o * self.o).sum(axis=-1, keepdims=True))
        self.gradient = {"dq": scale * ds @ self.k, "dk": scale * ds.transpose(0, 2, 1) @ self.q, "dv": p.transpose(0, 2, 1) @ self.o}


masked_layer = functools.cache(MaskedLayer)


@dataclass
class Stop:
    """What a step does on the tour."""

    step: str
    what: str
    inputs: dict  # {file: array}; none where the step reads the layer itself
    flags: list
    truth: dict  # {file that is compared: what it should hold}
    dtype: str = "fp32"
    variant: str = "all"
    label: str = "{}"  # of its rows
    part: str = WHOLE  # of the real input
    mask: dict = field(default_factory=dict)  # {file: array} of a sparse mask
    note: str = ""  # on its rows, below the table
    long: tuple = ()  # variants that run on a part of the input, because the simulator would take up to half a minute: all are without tensor cores
    shorter: Callable | None = None  # makes of this stop the one on that part

    def tokens(self, layer):
        if "a" in self.inputs:
            return len(self.inputs["a"])
        return self.inputs["q"].shape[-2] if self.mask else len(layer.x)


def first_heads(stop):
    """The same stop on its first heads."""
    some = slice(HEADS_OF_PART)
    inputs, truth = ({name: values[some] for name, values in arrays.items()} for arrays in (stop.inputs, stop.truth))
    return replace(stop, inputs=inputs, truth=truth, part=f"{HEADS_OF_PART} of {len(stop.inputs['q'])} heads")


def attention(step, layer, dtype, long=()):
    """All heads of the layer's attention, for a step that computes it."""
    inputs = {"q": layer.q, "k": layer.k, "v": layer.v}
    return Stop(step, f"{len(layer.q)} heads of attention", inputs, ["--dtype", dtype], {"o": layer.o}, dtype, long=long, shorter=first_heads)

"""Who computes the attention of block.py: NumPy, or the programs of steps 05 and 06.

All take q, k and v [1, heads, tokens, dim], are causal, scale the scores by 1/√dim, and leave out `of_256` of 256 probabilities:

    o = attention.forward(q, k, v, seed)       seed: of the dropout
    dq, dk, dv = attention.backward(d_o)       of the last forward pass

Arrays come and go in double precision.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from dropout import kept

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("FLASHSTEPS_BIN", ROOT / "build" / "sim" / "bin"))
FORWARD, BACKWARD = "05_flash_v2", "06_backward"
UNIT = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}  # rounding changes x by at most UNIT · |x|


def rounded(x, dtype):
    """An array in the nearest numbers of a type: float64 for fp64, else float32 that holds them. Finite numbers only."""
    if dtype == "fp16":
        return x.astype(np.float16).astype(np.float32)
    if dtype == "bf16":  # the upper half of an fp32; ties go to even
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
        return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(np.float32)
    return x.astype({"fp64": np.float64, "fp32": np.float32}[dtype])


def transposed(x):
    return x.swapaxes(-1, -2)


class InNumPy:
    """With dtype "fp64", the truth. With others, what rounding does: sums in fp32, and rounded is what the type stores.

    tiled: round as our kernels do, also P and dS before they are multiplied, and O is divided by the row's sum at the end. Else round what
    goes in and comes out alone, as PyTorch's attention by single operations does."""

    def __init__(self, dtype="fp64", of_256=0, tiled=True):
        self._dtype, self._of_256, self._tiled = dtype, of_256, tiled

    def _operand(self, x):
        """x as it is multiplied."""
        return rounded(x, self._dtype) if self._tiled else x

    def forward(self, q, k, v, seed):
        q, k, v = (rounded(x, self._dtype) for x in (q, k, v))
        real, tokens = q.dtype.type, q.shape[2]
        scale = real(q.shape[3] ** -0.5)
        weight = real(256 / (256 - self._of_256))  # of the kept pairs
        mask = kept(q.shape[1], tokens, self._of_256, seed) if self._of_256 else real(1)
        scores = np.where(np.tri(tokens, dtype=bool), scale * (q @ transposed(k)), real(-np.inf))
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        total = e.sum(axis=-1, keepdims=True)
        p = e / total
        o = (self._operand(e) * mask @ v) * weight / total if self._tiled else p * mask * weight @ v
        self._saved = q, k, v, p, mask, weight, scale, rounded(o, self._dtype)
        return self._saved[-1].astype(np.float64)

    def backward(self, d_o):
        q, k, v, p, mask, weight, scale, o = self._saved
        d_o = rounded(d_o, self._dtype)
        dv = weight * (transposed(self._operand(p) * mask) @ d_o)
        dp = mask * weight * (d_o @ transposed(v))
        delta = (d_o * o if self._tiled else p * dp).sum(axis=-1, keepdims=True)  # the same sum, but that O was rounded
        ds = self._operand(p * (dp - delta))
        dq, dk = scale * (ds @ k), scale * (transposed(ds) @ q)
        return [rounded(x, self._dtype).astype(np.float64) for x in (dq, dk, dv)]


class Programs:
    """Steps 05 and 06, each a run of its program: in the simulator, or on a GPU if FLASHSTEPS_BIN names that build. They make the mask
    themselves. FileNotFoundError if they are not built; RuntimeError, with the program's words, if they refuse."""

    def __init__(self, dtype="fp16", of_256=0):
        for name in (FORWARD, BACKWARD):
            if not (BIN / name).is_file():
                raise FileNotFoundError(f"{BIN / name} is not built: run make sim first")
        self._dtype, self._of_256 = dtype, of_256
        self._held = tempfile.TemporaryDirectory()
        self._folder = Path(self._held.name)

    def _write(self, **arrays):
        for name, array in arrays.items():  # .npy has no bf16: the program rounds fp32
            np.save(self._folder / f"{name}.npy", array.astype(np.float16 if self._dtype == "fp16" else np.float32))

    def _run(self, name, fp32_variant, *outputs):
        """Reads the folder, writes into it; returns outputs."""
        command = [BIN / name, "--input", self._folder, "--output", self._folder, "--causal", "--no-check", "--dtype", self._dtype]
        if self._dtype == "fp32":  # the default variants multiply in 16 bits
            command += ["--variant", fp32_variant]
        if self._of_256:
            command += ["--dropout", str(self._of_256 / 256), "--dropout-seed", str(self._seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return [np.load(self._folder / f"{output}.npy").astype(np.float64) for output in outputs]

    def forward(self, q, k, v, seed):
        self._seed = seed
        self._write(q=q, k=k, v=v)
        return self._run(FORWARD, "scalar", "o")[0]  # and lse.npy, which the backward pass reads

    def backward(self, d_o):
        self._write(do=d_o)
        return self._run(BACKWARD, "recompute", "dq", "dk", "dv")

"""The block of block.py in PyTorch: fp32 parameters, attention in 16 bits, gradients by autograd. Runs on a GPU, and on a CPU.

An attention here is a function of q, k and v [1, heads, tokens, dim] and of the seed of its dropout; it returns o, and autograd knows
its gradients.
"""

import sys
from functools import partial
from pathlib import Path

import block
import numpy as np
import torch
import torch.nn.functional as F
from dropout import kept
from torch.optim import SGD

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def by_pytorch(q, k, v, seed, of_256):
    """PyTorch's attention: without dropout the kernel that it chooses by itself. Its kernels make masks of their own; the function that PyTorch's
    tests hold them to takes ours. It computes in fp32 from the rounded q, k and v."""
    if not of_256:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.from_numpy(kept(q.shape[1], q.shape[2], of_256, seed)).to(q.device)
    math = torch.ops.aten._scaled_dot_product_attention_math
    return math(q, k, v, dropout_p=of_256 / 256, is_causal=True, dropout_mask=mask)[0]


def by_flashsteps(q, k, v, seed, of_256):
    """Ours, by examples/flashsteps_torch.py: on a GPU the kernels, on a CPU the simulator."""
    from flashsteps_torch import attention

    return attention(q, k, v, causal=True, dropout=of_256 / 256, dropout_seed=seed)


def attention_of(name, of_256):
    """"torch" or "flashsteps", which needs its libraries."""
    if name == "flashsteps":
        folder = str(Path(__file__).resolve().parents[1])
        if folder not in sys.path:
            sys.path.append(folder)
    return partial({"torch": by_pytorch, "flashsteps": by_flashsteps}[name], of_256=of_256)


def loss_of(p, tokens, attention, dtype, seed):
    """block.loss_and_gradients in PyTorch, forwards. p: {name: tensor}."""
    linear = lambda x, name: F.linear(x, p[f"{name}_weight"], p[f"{name}_bias"])
    norm = lambda x, name: F.layer_norm(x, x.shape[1:], p[f"{name}_weight"], p[f"{name}_bias"], block.EPSILON)
    x = p["embedding"][tokens]
    qkv = linear(x, "in_proj").to(dtype)  # autograd rounds the gradients on their way back, too
    q, k, v = qkv.view(len(x), 3, block.HEADS, -1).permute(1, 2, 0, 3)[:, None]
    o = attention(q, k, v, seed)[0].transpose(0, 1).reshape(x.shape).to(x.dtype)
    y = norm(x + linear(o, "out_proj"), "norm_1")
    z = norm(y + linear(F.silu(linear(y, "mlp_in")), "mlp_out"), "norm_2")
    return F.cross_entropy(linear(z[:-1], "head"), tokens[1:])


def train(attention, dtype, steps=block.STEPS, device="cpu"):
    """Yields the loss of each step, as block.train does. dtype: of the attention, "fp32", "fp16" or "bf16"; all else is fp32, without TF32, as
    PyTorch is by default."""
    tokens = torch.from_numpy(block.token_numbers()).to(device)
    initial = {name: torch.from_numpy(array.astype(np.float32)) for name, array in block.initial_parameters().items()}
    parameters = {name: array.to(device).requires_grad_() for name, array in initial.items()}
    optimizer = SGD(parameters.values(), lr=block.RATE, momentum=block.MOMENTUM)
    for step in range(steps):
        loss = loss_of(parameters, tokens, attention, DTYPES[dtype], block.seed_of(step))
        yield loss.item()
        optimizer.zero_grad()
        (block.LOSS_SCALE * loss).backward()
        for parameter in parameters.values():
            parameter.grad /= block.LOSS_SCALE
        optimizer.step()

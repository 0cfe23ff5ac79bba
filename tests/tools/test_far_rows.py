"""Rows that lie far apart in memory, as tokens do in [seq, batch, heads, dim] layouts: more bytes than 32 bits count between two rows, or
between two tiles of them. Every variant of the attention steps serves them, or refuses them by name.

This takes 9 GB of a GPU's memory, and PyTorch. Without a GPU, the steps' own tests see that the same rows are refused.
"""

import sys

import pytest
from conftest import BIN, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import peers

try:
    import torch
except ImportError:
    torch = None

pytestmark = [
    pytest.mark.skipif(torch is None, reason="this Python has no PyTorch"),
    pytest.mark.skipif(torch is not None and not torch.cuda.is_available(), reason="rows far apart take 9 GB of a GPU's memory"),
]
ROWS, NAMES = 130, ("q", "k", "v", "o", "d_o", "dq", "dk", "dv")  # three tiles of keys
# Of 32 rows of a copy, 32 bits count the bytes up to the first stride; of the rows of a tile up to the second to last.
STRIDES = (2**25 - 8, 2**25, 2**25 + 8, 2**26, 2**27)


@pytest.fixture(scope="module")
def room():
    free = torch.cuda.mem_get_info()[0]
    if free < 2 * ROWS * max(STRIDES) + 2**30:
        pytest.skip(f"the GPU has {free >> 30} GB of free memory; {2 * ROWS * max(STRIDES) + 2**30 >> 30} are needed")
    return torch.empty(ROWS * max(STRIDES), dtype=torch.float16, device="cuda")


def tensors_in(room, dim, stride):
    """One head of each, all in the same memory, one beside the other: of [1, 1, rows, dim]."""
    tensors = {name: room.as_strided((1, 1, ROWS, dim), (8, 8, stride, 1), n * dim) for n, name in enumerate(NAMES)}
    random = torch.Generator("cuda").manual_seed(dim)
    for name in NAMES:
        fill = torch.randn(ROWS, dim, generator=random, device="cuda") if name in ("q", "k", "v", "d_o") else torch.tensor(float("nan"))
        tensors[name][0, 0] = fill.half()
    return tensors


def truth(tensors):
    q, k, v = (tensors[name].double().requires_grad_() for name in "qkv")
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return o.detach(), *torch.autograd.grad(o, (q, k, v), tensors["d_o"].double())


def outcome(library, variant, arguments, made, expected):
    """How far off what it made is, at most; or why it is refused."""
    try:
        with library.variant(variant, *arguments) as (launch, _):
            launch()
            torch.cuda.synchronize()
    except peers.Refused as refused:
        assert "elements apart" in str(refused) or "does not support dim" in str(refused) or "fp32" in str(refused), refused
        return str(refused)
    return max(float((x.double() - right).abs().max() / right.abs().max()) for x, right in zip(made, expected, strict=True))


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("dim", [32, 64, 128])
def test_every_variant_serves_rows_far_apart_or_refuses_them(room, dim, stride):
    tensors = tensors_in(room, dim, stride)
    expected, lse = truth(tensors), torch.empty(1, 1, ROWS, device="cuda")
    problem = peers.problem_at((1, 1, ROWS, dim), "fp16", [peers.tensor_of(tensors[name]) for name in "qkvo"], lse.data_ptr(), causal=1)
    gradients = peers.Gradients(*(peers.tensor_of(tensors[name]) for name in ("d_o", "dq", "dk", "dv")))
    served = []
    for path in sorted((BIN.parent / "lib").glob("libattention_*.so")):
        library = peers.Library(path)
        described = library.describe()
        backward = described if path.stem.endswith("06_backward") else described.get("backward", {"variants": []})
        forward = described["variants"] if backward is not described else []
        torch.cuda.synchronize()
        results = {}
        for variant in forward:
            if variant["name"] == "wrong_update":  # a demonstration, which is wrong everywhere
                continue
            tensors["o"].fill_(float("nan"))
            results[variant["name"]] = outcome(library, variant["name"], [problem], [tensors["o"]], expected[:1])
        if backward["variants"]:
            tensors["o"].copy_(expected[0])
            scores = tensors["q"].double() @ tensors["k"].double().transpose(2, 3) * dim**-0.5
            lse.copy_(scores.masked_fill(torch.ones(ROWS, ROWS, device="cuda").triu(1).bool(), -torch.inf).logsumexp(3))
        for variant in backward["variants"]:
            made = [tensors[name].fill_(float("nan")) for name in ("dq", "dk", "dv")]
            results[variant["name"] + ", backward"] = outcome(library, variant["name"], [problem, gradients], made, expected[1:])
        print(f"\n{path.stem}, dim {dim}, stride {stride}: {results}")
        wrong = {name: result for name, result in results.items() if not isinstance(result, str) and not result < 2.0**-6}
        assert not wrong
        served += [name for name, result in results.items() if not isinstance(result, str)]
        near = {name for name, result in results.items() if isinstance(result, str) and "elements apart" in result}
        assert not near or stride > STRIDES[0]
    assert {"tuned", "tuned, backward"} <= set(served)

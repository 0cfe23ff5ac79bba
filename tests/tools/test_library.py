"""The attention libraries' C interface (library/attention_library.h) on the simulator, called as a user's program calls it: with
memory of its own. The judge is NumPy. On a GPU test_flashsteps_torch.py does the same through PyTorch.
"""

import ctypes
import importlib.util
import math
import re
import subprocess
import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from conftest import BIN, ROOT

sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "cli")]

import peers
from test_cli_backward import gradients, problem
from test_cli_dropout import mask

TYPES = {np.float32: b"fp32", np.float16: b"fp16"}
FORWARD, BACKWARD, SPARSE = "05_flash_v2", "06_backward", "07_block_sparse"


@pytest.fixture(scope="module")
def libraries():
    folder = BIN.parent / "lib"
    if "sim" not in BIN.parent.name:
        pytest.skip(f"{folder} is not the simulator's; the GPU's libraries take memory of a GPU")
    return {step: peers.Library(folder / f"libattention_{step}.so") for step in (FORWARD, BACKWARD, SPARSE)}


def tensor(array):
    """[batch, heads, rows, dim], with any strides but the last."""
    return peers.Tensor(array.ctypes.data, *(s // array.itemsize for s in array.strides[:3]))


def described(q, k, v, o, lse, causal=False, window=0, scale=math.nan, sums=None, checked=True, dropout=0, seed=0):
    """An AttentionProblem. `sums`: an int32 array, checked by the library or not."""
    made = peers.Problem(
        *(0, q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], int(causal), window, scale, TYPES[q.dtype.type]),
        *(tensor(x) for x in (q, k, v, o)),
        lse.ctypes.data,
    )
    if sums is not None:
        made.cu_seqlens, made.cu_seqlens_count = sums.ctypes.data, len(sums)
        made.cu_seqlens_host = sums.ctypes.data if checked else None
    made.dropout, made.dropout_seed = dropout, seed
    return made


def forward(libraries, q, k, v, variant="tuned", o=None, **options):
    """O and LSE."""
    o, lse = np.empty_like(q) if o is None else o, np.empty(q.shape[:3], np.float32)
    with libraries[FORWARD].variant(variant, described(q, k, v, o, lse, **options)) as (launch, _):
        launch()
    return o, lse


def backward(libraries, q, k, v, d_o, o, lse, variant="tuned", made=None, **options):
    """dQ, dK and dV."""
    made = [np.empty_like(x) for x in (q, k, v)] if made is None else made
    tensors = peers.Gradients(*(tensor(x) for x in (d_o, *made)))
    with libraries[BACKWARD].variant(variant, described(q, k, v, o, lse, **options), tensors) as (launch, _):
        launch()
    return made


def assert_close(made, expected, relative=2.0**-7):
    for name, one, right in zip(("o", "lse", "dq", "dk", "dv"), made, expected, strict=True):
        np.testing.assert_allclose(one, right, rtol=0, atol=relative * abs(right).max(), err_msg=name)


def all_five(libraries, q, k, v, d_o, variants=("tuned", "tuned"), **options):
    o, lse = forward(libraries, q, k, v, variants[0], **options)
    return [o, lse, *backward(libraries, q, k, v, d_o, o, lse, variants[1], **options)]


@pytest.mark.parametrize(
    ("dtype", "variants", "relative"),
    [(np.float16, ("tuned", "tuned"), 2.0**-7), (np.float16, ("tensor_cores", "tuned_80"), 2.0**-7), (np.float32, ("scalar", "recompute"), 1e-5)],
)
def test_both_passes_are_right(libraries, dtype, variants, relative):
    tensors = problem(2, 4, 2, 70, 101, 64, dtype)
    made = all_five(libraries, *tensors, variants, causal=True, window=60, scale=0.2)
    assert_close(made, gradients(*tensors, causal=True, window=60, scale=0.2), relative)


def test_rows_may_lie_anywhere_and_what_lies_between_them_stays(libraries):
    tensors = problem(2, 2, 2, 40, 40, 32)
    expected = gradients(*tensors, causal=True)
    room = np.full((2, 40, 7, 2, 39), 7.0, np.float16)  # tokens first, all tensors in one, rows longer than dim, at odd elements
    views = [room[:, :, n, :, 3:35].transpose(0, 2, 1, 3) for n in range(7)]
    for view, values in zip(views, (*tensors[:3], tensors[3]), strict=False):
        view[...] = values
    q, k, v, d_o, dq, dk, dv = views
    o = np.full((2, 40, 2, 36), 7.0, np.float16)
    o_view = o.transpose(0, 2, 1, 3)[..., 1:33]
    _, lse = forward(libraries, q, k, v, o=o_view, causal=True)
    backward(libraries, q, k, v, d_o, o_view, lse, made=[dq, dk, dv], causal=True)
    assert_close([o_view, lse, dq, dk, dv], expected)
    assert (room[..., :3] == 7).all() and (room[..., 35:] == 7).all() and (o[..., 0] == 7).all() and (o[..., 33:] == 7).all()
    np.testing.assert_array_equal(q, tensors[0])


def test_a_stride_of_0_repeats_rows(libraries):
    tensors = problem(1, 2, 1, 20, 30, 32)
    k, v = (np.broadcast_to(x, (1, 2, 30, 32)) for x in tensors[1:3])
    o, _ = forward(libraries, tensors[0], k, v)
    np.testing.assert_array_equal(o, forward(libraries, *tensors[:3])[0])


@pytest.mark.parametrize("checked", [True, False])
def test_packed_sequences(libraries, checked):
    sums = np.array([0, 20, 20, 75], np.int32)
    tensors = problem(1, 2, 2, 75, 75, 32)
    made = all_five(libraries, *tensors, sums=sums, checked=checked)
    for first, end in ((0, 20), (20, 75)):
        of_one = [x[:, :, first:end] for x in tensors]
        assert_close([x[:, :, first:end] for x in made], gradients(*of_one))


@pytest.mark.parametrize("variants", [("tuned", "tuned"), ("scalar", "recompute"), ("any_dim", "any_dim")])
def test_dropout_keeps_the_same_pairs_forwards_and_backwards(libraries, variants):
    tensors = problem(2, 2, 1, 70, 101, 64)
    seed, n = 2**64 - 3, 77
    kept = mask(2, 2, 70, 101, n, seed) * (256 / (256 - n))
    assert_close(all_five(libraries, *tensors, variants, dropout=n, seed=seed), gradients(*tensors, kept=kept))


def test_operations_are_those_of_visible_pairs(libraries):
    q, k, v, _ = problem(1, 2, 2, 8, 8, 32)
    o, lse, sums = np.empty_like(q), np.empty(q.shape[:3], np.float32), np.array([0, 3, 8], np.int32)
    for options, expected in [({}, 64), ({"causal": True}, 36), ({"sums": sums}, 34), ({"sums": sums, "checked": False}, math.nan)]:
        with libraries[FORWARD].variant("tuned", described(q, k, v, o, lse, **options)) as (_, operations):
            np.testing.assert_equal(operations, 4 * 32 * 2 * expected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": b"fp8"}, "dtype is 'fp8'"),
        ({"dtype": None}, "dtype is 'null'"),
        ({"heads": 0}, "heads is 0"),
        ({"heads": 3}, "heads must be a multiple of kv-heads"),
        ({"dim": 257}, "dim"),
        ({"lse": None}, "lse is null"),
        ({"k": peers.Tensor(None, 0, 0, 32)}, "k is null"),
        ({"v": peers.Tensor(256, 0, 0, -32)}, "v has a negative stride"),
        ({"o": peers.Tensor(255, 0, 0, 32)}, "o does not begin at a multiple of 2 bytes"),
        ({"lse": 258}, "lse does not begin at a multiple of 4 bytes"),
        ({"device": 1}, "device is 1; the simulator has number 0 alone"),
        ({"device": -1}, "device is -1"),
        ({"dropout": 256}, "dropout is 256 of 256"),
        ({"dropout": -1}, "dropout is -1 of 256"),
        ({"window": -1}, "window is -1"),
        ({"cu_seqlens_count": 3}, "cu_seqlens and its count: one is missing"),
        ({"cu_seqlens": 256}, "cu_seqlens and its count: one is missing"),
        ({"cu_seqlens": 256, "cu_seqlens_count": 1}, "cu_seqlens_count must be 2 or more"),
    ],
)
def test_bad_problems_are_refused_with_the_reason(libraries, change, reason):
    q, k, v, _ = problem(1, 2, 2, 8, 8, 32)
    made = described(q, k, v, np.empty_like(q), np.empty(q.shape[:3], np.float32))
    for name, value in change.items():
        setattr(made, name, value)
    with pytest.raises(peers.Refused, match=re.escape(reason)), libraries[FORWARD].variant("tuned", made):
        pass


def test_what_only_a_variant_refuses_names_it(libraries):
    q, k, v, _ = problem(1, 2, 2, 8, 8, 32)
    o, lse = np.empty_like(q), np.empty(q.shape[:3], np.float32)
    odd = np.empty((1, 2, 8, 33), np.float16)[..., :32]
    for variant, at, options, reason in [
        ("registers", q, {"dropout": 5}, "registers does not support dropout"),
        ("registers", odd, {}, "registers does not support rows that begin elsewhere than at multiples of 16 bytes"),
        ("nothing", q, {}, "has no variant 'nothing'"),
    ]:
        with pytest.raises(peers.Refused, match=re.escape(reason)), libraries[FORWARD].variant(variant, described(at, k, v, o, lse, **options)):
            pass


@pytest.mark.parametrize("sums", [[-100, 20, 40], [0, 20, 4000], [0, 2**31 - 1, -(2**31), 40], [100, 200, 300]])
def test_sums_that_nobody_checked_and_that_are_wrong_touch_nothing_else(libraries, sums):
    tensors = problem(1, 1, 1, 40, 40, 32)
    for variants in (("tuned", "tuned"), ("scalar", "recompute"), ("any_dim", "any_dim")):
        all_five(libraries, *tensors, variants, sums=np.array(sums, np.int32), checked=False)  # the simulator would find it


# ---- sparse masks ----


class Mask:
    """A sparse mask in the caller's memory, of 300 queries and 400 keys in blocks of 128 × 64, and what it lets queries see [heads, 300, 400]:
    a dense head, two with blocks of their own, one that streams by block, one by token. One head has a row without live blocks."""

    def __init__(self):
        numbers = np.random.default_rng(7)
        self.types = np.array([0, 1, 2, 3, 1], np.int32)
        self.streaming = np.array([[0, 0], [0, 0], [1, 1], [5, 70], [0, 0]], np.int32)
        blocks = numbers.random((5, 3, 7)) < 0.4
        blocks[4, 1] = False
        self.bits = np.zeros((1, 5, 3, 1), np.uint32)
        for column in range(7):
            self.bits[0, :, :, 0] |= blocks[:, :, column].astype(np.uint32) << np.uint32(column)
        i, j = np.indices((300, 400))
        own, row, column = i + 100, i // 128, j // 64
        first_own, last_own = (row * 128 + 100) // 64, (np.minimum(row * 128 + 128, 300) - 1 + 100) // 64
        away = np.maximum(0, np.maximum(first_own - column, column - last_own))
        by_type = [np.ones_like(i, bool), None, (column < 1) | (away < 1), (j < 5) | (abs(own - j) < 70), None]
        self.live = np.array([blocks[head, row, column] if seen is None else seen for head, seen in enumerate(by_type)])

    def sparse(self, **changes):
        made = peers.Sparse(128, 64, 1, *(x.ctypes.data for x in (self.types, self.types, self.streaming, self.streaming, self.bits, self.bits)))
        for name, value in changes.items():
            setattr(made, name, value)
        return made


def sparse_problem(tensors, o, lse, sparse, **options):
    """Of q, k, v. `sparse` must live until the program is prepared."""
    made = described(*tensors[:3], o, lse, **options)
    made.sparse = ctypes.addressof(sparse)
    return made


@pytest.mark.parametrize("causal", [False, True])
def test_a_library_with_both_passes_takes_a_sparse_mask(libraries, causal):
    library, mask = libraries[SPARSE], Mask()
    tensors = problem(1, 5, 5, 300, 400, 64)
    o, lse, made = np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32), [np.empty_like(x) for x in tensors[:3]]
    gradients_ = peers.Gradients(*(tensor(x) for x in (tensors[3], *made)))
    about = library.describe()
    for variant, given in ((about["default"], None), (about["backward"]["default"], gradients_)):
        sparse = mask.sparse()
        with library.variant(variant, sparse_problem(tensors, o, lse, sparse, causal=causal), given) as (launch, operations):
            ctypes.memset(ctypes.addressof(sparse), 0, ctypes.sizeof(sparse))  # the structure is not needed any more
            launch()
            pairs = (mask.live & np.tri(300, 400, 100, dtype=bool)).sum() if causal else mask.live.sum()
            assert operations == (10 if given else 4) * 64 * pairs
    expected = gradients(*tensors, causal=causal, live=mask.live)
    dead = np.isneginf(expected[1])
    assert dead.any() and np.isneginf(lse[dead]).all() and (o[dead] == 0).all() and (made[0][dead] == 0).all()
    lse[dead] = expected[1][dead] = 0
    assert_close([o, lse, *made], expected)


def test_bits_are_those_of_the_launch_and_operations_are_unknown_without_the_hosts(libraries):
    mask, tensors = Mask(), problem(1, 5, 5, 300, 400, 64)
    o, lse = np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32)
    sparse = mask.sparse(block_mask_host=None)
    with libraries[SPARSE].variant("balanced", sparse_problem(tensors, o, lse, sparse)) as (launch, operations):
        assert math.isnan(operations)
        mask.bits[...] = 2**7 - 1
        launch()
    mask.live[[1, 4]] = True
    for one, right in zip((o, lse), gradients(*tensors, live=mask.live), strict=False):
        np.testing.assert_allclose(one, right, rtol=0, atol=2.0**-7)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block_q": 0}, "block_q is 0"),
        ({"block_k": -1}, "block_k is -1"),
        ({"block_k": 32}, "balanced does not support blocks of 32 keys"),
        ({"batches": 2}, "batches of block_mask is 2; it must be 1 or 1"),
        ({"head_type_host": None}, "head_type_host is null"),
        ({"head_type": None}, "head_type is null"),
        ({"head_type": 258}, "head_type does not begin at a multiple of 4 bytes"),
        ({"streaming_host": None}, "streaming_host is null"),
        ({"streaming": None}, "streaming is null"),
        ({"block_mask": None}, "block_mask is null"),
        ({"block_mask": 6}, "block_mask does not begin at a multiple of 4 bytes"),
    ],
)
def test_bad_sparse_masks_are_refused_with_the_reason(libraries, changes, reason):
    mask, tensors = Mask(), problem(1, 5, 5, 300, 400, 64)
    sparse = mask.sparse(**changes)
    made = sparse_problem(tensors, np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32), sparse)
    with pytest.raises(peers.Refused, match=re.escape(reason)), libraries[SPARSE].variant("balanced", made):
        pass


def test_bad_head_types_are_refused_and_so_is_a_mask_by_steps_that_take_none(libraries):
    mask, tensors = Mask(), problem(1, 5, 5, 300, 400, 64)
    sparse = mask.sparse()
    made = sparse_problem(tensors, np.empty_like(tensors[0]), np.empty((1, 5, 300), np.float32), sparse)
    with pytest.raises(peers.Refused, match="tuned does not support a sparse mask"), libraries[FORWARD].variant("tuned", made):
        pass
    mask.types[0] = 4
    with pytest.raises(peers.Refused, match="head_type is 4"), libraries[SPARSE].variant("balanced", made):
        pass


@pytest.fixture(scope="module")
def c():
    """The C functions of the forward pass as they are."""
    functions = ctypes.CDLL(str(BIN.parent / "lib" / f"libattention_{FORWARD}.so"))
    functions.attention_error.restype, functions.attention_prepare.restype = ctypes.c_char_p, ctypes.c_void_p
    functions.attention_launch.restype, functions.attention_scratch_bytes.restype = ctypes.c_bool, ctypes.c_size_t
    return functions


def test_the_structures_may_go_once_a_program_is_prepared_and_there_is_no_stream(libraries, c):
    q, k, v, _ = problem(1, 1, 1, 8, 8, 32)
    o, lse = np.empty_like(q), np.empty(q.shape[:3], np.float32)
    name, made = ctypes.create_string_buffer(b"fp16"), described(q, k, v, o, lse)
    made.dtype = ctypes.cast(name, ctypes.c_char_p)
    program = ctypes.c_void_p(c.attention_prepare(b"tuned", ctypes.byref(made)))
    name.raw, made.seq_q, made.q = b"\0" * 5, 10**9, peers.Tensor()
    assert c.attention_launch(program, None, None), c.attention_error()
    np.testing.assert_array_equal(o, forward(libraries, q, k, v)[0])
    assert not c.attention_launch(program, None, ctypes.c_void_p(16)) and b"no streams" in c.attention_error()
    c.attention_release(program)


def test_null_is_refused(libraries, c):
    assert c.attention_prepare(b"tuned", None) is None and c.attention_error() == b"problem is null"
    assert c.attention_prepare(None, ctypes.byref(peers.Problem())) is None and c.attention_error() == b"variant is null"
    assert not c.attention_launch(None, None, None) and c.attention_error() == b"program is null"
    assert c.attention_scratch_bytes(None) == 0
    c.attention_release(None)


def test_each_thread_has_its_own_error(libraries, c):
    errors = {}

    def fail(dtype):
        assert c.attention_prepare(b"tuned", ctypes.byref(peers.Problem(0, 1, 1, 1, 8, 8, 32, 0, 0, 0.0, dtype))) is None
        barrier.wait(timeout=10)
        errors[dtype] = c.attention_error().decode()

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=fail, args=(dtype,)) for dtype in (b"int4", b"int8")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(dtype.decode() in text for dtype, text in errors.items()) and len(errors) == 2


def python_side():
    """examples/flashsteps_torch.py, without PyTorch: its structures are needed, and none of its tensors."""
    torch = ModuleType("torch")
    torch.float32 = torch.float16 = torch.bfloat16 = None
    torch.autograd = SimpleNamespace(Function=object, function=SimpleNamespace(once_differentiable=lambda f: f))
    before, sys.modules["torch"] = sys.modules.get("torch"), torch
    try:
        spec = importlib.util.spec_from_file_location("flashsteps_torch_alone", ROOT / "examples" / "flashsteps_torch.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        del sys.modules["torch"]
        if before is not None:
            sys.modules["torch"] = before
    return module


def test_all_sides_of_the_interface_have_the_same_fields():
    header = (ROOT / "library" / "attention_library.h").read_text()
    example = python_side()
    for name in ("Tensor", "Sparse", "Problem", "Gradients"):
        body = re.sub(r"//.*", "", re.search(rf"struct Attention{name} \{{(.*?)\n\}};", header, re.DOTALL)[1])
        fields = [field for declaration in body.split(";") for field in re.findall(r"(\w+)\s*(?:,|$)", declaration.strip())]
        assert fields == [field for field, _ in getattr(peers, name)._fields_]
        if name != "Sparse":  # PyTorch's users have no sparse masks yet
            assert fields == [field for field, _ in getattr(example, f"_{name}")._fields_]
            assert ctypes.sizeof(getattr(peers, name)) == ctypes.sizeof(getattr(example, f"_{name}"))
    for function in ("describe", "prepare", "prepare_backward", "scratch_bytes", "operations", "launch", "release", "error"):
        assert re.search(rf"\battention_{function}\(", header)


def test_a_c_compiler_reads_the_header_as_the_ctypes_structures_do(tmp_path):
    names = [f for f, _ in peers.Problem._fields_]
    prints = "".join(f'printf("%zu ", offsetof(struct AttentionProblem, {name}));' for name in names)
    (tmp_path / "offsets.c").write_text(
        f'#include <stdio.h>\n#include "library/attention_library.h"\nint main(void) {{ {prints} printf("%zu", sizeof(struct AttentionProblem)); }}\n')
    subprocess.run(["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", ROOT, tmp_path / "offsets.c", "-o", tmp_path / "offsets"], check=True)
    found = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout.split()
    assert [int(x) for x in found] == [*(getattr(peers.Problem, name).offset for name in names), ctypes.sizeof(peers.Problem)]

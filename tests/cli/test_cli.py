"""The command line from outside: right numbers, clear refusals, exit statuses, files. The judge is NumPy, in float64."""

import itertools
import json
import os
import re
import resource
import shutil

import numpy as np
import pytest
from conftest import BIN, ROOT, STEPS, Step, built, read_report

LAYER = ROOT / "data" / "minilm_layer"
SMALL = ("--heads", "1", "--seq-q", "5", "--dim", "4")

LENGTHS = [
    (1, 1), (1, 3), (3, 1), (5, 5), (17, 17), (64, 64), (64, 128), (97, 97), (113, 203), (128, 217), (203, 113), (239, 1),
    (256, 256), (1, 512), (257, 255), (197, 197), (7, 256),
]  # fmt: skip
HEADS = [(1, 1, 1), (1, 3, 3), (1, 14, 2), (3, 2, 1)]  # batch, heads, kv_heads
DIMS = [32, 64, 40, 128, 96, 256, 1]


# ---- the judge ----


def attention(q, k, v, causal=False, scale=None):
    """O and LSE in float64 from [batch, heads, seq, dim] arrays; a row without keys gives 0 and -inf."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        i, j = np.indices(scores.shape[-2:])
        scores = np.where(j <= i + k.shape[2] - q.shape[2], scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    p = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = p.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(total[..., 0]) + np.where(np.isfinite(largest), largest, 0)[..., 0]
    return p / np.where(total == 0, 1, total) @ v, lse


def assert_right(folder, q, k, v, **options):
    """o.npy and lse.npy are what attention(q, k, v) gives, up to what fp32 can do."""
    expected_o, expected_lse = attention(q, k, v, **options)
    o, lse = np.load(folder / "o.npy"), np.load(folder / "lse.npy")
    assert o.dtype == lse.dtype == np.float32
    assert o.shape == expected_o.shape and lse.shape == expected_lse.shape
    np.testing.assert_allclose(o, expected_o, rtol=0, atol=1e-5)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-5, atol=1e-5)


def inputs(batch, heads, kv_heads, seq_q, seq_k, dim, dtype=np.float32):
    random = np.random.default_rng([batch, heads, kv_heads, seq_q, seq_k, dim])
    shapes = [(batch, heads, seq_q, dim), (batch, kv_heads, seq_k, dim), (batch, kv_heads, seq_k, dim)]
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def save(folder, q, k, v):
    folder.mkdir(exist_ok=True)
    for name, array in zip("qkv", (q, k, v)):
        np.save(folder / f"{name}.npy", array)
    return folder


def refused(step, *args, status=2, saying="", written=None, **options):
    """Ends with `status`, says why in one or two lines of stderr, and writes nothing."""
    done = step(*args, **options)
    assert done.returncode == status, done.stdout + done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 2, done.stderr
    assert step.name in done.stderr and saying in done.stderr
    assert written is None or not written.exists()
    return done.stderr


# ---- every step ----


@pytest.mark.parametrize("name", STEPS)
def test_a_step_lists_its_variants_and_runs_by_default_within_seconds(name, tmp_path):
    listing = Step(name).ok("--list").stdout
    assert listing.startswith(name)
    assert len(re.findall(r"^\* ", listing, re.MULTILINE)) == 1  # one default variant
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime  # of processors: other tests may run beside this one
    report = Step(name).report(tmp_path / "report.json")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 8
    assert report["step"] == name
    assert [result["variant"] for result in report["results"]] == re.findall(r"^\* (\w+):", listing, re.MULTILINE)


@pytest.mark.parametrize("name", STEPS)
def test_help_and_unknown_flags(name):
    text = Step(name).ok("--help").stdout
    assert "--variant" in text
    assert "back to back, in a CUDA graph" in " ".join(text.split())
    assert "--frobnicate" in refused(Step(name), "--frobnicate")


def test_all_leaves_a_demonstration_out_and_says_why_and_by_its_name_it_runs_and_is_rejected(tmp_path):
    step = built("04_flash_v1")
    small = ("--heads", 1, "--seq-q", 70, "--dim", 64)
    report = step.report(tmp_path / "report.json", "--variant", "all", *small)
    reason = "wrong on purpose, to be rejected"
    assert {"variant": "wrong_update", "reason": reason} in report["skipped"]
    assert reason in step.ok("--list").stdout
    done = step("--variant", "wrong_update", *small)
    assert done.returncode == 1
    assert "wrong_update: O: row" in done.stderr


# ---- right numbers ----

CASES = [
    (*heads, *lengths, DIMS[n % len(DIMS)], causal)
    for n, (lengths, causal, heads) in enumerate(
        (lengths, causal, HEADS[n % len(HEADS)])
        for n, (lengths, causal) in enumerate(itertools.product(LENGTHS, (False, True)))
    )
] + [(*heads, 33, 47, dim, True) for heads in HEADS for dim in DIMS]


def work(batch, heads, kv_heads, seq_q, seq_k, dim, causal):
    return batch * heads * seq_q * seq_k * dim


# Where the lengths alone are work enough there is one head; the same with more of them is long.
ONE_HEAD = list(dict.fromkeys(case if work(*case) < 2e6 else (1, 1, 1, *case[3:]) for case in CASES))
MORE_HEADS = [pytest.param(*case, marks=pytest.mark.long) for case in CASES if case not in ONE_HEAD]


@pytest.mark.parametrize("batch, heads, kv_heads, seq_q, seq_k, dim, causal", ONE_HEAD + MORE_HEADS)
def test_attention_agrees_with_numpy(naive_mha, tmp_path, batch, heads, kv_heads, seq_q, seq_k, dim, causal):
    q, k, v = inputs(batch, heads, kv_heads, seq_q, seq_k, dim)
    save(tmp_path / "in", q, k, v)
    naive_mha.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--no-check", *(["--causal"] if causal else []))
    assert_right(tmp_path / "out", q, k, v, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_every_variant_writes_a_folder_of_its_own(naive_mha, tmp_path, causal):
    q, k, v = inputs(2, 4, 2, 37, 53, 40)
    save(tmp_path / "in", q, k, v)
    flags = ["--causal"] if causal else []
    report = naive_mha.report(
        tmp_path / "report.json", "--input", tmp_path / "in", "--output", tmp_path / "out", "--variant", "all", *flags
    )
    variants = [result["variant"] for result in report["results"]]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(variants)
    for variant in variants:
        assert sorted(path.name for path in (tmp_path / "out" / variant).iterdir()) == ["lse.npy", "o.npy"]
        assert_right(tmp_path / "out" / variant, q, k, v, causal=causal)


@pytest.mark.parametrize("scale", ["0.5", "-1", "3e-3", "0", "-0", "1e-45", "-1e-38"])
def test_the_scale_is_what_the_flag_says(naive_mha, tmp_path, scale):
    q, k, v = inputs(1, 2, 2, 9, 11, 16)
    save(tmp_path / "in", q, k, v)
    naive_mha.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--scale", scale)
    assert_right(tmp_path / "out", q, k, v, scale=float(scale))


def test_float16_files_are_read_exactly(naive_mha, tmp_path):
    q, k, v = inputs(1, 2, 1, 20, 30, 24, np.float16)
    save(tmp_path / "in", q, k, v)
    naive_mha.ok("--input", tmp_path / "in", "--output", tmp_path / "out")
    assert_right(tmp_path / "out", q, k, v)


def seeded(seed, tensor, shape):
    """The documented generator (common/problem/inputs.cpp), written a second time."""

    def splitmix(start, n):
        z = start + (n + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    with np.errstate(over="ignore"):
        stream = splitmix(splitmix(np.uint64(seed), np.uint64(0)), np.uint64(tensor))
        n = np.arange(np.prod(shape), dtype=np.uint64)
        set_bits = np.bitwise_count(splitmix(stream, 2 * n)).astype(np.int64)
        uniform = splitmix(stream, 2 * n + np.uint64(1))
    high, low = (part.astype(np.int64) for part in (uniform >> np.uint64(32), uniform & np.uint64(0xFFFFFFFF)))
    fixed_point = (set_bits - 32) * 2**32 + high - low
    return (fixed_point * (2.0**-32 / np.sqrt(16 + 1 / 6))).astype(np.float32).reshape(shape)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_seeded_inputs_are_the_documented_ones(naive_mha, tmp_path, seed):
    shape = ("--batch", 2, "--heads", 4, "--kv-heads", 2, "--seq-q", 12, "--seq-k", 15, "--dim", 16)
    naive_mha.ok(*shape, "--seed", seed, "--output", tmp_path / "out")
    q, k, v = (seeded(seed, n, dims) for n, dims in enumerate([(2, 4, 12, 16), (2, 2, 15, 16), (2, 2, 15, 16)]))
    assert_right(tmp_path / "out", q, k, v + np.float32(0.5))


def test_defaults_are_printed_and_follow_what_is_given(naive_mha):
    assert (
        "heads 6 over 6, 20 × 20, dim 16, fp32, scale 0.25, seed 1"
        in naive_mha.ok("--heads", 6, "--seq-q", 20, "--dim", 16).stdout
    )
    assert "20 × 20" in naive_mha.ok("--seq-q", 20, "--seq-k", 20, "--heads", 1).stdout


def test_nan_and_infinity_in_the_input_reach_the_rows_that_see_them_only(naive_mha, tmp_path):
    q, k, v = inputs(1, 2, 1, 12, 12, 8)
    clean = [array.copy() for array in (q, k, v)]
    q[0, 1, 3, 0] = np.nan  # row 3 of head 1
    k[0, 0, 9, 2] = np.inf  # rows 9 and later
    v[0, 0, 11, 7] = np.nan  # row 11
    save(tmp_path / "in", q, k, v)
    naive_mha.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--causal", "--variant", "all")
    expected, _ = attention(*clean, causal=True)
    for variant in (tmp_path / "out").iterdir():
        o = np.load(variant / "o.npy")
        untouched = [(0, row) for row in range(9)] + [(1, row) for row in range(9) if row != 3]
        for head, row in untouched:
            np.testing.assert_allclose(o[0, head, row], expected[0, head, row], rtol=0, atol=1e-5)
        assert np.isnan(o[0, 1, 3]).all() and np.isnan(o[0, :, 11, 7]).all()


# ---- the layer ----


@pytest.fixture
def layer(tmp_path):
    """A copy of the real layer that a test may change."""
    folder = tmp_path / "layer"
    folder.mkdir()
    for name in ("x", "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias"):
        shutil.copy(LAYER / f"{name}.npy", folder)
    shutil.copy(LAYER / "layer.json", folder)
    return folder


def layer_by_numpy(folder, heads, causal=False):
    """y [batch, seq, E] in float64."""
    x, weight, bias, out_weight, out_bias = (
        np.load(folder / f"{name}.npy").astype(np.float64)
        for name in ("x", "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias")
    )
    x = x.reshape(-1, *x.shape[-2:])
    batch, seq, width = x.shape
    q, k, v = (x @ weight.T + bias).reshape(batch, seq, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    o, _ = attention(q, k, v, causal=causal)
    return o.transpose(0, 2, 1, 3).reshape(batch, seq, width) @ out_weight.T + out_bias


@pytest.mark.long  # the quick tier has it in tests/steps/01_naive_mha
def test_the_layer_gives_what_the_model_itself_computed(naive_mha, tmp_path):
    naive_mha.ok("--layer", LAYER, "--output", tmp_path)
    y, model = np.load(tmp_path / "y.npy"), np.load(LAYER / "y_model.npy")
    assert y.shape == model.shape
    assert np.abs(y - model).max() <= 1e-5 * np.abs(model).max()
    assert np.load(tmp_path / "o.npy").shape == (1, 12, model.shape[1], 32)
    assert np.load(tmp_path / "lse.npy").shape == (1, 12, model.shape[1])


@pytest.mark.parametrize("batch", [pytest.param(None, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.long), 2])
def test_a_causal_layer_agrees_with_numpy(naive_mha, tmp_path, layer, batch):
    x = np.load(LAYER / "x.npy")[0, : 40 if batch == 2 else 80]
    np.save(layer / "x.npy", x if batch is None else x.reshape(batch, -1, x.shape[-1]))
    report = naive_mha.report(tmp_path / "r.json", "--layer", layer, "--output", tmp_path, "--causal", "--variant", "all")
    expected = layer_by_numpy(layer, 12, causal=True)
    for result in report["results"]:
        y = np.load(tmp_path / result["variant"] / "y.npy")
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_layer_without_layer_json_needs_heads(naive_mha, tmp_path, layer):
    (layer / "layer.json").unlink()
    np.save(layer / "x.npy", np.load(layer / "x.npy")[:, :10])
    refused(naive_mha, "--layer", layer, saying="--heads is needed")
    refused(naive_mha, "--layer", layer, "--heads", 7, saying="no multiple of 7")
    naive_mha.ok("--layer", layer, "--heads", 6, "--output", tmp_path / "out")
    expected = layer_by_numpy(layer, 6)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "flags, saying",
    [
        (["--heads", "6"], "--heads 6 contradicts"),
        (["--kv-heads", "6"], "--kv-heads 6 contradicts"),
        (["--seq-q", "206"], "--seq-q 206 contradicts"),
        (["--seq-k", "1"], "--seq-k 1 contradicts"),
        (["--batch", "2"], "--batch 2 contradicts"),
        (["--dim", "64"], "--dim 64 contradicts"),
        (["--seed", "1"], "--seed contradicts"),
        (["--input", "somewhere"], "--input contradicts"),
        (["--scale", "1"], "--scale contradict"),
        (["--window", "3"], "--window"),
        (["--dtype", "fp16"], "fp32"),
    ],
)
def test_a_flag_that_contradicts_the_layer_is_refused(naive_mha, tmp_path, flags, saying):
    refused(naive_mha, "--layer", LAYER, *flags, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")


@pytest.mark.parametrize(
    "name, shape",
    [("x", (384,)), ("x", (1, 2, 3, 4)), ("x", (1, 207, 383)), ("in_proj_weight", (384, 1152)), ("in_proj_bias", (1151,)),
     ("out_proj_weight", (384, 383)), ("out_proj_bias", (1, 384))],
)  # fmt: skip
def test_a_layer_whose_arrays_do_not_fit_is_refused(naive_mha, tmp_path, layer, name, shape):
    np.save(layer / f"{name}.npy", np.ones(shape, np.float32))
    refused(naive_mha, "--layer", layer, "--output", tmp_path / "out", saying=".npy", written=tmp_path / "out")


@pytest.mark.parametrize("text", ["", "[12]", '{"heads": "12"}', '{"heads": 0}', '{"heads": 1e9}', '{"heads": 99999999999}'])
def test_a_layer_json_without_a_sensible_number_of_heads_is_refused(naive_mha, layer, text):
    (layer / "layer.json").write_text(text)
    refused(naive_mha, "--layer", layer, saying="layer.json")


# ---- bad files ----


@pytest.mark.parametrize(
    "name, array, saying",
    [
        ("q", np.asfortranarray(np.ones((1, 1, 5, 4), np.float32)), "Fortran"),
        ("k", np.ones((1, 1, 5, 4), np.float64), "'<f8'"),
        ("v", np.ones((1, 1, 5, 4), np.int32), "'<i4'"),
        ("q", np.ones((1, 1, 5, 4), ">f4"), "'>f4'"),
        ("q", np.ones((1, 1, 5, 4), np.complex64), "'<c8'"),
        ("q", np.ones((1, 5, 4), np.float32), "[batch, heads, seq, dim]"),
        ("k", np.ones((1, 1, 1, 5, 4), np.float32), "[batch, heads, seq, dim]"),
        ("q", np.ones((1, 1, 0, 4), np.float32), "dimension 0"),
        ("q", np.ones((2, 1, 5, 4), np.float32), "batch and dim"),
        ("q", np.ones((1, 1, 5, 8), np.float32), "batch and dim"),
        ("q", np.ones((1, 1, 5, 4), np.float16), "one type"),
        ("v", np.ones((1, 1, 6, 4), np.float32), "v.npy"),
        ("v", np.ones((1, 1, 5, 3), np.float32), "v.npy"),
        ("v", np.ones((1, 2, 5, 4), np.float32), "v.npy"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(naive_mha, tmp_path, name, array, saying):
    folder = save(tmp_path / "in", *inputs(1, 1, 1, 5, 5, 4))
    np.save(folder / f"{name}.npy", array)
    refused(naive_mha, "--input", folder, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")


def test_heads_that_the_key_heads_do_not_divide_are_refused(naive_mha, tmp_path):
    folder = save(tmp_path / "in", *inputs(1, 3, 2, 5, 5, 4))
    refused(naive_mha, "--input", folder, saying="multiple")


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"


def npy(shape, data=b"", length=None):
    header = HEADER % shape
    return b"\x93NUMPY\x01\x00" + (length or len(header)).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "content, saying",
    [
        (b"", "truncated"),
        (b"no array", "magic"),
        (npy(b"1, 1, 5, 4", bytes(79)), "truncated"),
        (npy(b"1, 1, 5, 4", bytes(84)), "trailing"),
        (npy(b"1, 1, 5, 4", bytes(80), length=60000), "truncated"),
        (npy(b"4294967296, 4294967296, 1, 1", bytes(80)), "overflows"),
        (npy(b"1, 1, 1, 99999999999999999999999", bytes(80)), "64 bits"),
        (npy(b"1, 1, -5, 4", bytes(80)), "dimension -5"),
        (npy(b"1, 1, 99999999999, 4", bytes(80)), "truncated"),
        (npy(b"1, 1, five, 4", bytes(80)), "header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "4294967295 bytes"),
        (b"\x93NUMPY\x09\x00\x00\x00", "version 9"),
    ],
)
def test_a_malformed_npy_file_is_refused(naive_mha, tmp_path, content, saying):
    folder = save(tmp_path / "in", *inputs(1, 1, 1, 5, 5, 4))
    (folder / "k.npy").write_bytes(content)
    message = refused(naive_mha, "--input", folder, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")
    assert "k.npy" in message


def test_missing_files_are_named(naive_mha, tmp_path):
    refused(naive_mha, "--input", tmp_path / "nowhere", saying="q.npy: no such file")
    refused(naive_mha, "--layer", tmp_path / "nowhere", saying="x.npy: no such file")
    (tmp_path / "q.npy").mkdir()
    refused(naive_mha, "--input", tmp_path, saying="q.npy: not a file")


# ---- bad usage ----


@pytest.mark.parametrize(
    "flags, saying",
    [
        ("--heads abc", "--heads: 'abc'"),
        ("--heads 2.5", "--heads: '2.5'"),
        ("--heads 0x10", "--heads: '0x10'"),
        ("--heads -3", "--heads: '-3'"),
        ("--heads 0", "--heads: '0'"),
        ("--heads 2 --heads 3", "--heads"),
        ("--heads", "--heads"),
        ("--batch -1", "--batch"),
        ("--seq-q 99999999999", "--seq-q: '99999999999'"),
        ("--seq-k 99999999999999999999999999", "--seq-k"),
        ("--dim 2147483648", "--dim"),
        ("--batch 60000 --heads 60000 --seq-q 1000000000", "batch · heads · seq-q · seq-k is 3.6e+27; it must be less than 2^58"),
        ("--kv-heads 1073741824 --heads 1073741824 --dim 1073741824 --seq-q 1 --seq-k 1", "batch · heads · seq-q · dim is 1.2e+18"),
        ("--seq-q 1073741825", "seq-q is 1073741825; it must be at most 1073741824"),
        ("--seq-k 2147483647", "seq-k is 2147483647; it must be at most 1073741824"),
        ("--heads 2147483647", "heads is 2147483647; it must be at most 1073741824"),
        ("--heads 6 --kv-heads 4", "heads must be a multiple of kv-heads"),
        ("--heads 2 --kv-heads 4", "heads must be a multiple of kv-heads"),
        ("--batch 65536 --heads 1 --seq-q 1", "65535"),
        ("--dim 257", "any dim up to 256"),
        ("--dtype fp64", "fp32, fp16 or bf16"),
        ("--dtype fp16", "it supports fp32"),
        ("--window 5", "does not support a window"),
        ("--variant all --window 5", "no variant supports this"),
        ("--variant best", "block_softmax"),
        ("--scale one", "--scale: 'one'"),
        ("--scale nan", "--scale: 'nan' is not a finite number in decimal"),
        ("--scale inf", "--scale: 'inf' is not a finite number in decimal"),
        ("--scale -inf", "--scale: '-inf' is not a finite number in decimal"),
        ("--scale 0.5x", "--scale: '0.5x' is not a finite number in decimal"),
        ("--scale 0x1p3", "--scale: '0x1p3' is not a finite number in decimal"),
        ("--scale 1e39", "--scale: '1e39' is beyond fp32, whose largest number is 3.4e38"),
        ("--scale -1e39", "--scale: '-1e39' is beyond fp32"),
        ("--scale 1e400", "--scale: '1e400' is beyond fp32"),
        ("--scale 1e99999999", "--scale: '1e99999999' is beyond fp32"),
        ("--scale 1e-46", "--scale: '1e-46' is too near 0 for fp32, whose least number above 0 is 1.4e-45"),
        ("--scale -1e-46", "--scale: '-1e-46' is too near 0 for fp32"),
        ("--scale 1e-400", "--scale: '1e-400' is too near 0 for fp32"),
        ("--scale 1e-99999999", "--scale: '1e-99999999' is too near 0 for fp32"),
        ("--scale 3e38", "scale is 3e+38; it must be a number from −2^127 to 2^127"),
        ("--seed -1", "--seed"),
        ("--seed 18446744073709551616", "--seed"),
        ("--seed 1.5", "--seed"),
        ("--check --no-check", "--check contradicts --no-check"),
        ("--causal=maybe", "--causal: '--causal=maybe' has a value, and the flag takes none; --causal alone switches it on"),
        ("--causal=1", "--causal: '--causal=1' has a value"),
        ("--causal=", "--causal: '--causal=' has a value"),
        ("--no-check=false", "--no-check: '--no-check=false' has a value"),
        ("--input README.md", "--input: 'README.md' is not a folder; give the folder that the .npy files are in"),
        ("--layer README.md", "--layer: 'README.md' is not a folder"),
        ("stray", "stray"),
        ("--sim-async sometimes", "late, eager or random"),
        ("--sim-workers 0", "--sim-workers"),
        ("--sim-device h200", "h100 or rtx3090"),
        ("--sim-seed x", "--sim-seed"),
    ],
)
def test_bad_usage_is_refused(naive_mha, tmp_path, flags, saying):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    refused(naive_mha, *flags.split(), *files, saying=saying, written=tmp_path / "out")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    "flag, saying",
    [
        ("--scale", "--scale: '' is not a finite number in decimal"),
        ("--dropout", "--dropout: '' is not a finite number in decimal"),
        ("--dtype", "--dtype: '' is unknown; fp32, fp16 or bf16"),
        ("--input", "--input: '' is not a folder; give the folder that the .npy files are in"),
        ("--layer", "--layer: '' is not a folder"),
        ("--cu-seqlens", "--cu-seqlens: a file is needed"),
        ("--output", "--output: a path is needed"),
        ("--json", "--json: a path is needed"),
        ("--sim-async", "--sim-async: '' is unknown; late, eager or random"),
    ],
)
def test_an_empty_value_is_refused_by_its_flag(naive_mha, flag, saying):
    refused(naive_mha, flag, "", saying=saying)


# What stands at the end of a number, and behind it.
ENDS = ["-1", "9" * 30, "1e400", "nan", "inf", "", "5x", "0x5", " 5", "5 ", "+5", "4.5"]


@pytest.mark.parametrize("name", STEPS)
def test_every_flag_of_a_whole_number_says_what_it_takes(name, tmp_path):
    flags = re.findall(r"^ +(--[a-z-]+) N ", Step(name).ok("--help").stdout, re.MULTILINE)
    assert {"--seed"} < set(flags)
    for n, flag in enumerate(flags):
        for value in (ENDS[n % len(ENDS)], ENDS[(n + 5) % len(ENDS)]):
            saying = f"{flag}: '{value}' is not a whole number from "
            refused(Step(name), flag, value, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")


@pytest.mark.parametrize(
    "flag, value", [("batch", 3), ("heads", 2), ("kv-heads", 4), ("seq-q", 8), ("seq-k", 10), ("dim", 32), ("seed", 1)]
)
def test_a_flag_that_contradicts_the_input_files_is_refused(naive_mha, tmp_path, flag, value):
    folder = save(tmp_path / "in", *inputs(2, 4, 2, 9, 11, 16))
    message = refused(naive_mha, "--input", folder, f"--{flag}", value, "--output", tmp_path / "out", written=tmp_path / "out")
    assert f"--{flag}" in message and "contradicts" in message


def test_flags_that_agree_with_the_input_files_are_accepted(naive_mha, tmp_path):
    folder = save(tmp_path / "in", *inputs(2, 4, 2, 9, 11, 16))
    shape = {"batch": 2, "heads": 4, "kv-heads": 2, "seq-q": 9, "seq-k": 11, "dim": 16}
    naive_mha.ok("--input", folder, *itertools.chain(*((f"--{flag}", value) for flag, value in shape.items())))


def test_the_sim_build_measures_no_time(naive_mha, sim):
    refused(naive_mha, "--bench", saying="--bench")


def test_counters_have_nsight_computes_names_and_a_table_by_line(naive_mha, sim, tmp_path):
    shape = ["--heads", "2", "--seq-q", "64", "--dim", "32"]
    done = naive_mha.ok("--variant", "all", "--counters", *shape, "--json", tmp_path / "counters.json")
    variants = {r["variant"]: r["counters"] for r in read_report(tmp_path / "counters.json")["results"]}
    scores = {name: launches[-3]["exact"] for name, launches in variants.items()}
    requests, sectors = (f"l1tex__t_{what}_pipe_lsu_mem_global_op_st.sum" for what in ("requests", "sectors"))
    # S of 2 · 64 · 64 elements: 256 warps store it, 32 sectors each or 4.
    assert {name: s[requests] for name, s in scores.items()} == dict.fromkeys(variants, 256)
    assert scores["element_uncoalesced"][sectors] == 32 * 256 and scores["element_coalesced"][sectors] == 4 * 256
    softmax = variants["block_softmax"][2]
    assert softmax["exact"]["sass__inst_executed_per_opcode.BAR"] == 2 * 64 * 4 * 2 * 9  # rows, warps, reductions, barriers
    assert softmax["at_least"]["dram__bytes_read.sum"] == 2 * 64 * 64 * 4
    for text in (requests, "05_block_softmax.cuh:41", "shared load 4 B"):
        assert text in done.stdout


def test_counters_are_the_same_under_every_schedule(naive_mha, sim, tmp_path):
    counted = []
    for seed, workers in ((1, 1), (2, 2), (3, 1)):
        path = tmp_path / f"{seed}.json"
        naive_mha.ok("--counters", "--causal", "--seq-q", "37", "--sim-seed", seed, "--sim-workers", workers, "--json", path)
        counted.append(read_report(path)["results"][0]["counters"])
    assert counted[0] == counted[1] == counted[2]


def test_the_gpu_build_refuses_the_flags_of_the_simulator(naive_mha, gpu):
    for flags in (["--sim-seed", 1], ["--sim-async", "late"], ["--sim-workers", 1], ["--sim-device", "h100"], ["--trace", "trace.jsonl"]):
        refused(naive_mha, *flags, saying=flags[0])
    refused(naive_mha, "--counters", saying="make profile")


# ---- places to write to ----


def test_folders_are_created_and_files_replaced(naive_mha, tmp_path):
    out = tmp_path / "a" / "b"
    for _ in range(2):
        naive_mha.ok(*SMALL, "--output", out, "--json", out / "c" / "report.json")
        assert sorted(path.name for path in out.iterdir()) == ["c", "lse.npy", "o.npy"]
    naive_mha.ok(*SMALL, "--output", "here", cwd=tmp_path)
    assert (tmp_path / "here" / "o.npy").exists()


def test_places_that_cannot_be_written_are_found_before_anything_is_computed(naive_mha, tmp_path):
    (tmp_path / "file").write_text("")
    too_long_to_compute = ("--heads", 16, "--seq-q", 4096)
    refused(naive_mha, "--output", tmp_path / "file", *too_long_to_compute, saying="is not a folder")
    refused(naive_mha, "--output", tmp_path / "file" / "out", *too_long_to_compute, saying="is not a folder")
    refused(naive_mha, "--json", tmp_path, *too_long_to_compute, saying="is a folder")
    refused(naive_mha, "--json", tmp_path / "file" / "report.json", *too_long_to_compute, saying="is not a folder")
    refused(naive_mha, "--output", "", saying="--output")


def test_permissions_are_seen_beforehand(naive_mha, tmp_path):
    tmp_path.chmod(0o500)
    like_anyone = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []  # root may write everywhere
    refused(Step(naive_mha.name, like_anyone), *SMALL, "--output", tmp_path / "out", saying="cannot be written")


# ---- exit statuses ----


def test_a_failed_check_ends_with_1_and_complete_outputs(tmp_path):
    wrong = ("--variant", "wrong_update", "--heads", 1, "--seq-q", 5, "--seq-k", 200, "--dim", 32)  # there to be rejected
    done = Step("04_flash_v1")(*wrong, "--output", tmp_path / "out", "--json", tmp_path / "report.json")
    assert done.returncode == 1
    assert "FAIL" in done.stdout and "wrong_update: O:" in done.stderr
    assert np.load(tmp_path / "out" / "o.npy").shape == (1, 1, 5, 32)
    verdict = read_report(tmp_path / "report.json")["results"][0]["verdict"]
    assert not verdict["pass"] and verdict["reason"].startswith("O:")


def test_without_a_check_nothing_fails(naive_mha, tmp_path):
    q, k, v = inputs(1, 1, 1, 5, 5, 4)
    save(tmp_path / "in", q, k, v)
    report = naive_mha.report(tmp_path / "report.json", "--input", tmp_path / "in", "--no-check")
    assert report["results"][0]["verdict"] is None


def test_a_problem_beyond_the_memory_ends_with_3_and_says_how_much_there_is(naive_mha, tmp_path):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    message = refused(
        naive_mha, "--heads", 16, "--seq-q", 300000, *files, status=3, saying="out of device memory", written=tmp_path / "out"
    )
    assert len(re.findall(r"\d+ MB", message)) >= 2
    assert not (tmp_path / "out.json").exists()
    # Beyond what the host could hold either, and with all variants.
    refused(naive_mha, "--batch", 60000, "--seq-q", 1000000, "--variant", "all", status=3, saying="out of device memory")


# ---- JSON ----


def test_the_report_says_what_was_computed(naive_mha, tmp_path, backend):
    shape = ("--batch", 2, "--heads", 4, "--kv-heads", 2, "--seq-q", 12, "--seq-k", 15, "--dim", 16, "--causal", "--seed", 9)
    report = naive_mha.report(tmp_path / "report.json", *shape, "--variant", "all")
    assert report["command"] == [
        str(BIN / "01_naive_mha"),
        *map(str, shape),
        "--variant",
        "all",
        "--json",
        str(tmp_path / "report.json"),
    ]
    assert len(report["results"]) == 5 and report["skipped"] == []
    for result in report["results"]:
        assert result["input"] == {"seed": 9}
        assert result["problem"] == {
            "family": "attention", "batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 12, "seq_k": 15, "dim": 16, "causal": True,
            "window": 0, "scale": 0.25, "dtype": "fp32",
        }  # fmt: skip
        assert [tensor["name"] for tensor in result["verdict"]["tensors"]] == ["O", "LSE"]
        assert all(tensor["rows_checked"] == 2 * 4 * 12 for tensor in result["verdict"]["tensors"])
        assert result["verdict"]["deterministic"] and result["verdict"]["guards_intact"]
        assert result["times_ms"] is None and result["tflops"] is None
        assert (result["host_seconds"] is None) == (backend == "gpu")
        live_pairs = sum(min(15, i + 1 + 3) for i in range(12))
        products = [kernel["flops"] for kernel in result["kernels"] if kernel["flops"] == 2 * 16 * live_pairs * 4 * 2]
        assert len(products) == 2


def test_a_command_that_is_no_unicode_does_not_break_the_report(naive_mha, tmp_path):
    out = os.fsencode(tmp_path) + b"/\xff"
    naive_mha.report(tmp_path / "report.json", *SMALL, "--output", os.fsdecode(out))
    assert os.path.exists(out + b"/o.npy")


def test_time_is_measured_on_a_gpu(naive_mha, tmp_path, gpu):
    report = naive_mha.report(tmp_path / "report.json", "--bench")
    (result,) = report["results"]
    times = result["times_ms"]
    assert 0 < times["min"] <= times["median"] <= times["max"] and times["repetitions"] >= 20
    assert 1 <= times["launches"] <= 200
    assert result["tflops"] == pytest.approx(4 * 64 * 128 * 128 * 4 / (times["median"] * 1e-3) / 1e12)


# ---- the simulator's flags ----


def test_no_schedule_changes_a_bit_of_the_result(naive_mha, tmp_path, sim):
    shape = ("--heads", 3, "--seq-q", 41, "--seq-k", 57, "--dim", 40, "--causal", "--variant", "all")
    schedules = [[], ["--sim-workers", 1], ["--sim-workers", 2], ["--sim-seed", 2], ["--sim-seed", 2**64 - 1],
                 ["--sim-async", "eager"], ["--sim-async", "random", "--sim-seed", 5]]  # fmt: skip
    results = []
    for n, schedule in enumerate(schedules):
        naive_mha.ok(*shape, *schedule, "--output", tmp_path / str(n))
        results.append({path.relative_to(tmp_path / str(n)): path.read_bytes() for path in (tmp_path / str(n)).glob("*/*.npy")})
    assert len(results[0]) == 10
    assert all(result == results[0] for result in results[1:])


@pytest.mark.parametrize(
    ("step", "flags"),
    [
        ("02_tiled_gemm", ["--variant", "all", "--m", "130", "--n", "72", "--k", "72"]),
        ("04_flash_v1", ["--variant", "all", "--heads", "1", "--seq-q", "70", "--dim", "64", "--causal"]),
        ("05_flash_v2", ["--variant", "all", "--heads", "1", "--seq-q", "130", "--dim", "64", "--causal"]),
        ("06_backward", ["--variant", "deterministic", "--heads", "1", "--seq-q", "130", "--dim", "64", "--causal"]),
        ("07_block_sparse", ["--variant", "all", "--heads", "1", "--seq-q", "130", "--seq-k", "130", "--dim", "64"]),
    ],
)
def test_products_that_are_made_late_have_the_bits_of_those_that_are_made_at_once(step, flags, tmp_path, sim):
    """With --counters the simulator makes each mma.sync where it stands, else when a lane looks at its sums."""
    late, at_once = tmp_path / "late", tmp_path / "at_once"
    built(step).ok(*flags, "--no-check", "--output", late)
    built(step).ok(*flags, "--no-check", "--counters", "--output", at_once)
    files = sorted(path.relative_to(late) for path in late.rglob("*.npy"))
    assert files
    for file in files:
        assert (late / file).read_bytes() == (at_once / file).read_bytes(), file


def test_the_report_names_the_schedule(naive_mha, tmp_path, sim):
    report = naive_mha.report(tmp_path / "r.json", *SMALL, "--sim-seed", 7, "--sim-async", "random", "--sim-workers", 1)
    assert report["sim"] == {"seed": 7, "async": "random", "workers": 1}


def test_a_smaller_device_has_less_shared_memory_and_an_older_architecture(naive_mha, tmp_path, sim):
    report = naive_mha.report(tmp_path / "r.json", *SMALL, "--sim-device", "rtx3090")
    assert report["sim"]["device"] == "rtx3090"
    assert (report["device"]["compute_capability"], report["device"]["shared_bytes_per_block"]) == (86, 99 * 1024)


# ---- the ceilings have a command line of their own ----


def test_without_a_gpu_the_ceilings_are_those_that_an_h200_reached(tmp_path, sim):
    ceilings = Step("../benchmarks/ceilings")
    done = ceilings.ok("--json", tmp_path / "ceilings.json")
    known = json.loads((ROOT / "docs" / "machine" / "h200.json").read_text())["ceilings"]
    assert json.loads((tmp_path / "ceilings.json").read_text())["ceilings"] == known
    for name, ceiling in known.items():
        assert re.search(rf"^{name} +{ceiling['value'] / 1e12:.2f} ", done.stdout, re.MULTILINE)
    refused = ceilings("--json", tmp_path / "no" / "ceilings.json")
    assert refused.returncode == 2 and "cannot be written" in refused.stderr

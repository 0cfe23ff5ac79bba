"""Options of scores from outside: --softcap, --alibi, --bias, --sinks, --lengths. The judge is NumPy, in float64."""

import json

import numpy as np
import pytest
from conftest import STEPS, built, read_report
from test_cli import inputs, refused, save

VARIANTS = ["any_dim", "stream_k", "tuned", "tuned_99k"]
OTHERS = ["packed_heads", "warp_rings", "split_kv", "last_block", "whole_rows", "cluster", "dependent", "tuned_dependent"]
# What variants that do not take an option say of it.
REFUSED = {"softcap": "a softcap", "alibi": "ALiBi", "bias": "a bias", "sinks": "sinks", "lengths": "lengths of a padded cache"}


@pytest.fixture
def decoding():
    return built("09_decoding")


def slopes(heads, exponent):
    """ALiBi's, as Press et al. have them."""
    first = 2 ** (heads.bit_length() - 1)
    more = [2.0 ** (-exponent * n / (2 * first)) for n in range(1, 2 * first, 2)]
    return np.array([*(2.0 ** (-exponent * (h + 1) / first) for h in range(first)), *more][:heads])


def attention(q, k, v, softcap=0, alibi=0, bias=None, sinks=None, lengths=None, causal=False, window=0):
    """O and LSE, in float64."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    (batch, heads, seq_q, dim), group = q.shape, q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    lengths = np.full(batch, k.shape[2]) if lengths is None else lengths
    i, j = np.indices((seq_q, k.shape[2]))
    ahead = (lengths[:, None, None] - seq_q + i - j)[:, None]  # of a query's own key
    seen = (j < lengths[:, None, None])[:, None] & ((ahead >= 0) | (not causal)) & ((abs(ahead) < window) | (window == 0))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(dim)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if bias is not None:
        s = s + bias
    if alibi:
        s = s - slopes(heads, alibi)[:, None, None] * abs(ahead)
    p = np.where(seen, np.exp(s), 0)
    total = p.sum(axis=-1) + (0 if sinks is None else np.exp(sinks.astype(np.float64))[:, None])
    with np.errstate(divide="ignore"):
        return p @ v / np.where(total == 0, 1, total)[..., None], np.log(total)


def arrays_for(batch, heads, seq_q, seq_k):
    """A bias, sinks and lengths."""
    random = np.random.default_rng(7)
    bias = random.uniform(-2, 2, (batch, heads, seq_q, seq_k)).astype(np.float16)
    bias[random.random(bias.shape) < 0.1] = -np.inf
    bias[0, 0, 0] = -np.inf  # a row whose keys are all hidden
    sinks = random.uniform(-1, 2, heads).astype(np.float32)
    return {"bias": bias, "sinks": sinks, "lengths": np.array([seq_k, 0, seq_k // 2, 1][:batch], np.int32)}


def assert_right(out, tensors, **options):
    expected = attention(*tensors, **options)
    for name, values in zip(("o", "lse"), expected, strict=True):
        made, finite = np.load(out / f"{name}.npy"), np.isfinite(values)
        np.testing.assert_array_equal(made[~finite], values[~finite])
        np.testing.assert_allclose(made[finite], values[finite], rtol=0, atol=2.0**-9 * abs(values[finite]).max(initial=0), err_msg=name)


# ---- right numbers ----

CASES = {
    "softcap": {"softcap": 0.75},
    "alibi": {"alibi": 8},
    "bias": {"bias"},
    "sinks": {"sinks"},
    "lengths": {"lengths"},
    "all, causal": {"softcap": 1.5, "alibi": 4, "bias": 0, "sinks": 0, "lengths": 0, "causal": True},
    "ALiBi, sinks and lengths, a window": {"alibi": 8, "sinks": 0, "lengths": 0, "window": 9},
}


@pytest.mark.parametrize("name", CASES)
def test_variants_that_take_an_option_agree_with_numpy_from_files_of_flags_and_of_the_folder(decoding, tmp_path, name):
    options = CASES[name]
    tensors = inputs(4, 6, 2, 3, 70, 64, np.float16)
    arrays = {key: array for key, array in arrays_for(4, 6, 3, 70).items() if key in options}
    numbers = {key: value for key, value in options.items() if key not in arrays} if isinstance(options, dict) else {}
    flags = [word for key, value in numbers.items() for word in ([f"--{key}"] if value is True else [f"--{key}", value])]
    save(tmp_path / "flags", *tensors)
    save(tmp_path / "folder", *tensors)
    named = []
    for key, array in arrays.items():
        np.save(tmp_path / f"of_flag_{key}.npy", array)
        np.save(tmp_path / "folder" / f"{key}.npy", array)
        named += [f"--{key}", tmp_path / f"of_flag_{key}.npy"]
    for variant in VARIANTS:
        decoding.ok("--input", tmp_path / "flags", *named, *flags, "--variant", variant, "--output", tmp_path / variant)
        assert_right(tmp_path / variant, tensors, **arrays, **numbers)
    decoding.ok("--input", tmp_path / "folder", *flags, "--output", tmp_path / "out")
    assert_right(tmp_path / "out", tensors, **arrays, **numbers)


@pytest.mark.parametrize("extents", [(70,), (3, 70), (6, 1, 70), (1, 6, 3, 70), (4, 1, 1, 70), (4, 6, 1, 70)])
def test_a_bias_may_lack_dimensions_or_have_one_of_them_for_all(decoding, tmp_path, extents):
    tensors = inputs(4, 6, 2, 3, 70, 32, np.float16)
    bias = np.random.default_rng(1).uniform(-2, 2, extents).astype(np.float32)
    np.save(save(tmp_path / "in", *tensors) / "bias.npy", bias)
    decoding.ok("--input", tmp_path / "in", "--output", tmp_path / "out")
    assert_right(tmp_path / "out", tensors, bias=bias.astype(np.float16).astype(np.float64))


def test_any_dim_takes_options_in_fp32_with_rows_of_any_length(decoding, tmp_path):
    tensors, arrays = inputs(4, 6, 2, 3, 70, 33), arrays_for(4, 6, 3, 70)
    save(tmp_path / "in", *tensors)
    for key, array in arrays.items():
        np.save(tmp_path / "in" / f"{key}.npy", array.astype(np.int64) if key == "lengths" else array)
    decoding.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--dtype", "fp32", "--variant", "any_dim", "--softcap", 2, "--alibi", 8)
    assert_right(tmp_path / "out", tensors, **arrays, softcap=2, alibi=8)


def test_a_bias_hides_keys_whatever_they_are_and_lengths_what_lies_behind_them(decoding, tmp_path):
    q, k, v = inputs(2, 4, 2, 2, 40, 64, np.float16)
    lengths, bias = np.array([40, 25], np.int32), np.zeros((1, 1, 1, 40), np.float16)
    bias[..., 11] = bias[..., 39] = -np.inf
    clean = [q, k.copy(), v.copy()]
    k[:, :, 11], v[:, :, 39], v[:, :, 11, 5] = np.nan, np.inf, np.nan
    k[1, :, 25:] = v[1, :, 25:] = np.nan
    save(tmp_path / "in", q, k, v)
    np.save(tmp_path / "in" / "bias.npy", bias)
    np.save(tmp_path / "in" / "lengths.npy", lengths)
    for variant in VARIANTS:
        decoding.ok("--input", tmp_path / "in", "--variant", variant, "--output", tmp_path / variant)
        assert_right(tmp_path / variant, clean, bias=bias, lengths=lengths)


@pytest.mark.parametrize("sinks", [None, np.array([0.5, -np.inf, 2, 300], np.float32)])
def test_a_cache_without_any_key_gives_zeros_and_the_sinks(decoding, tmp_path, sinks):
    tensors, lengths = inputs(2, 4, 2, 3, 40, 64, np.float16), np.zeros(2, np.int32)
    save(tmp_path / "in", *tensors)
    np.save(tmp_path / "in" / "lengths.npy", lengths)
    if sinks is not None:
        np.save(tmp_path / "in" / "sinks.npy", sinks)
    for variant in VARIANTS:
        report = tmp_path / f"{variant}.json"
        decoding.report(report, "--input", tmp_path / "in", "--variant", variant, "--output", tmp_path / variant)
        assert_right(tmp_path / variant, tensors, lengths=lengths, sinks=sinks)


def test_a_bias_or_a_sink_of_nan_or_infinity_makes_rows_nan(decoding, tmp_path):
    tensors = inputs(1, 4, 2, 2, 40, 64, np.float16)
    bias, sinks = np.zeros((1, 4, 2, 40), np.float32), np.array([1, np.inf, np.nan, 0], np.float32)
    bias[0, 3, 1, 7], bias[0, 0, 0, 39] = np.nan, np.inf
    save(tmp_path / "in", *tensors)
    np.save(tmp_path / "in" / "bias.npy", bias)
    np.save(tmp_path / "in" / "sinks.npy", sinks)
    odd = np.array([[[True, False], [True, True], [True, True], [False, True]]])
    for variant in VARIANTS:
        decoding.ok("--input", tmp_path / "in", "--variant", variant, "--output", tmp_path / variant)
        o, lse = (np.load(tmp_path / variant / f"{name}.npy") for name in ("o", "lse"))
        np.testing.assert_array_equal(np.isnan(lse), odd)
        np.testing.assert_array_equal(np.isnan(o), np.broadcast_to(odd[..., None], o.shape))


# ---- what is printed and written ----


def test_what_is_used_is_printed_and_written(decoding, tmp_path):
    shape = ("--batch", 2, "--heads", 4, "--kv-heads", 2, "--seq-q", 1, "--seq-k", 30)
    np.save(tmp_path / "bias.npy", np.zeros((4, 1, 30), np.float16))
    np.save(tmp_path / "sinks.npy", np.zeros(4, np.float32))
    np.save(tmp_path / "lengths.npy", np.array([30, 7]))
    flags = ["--softcap", 30.5, "--alibi", 8, *(word for name in ("bias", "sinks", "lengths") for word in (f"--{name}", tmp_path / f"{name}.npy"))]
    out = decoding.ok(*shape, *flags, "--json", tmp_path / "r.json").stdout
    assert "softcap 30.5, alibi 8, bias [1, 4, 1, 30], sinks, lengths 7 … 30, fp16" in out
    used = read_report(tmp_path / "r.json")["results"][0]["problem"]
    assert {key: used.get(key) for key in REFUSED} == {"softcap": 30.5, "alibi": 8, "bias": [1, 4, 1, 30], "sinks": True, "lengths": [30, 7]}
    kernels = json.loads((tmp_path / "r.json").read_text())["results"][0]["kernels"]
    assert sum(kernel["flops"] for kernel in kernels) == 4 * 64 * 4 * (30 + 7)
    plain = decoding.report(tmp_path / "plain.json", *shape, "--softcap", 0, "--alibi", 0)["results"][0]["problem"]
    assert not REFUSED.keys() & plain.keys()


def test_all_variants_leaves_out_those_that_do_not_take_an_option(decoding, tmp_path):
    report = decoding.report(tmp_path / "r.json", "--softcap", 5, "--seq-q", 1, "--seq-k", 20, "--heads", 2, "--variant", "all")
    assert [result["variant"] for result in report["results"]] == VARIANTS
    assert [skipped["variant"] for skipped in report["skipped"]] == OTHERS
    assert all("does not support a softcap" in skipped["reason"] for skipped in report["skipped"])


# ---- refusals ----


def flags_of(tmp_path, option):
    """Of an option alone, with a file where it needs one. The shape: batch 2, 4 heads, 3 queries, 8 keys."""
    arrays = {"bias": np.zeros(8, np.float32), "sinks": np.zeros(4, np.float32), "lengths": np.array([8, 3])}
    if option not in arrays:
        return [f"--{option}", 8]
    np.save(tmp_path / f"{option}.npy", arrays[option])
    return [f"--{option}", tmp_path / f"{option}.npy"]


SHAPE = ("--batch", 2, "--heads", 4, "--seq-q", 3, "--seq-k", 8)


@pytest.mark.parametrize("option", REFUSED)
def test_other_variants_and_steps_refuse_an_option_by_name(decoding, tmp_path, option):
    flags = flags_of(tmp_path, option)
    saying = f"does not support {REFUSED[option]};"
    decoding.ok(*SHAPE, "--dim", 64, *flags)
    for variant in OTHERS:
        refused(decoding, *SHAPE, "--dim", 64, *flags, "--variant", variant, saying=f"{variant} {saying}")
    for name in ("01_naive_mha", "04_flash_v1", "06_backward", "07_block_sparse"):
        refused(built(name), *SHAPE, *flags, saying=saying)
    refused(built("05_flash_v2"), *SHAPE, *flags, "--variant", "lazy_rescale", saying=f"lazy_rescale {saying}")
    for name in {"02_tiled_gemm", "03_online_softmax"} & set(STEPS):
        refused(built(name), *flags, saying=f"--{option}")


@pytest.mark.parametrize("option", REFUSED)
def test_the_backward_pass_and_a_layer_refuse_an_option_by_name(tmp_path, option):
    flags = flags_of(tmp_path, option)
    refused(built("07_block_sparse"), "--backward", *SHAPE, *flags, saying=f"does not support {REFUSED[option]};")
    done = refused(built("01_naive_mha"), "--layer", "data/minilm_layer", *flags)
    assert f"--{option}" in done and "contradict" in done and "--layer" in done


@pytest.mark.parametrize("option", ["bias", "sinks", "lengths"])
def test_a_file_must_be_there_and_only_once(decoding, tmp_path, option):
    save(tmp_path / "in", *inputs(2, 4, 4, 3, 8, 64, np.float16))
    flags = flags_of(tmp_path, option)
    decoding.ok("--input", tmp_path / "in", *flags)
    refused(decoding, *SHAPE, f"--{option}", tmp_path / "none.npy", saying="none.npy: no such file")
    refused(decoding, *SHAPE, f"--{option}", "", saying=f"--{option}: a file is needed")
    refused(decoding, *SHAPE, f"--{option}", tmp_path)
    (tmp_path / "in" / f"{option}.npy").write_bytes(flags[1].read_bytes())
    refused(decoding, "--input", tmp_path / "in", *flags, saying=f"--{option} contradicts {tmp_path / 'in' / option}.npy")
    decoding.ok("--input", tmp_path / "in")
    # A step that does not take the option refuses it from the folder, too.
    refused(built("04_flash_v1"), "--input", tmp_path / "in", saying=f"does not support {REFUSED[option]};")


@pytest.mark.parametrize(
    ("option", "array", "saying"),
    [
        ("bias", np.zeros((2, 4, 3, 1), np.float32), "bias has the shape [2, 4, 3, 1]; it must have [2, 4, 3, 8]"),
        ("bias", np.zeros((2, 3, 3, 8), np.float32), "bias has the shape [2, 3, 3, 8]"),
        ("bias", np.zeros(7, np.float16), "bias has the shape [1, 1, 1, 7]"),
        ("bias", np.zeros((1, 2, 4, 3, 8), np.float32), "bias.npy: shape [1, 2, 4, 3, 8]"),
        ("bias", np.zeros((), np.float32), "bias.npy: "),
        ("bias", np.zeros((0, 4, 3, 8), np.float32), "bias"),
        ("bias", np.zeros(8, np.float64), "bias.npy: "),
        ("bias", np.zeros(8, np.bool_), "bias.npy: "),
        ("sinks", np.zeros(3, np.float32), "sinks has the shape [3]; heads is 4"),
        ("sinks", np.zeros((4, 1), np.float32), "sinks has the shape [4, 1]; heads is 4"),
        ("sinks", np.zeros(4, np.int32), "sinks.npy: "),
        ("lengths", np.array([8]), "lengths holds 1 number; batch is 2"),
        ("lengths", np.array([8, 9]), "lengths holds 9; it must be from 0 to seq-k, 8"),
        ("lengths", np.array([-1, 8]), "lengths holds -1; it must be from 0 to seq-k, 8"),
        ("lengths", np.array([8.0, 3.0], np.float32), "lengths.npy: "),
        ("lengths", np.array([[8, 3]]), "lengths.npy: "),
        ("lengths", np.array([8, 2**40]), "lengths.npy: "),
        ("lengths", np.array([], np.int32), "lengths"),
    ],
)
def test_arrays_that_cannot_be_are_refused(decoding, tmp_path, option, array, saying):
    np.save(tmp_path / f"{option}.npy", array)
    refused(decoding, *SHAPE, f"--{option}", tmp_path / f"{option}.npy", saying=saying, written=tmp_path / "out")


@pytest.mark.parametrize(
    ("flags", "saying"),
    [
        (["--softcap", -1], "softcap is -1; it must be 0 (none) to 2^127"),
        (["--softcap", "nan"], "--softcap: 'nan' is not a finite number in decimal"),
        (["--softcap", "inf"], "--softcap: 'inf' is not a finite number in decimal"),
        (["--softcap", "1e-46"], "--softcap: '1e-46' is too near 0"),
        (["--softcap"], "--softcap"),
        (["--alibi", -8], "alibi is -8; it must be 0 (none) to 1024"),
        (["--alibi", 1025], "alibi is 1025; it must be 0 (none) to 1024"),
        (["--alibi", "x"], "--alibi: 'x' is not a finite number in decimal"),
    ],
)
def test_numbers_that_cannot_be_are_refused(decoding, flags, saying):
    refused(decoding, *SHAPE, *flags, saying=saying)


def test_lengths_contradict_packed_sequences_and_sparse_masks(tmp_path):
    np.save(tmp_path / "lengths.npy", np.array([8]))
    np.save(tmp_path / "cu.npy", np.array([0, 3, 8]))
    lengths = ("--lengths", tmp_path / "lengths.npy")
    refused(built("05_flash_v2"), "--cu-seqlens", tmp_path / "cu.npy", *lengths, saying="lengths contradict packed sequences")
    refused(built("07_block_sparse"), "--heads", 2, "--seq-q", 8, "--pattern", "band:1", *lengths, saying="lengths contradict a sparse mask")


# ---- paged caches ----

CACHE = ("--batch", 3, "--heads", 4, "--kv-heads", 2, "--seq-q", 2, "--seq-k", 70, "--dim", 64, "--causal")


def test_pages_change_no_bit(decoding, tmp_path):
    np.save(tmp_path / "lengths.npy", np.array([70, 0, 33]))
    for variant in VARIANTS:
        line = (*CACHE, "--lengths", tmp_path / "lengths.npy", "--variant", variant)
        outputs = {}
        for size in (None, 1, 16, 256):
            out = tmp_path / f"{variant}{size}"
            decoding.ok(*line, *(["--page-size", size] if size else []), "--output", out)
            outputs[size] = [(out / f"{name}.npy").read_bytes() for name in ("o", "lse")]
        assert len(set(map(tuple, outputs.values()))) == 1


def test_keys_and_values_of_a_folder_may_lie_in_pages(decoding, tmp_path):
    random = np.random.default_rng(5)
    q = random.standard_normal((2, 4, 1, 64)).astype(np.float16)
    k, v = (random.standard_normal((6, 2, 16, 64)).astype(np.float16) for _ in "kv")
    k[3], v[3] = np.nan, np.inf  # nobody's page
    table, lengths = np.array([[5, 0, 1], [5, 4, -1]]), np.array([40, 20])  # both begin with page 5
    k[1, :, 8:], v[4, :, 4:] = np.nan, np.nan  # behind the lengths
    save(tmp_path / "in", q, k, v)
    np.save(tmp_path / "in" / "pages.npy", table)
    np.save(tmp_path / "in" / "lengths.npy", lengths)
    whole = [np.stack([np.concatenate(pool[np.maximum(row, 0)], axis=1) for row in table]) for pool in (k, v)]
    seen = np.arange(48) < lengths[:, None]
    k_whole, v_whole = (np.where(seen[:, None, :, None], x, 0) for x in whole)
    o, lse = attention(q, k_whole, v_whole, lengths=lengths)
    for variant in VARIANTS:
        decoding.ok("--input", tmp_path / "in", "--variant", variant, "--output", tmp_path / variant)
        np.testing.assert_allclose(np.load(tmp_path / variant / "o.npy"), o, atol=2e-3)
        np.testing.assert_allclose(np.load(tmp_path / variant / "lse.npy"), lse, atol=1e-3)
    report = decoding.report(tmp_path / "r.json", "--input", tmp_path / "in")
    assert report["results"][0]["problem"]["pages"] == {"size": 16, "count": 6}
    refused(decoding, "--input", tmp_path / "in", "--page-size", 8, saying="--page-size contradicts")
    refused(decoding, "--input", tmp_path / "in", "--seq-k", 32, saying="--seq-k is 32")
    np.save(tmp_path / "in" / "pages.npy", np.array([[5, 0, 6], [5, 4, -1]]))
    refused(decoding, "--input", tmp_path / "in", saying="pages holds 6 for page 2 of batch entry 0; the pool has 6")
    np.save(tmp_path / "in" / "pages.npy", np.arange(6))
    refused(decoding, "--input", tmp_path / "in", saying="it must be [batch, pages of an entry]")


def test_pages_that_cannot_be_are_refused_by_name(decoding, tmp_path):
    for size in (3, 512):
        refused(decoding, *CACHE, "--page-size", size, saying=f"page-size is {size}; it must be a power of two up to 256")
    for variant in OTHERS:
        refused(decoding, *CACHE, "--page-size", 16, "--variant", variant, saying=f"{variant} does not support a paged cache;")
    for name in ("01_naive_mha", "04_flash_v1", "05_flash_v2", "06_backward", "07_block_sparse"):
        refused(built(name), *SHAPE, "--page-size", 16, saying="does not support a paged cache;")
    np.save(tmp_path / "cu.npy", np.array([0, 3, 8]))
    refused(built("05_flash_v2"), "--heads", 4, "--cu-seqlens", tmp_path / "cu.npy", "--page-size", 4, saying="a paged cache contradicts packed sequences")
    refused(built("01_naive_mha"), "--layer", "data/minilm_layer", "--page-size", 4, saying="contradict --layer")

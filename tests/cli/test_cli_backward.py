"""The command line of attention's backward pass from outside: right numbers, clear refusals, files. The judge is NumPy, in float64.

What all steps share (exit statuses, places to write to, the simulator's flags) is in test_cli.py.
"""

import itertools
import re

import numpy as np
import pytest
from conftest import built, read_report
from test_cli import inputs, refused, seeded

VARIANTS = ["standard", "recompute", "two_kernels", "one_kernel", "fragment_order", "transposed", "pipeline", "keys_32", "tuned_64",
            "column_split", "roles", "tuned_128", "deterministic", "any_dim", "tuned", "tuned_80"]  # fmt: skip
LONG_ROWS = ["column_split", "roles", "tuned_128"]  # head dims 96 and 128
DETERMINISTIC = ["standard", "two_kernels", "deterministic"]
ANY_DIM = ["standard", "recompute", "any_dim", "tuned", "tuned_80"]
SMALL = ("--heads", 2, "--seq-q", 9, "--dim", 32)


@pytest.fixture
def backward():
    return built("06_backward")


# ---- the judge ----


def visible(seq_q, seq_k, causal=False, window=0, live=True):
    i, j = np.indices((seq_q, seq_k))
    own = i + seq_k - seq_q
    return ((j <= own) | (not causal)) & ((abs(own - j) < window) | (window == 0)) & live


def gradients(q, k, v, do, scale=None, kept=1, **masks):
    """O, LSE, dQ, dK and dV in float64 from [batch, heads, seq, dim] arrays; dK and dV sum over the heads that share a key. `kept`: what
    dropout multiplies P by. `live`, of the masks: [heads, seq_q, seq_k], what a sparse mask lets queries see."""
    q, k, v, do = (np.asarray(a, np.float64) for a in (q, k, v, do))
    kv_shape, group = k.shape, q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = np.where(visible(q.shape[2], k.shape[2], **masks), q @ k.swapaxes(-1, -2) * scale, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0)
    p = np.exp(scores - shift)
    total = p.sum(axis=-1, keepdims=True)
    p /= np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + shift)[..., 0]
    dp = kept * (do @ v.swapaxes(-1, -2))
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    of_keys = (kv_shape[0], kv_shape[1], group, *kv_shape[2:])
    dk = (scale * ds.swapaxes(-1, -2) @ q).reshape(of_keys).sum(axis=2)
    dv = ((kept * p).swapaxes(-1, -2) @ do).reshape(of_keys).sum(axis=2)
    return (kept * p) @ v, lse, scale * ds @ k, dk, dv


def assert_right(folder, tensors, relative=2.0**-7, dtype=np.float16, **options):
    """dq.npy, dk.npy and dv.npy are what gradients() gives, up to a part of the largest element."""
    for name, expected in zip(("dq", "dk", "dv"), gradients(*tensors, **options)[2:]):
        made = np.load(folder / f"{name}.npy")
        assert made.dtype == dtype and made.shape == expected.shape
        np.testing.assert_allclose(made, expected, rtol=0, atol=relative * abs(expected).max() + 1e-6, err_msg=name)


def problem(batch, heads, kv_heads, seq_q, seq_k, dim, dtype=np.float16):
    """q, k, v and dO."""
    q, k, v = inputs(batch, heads, kv_heads, seq_q, seq_k, dim, dtype)
    return [q, k, v, np.random.default_rng(seq_q).standard_normal(q.shape).astype(dtype)]


def save(folder, tensors, o=None, lse=None):
    folder.mkdir(exist_ok=True)
    for name, array in zip(("q", "k", "v", "do", "o", "lse"), (*tensors, o, lse)):
        if array is not None:
            np.save(folder / f"{name}.npy", array)
    return folder


def with_forward(folder, tensors, spoil=lambda o, lse: None, **options):
    """And a forward pass, which `spoil` may change."""
    o, lse = gradients(*tensors, **options)[:2]
    o, lse = o.astype(tensors[0].dtype), lse.astype(np.float32)
    spoil(o, lse)
    return save(folder, tensors, o, lse)


# ---- right numbers ----


@pytest.mark.parametrize("dim", [32, 64, 128, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_every_variant_agrees_with_numpy_and_writes_a_folder_of_its_own(backward, tmp_path, dim, causal):
    tensors = problem(1, 2, 1, 37, 53, dim)
    flags = ["--causal"] if causal else []
    save(tmp_path / "in", tensors)
    backward.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--variant", "all", "--no-check", *flags)
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    fixed = {"keys_32": (32, 64), "tuned_64": (32, 64), **dict.fromkeys(LONG_ROWS, (128,))}
    expected = ANY_DIM if dim == 40 else [name for name in VARIANTS if dim in fixed.get(name, (dim,))]
    assert folders == sorted(expected)
    for folder in folders:
        assert sorted(path.name for path in (tmp_path / "out" / folder).iterdir()) == ["dk.npy", "dq.npy", "dv.npy"]
        assert_right(tmp_path / "out" / folder, tensors, causal=causal)


def test_fp32_gradients_agree_with_numpy(backward, tmp_path):
    tensors = problem(2, 4, 2, 19, 30, 24, np.float32)
    save(tmp_path / "in", tensors)
    backward.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--variant", "all", "--dtype", "fp32", "--causal")
    for variant in ("standard", "recompute"):
        assert_right(tmp_path / "out" / variant, tensors, 1e-5, np.float32, causal=True)


@pytest.mark.parametrize("scale", ["0.5", "-1", "0", "-0", "1e-45"])
def test_the_scale_is_what_the_flag_says(backward, tmp_path, scale):
    tensors = problem(1, 2, 2, 20, 33, 32)
    save(tmp_path / "in", tensors)
    backward.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--scale", scale)
    assert_right(tmp_path / "out", tensors, scale=float(scale))
    if float(scale) == 0:
        assert not np.load(tmp_path / "out" / "dq.npy").any() and not np.load(tmp_path / "out" / "dk.npy").any()


def test_a_window_is_what_the_flag_says_and_rows_without_pairs_are_zero(backward, tmp_path):
    tensors = problem(1, 2, 1, 60, 20, 32)
    save(tmp_path / "in", tensors)
    backward.ok("--input", tmp_path / "in", "--output", tmp_path / "out", "--window", 5)
    assert_right(tmp_path / "out", tensors, window=5)
    seen = visible(60, 20, window=5)
    assert not np.load(tmp_path / "out" / "dq.npy")[:, :, ~seen.any(axis=1)].any()
    assert (~seen.any(axis=1)).sum() == 36


def test_seeded_inputs_are_the_documented_ones(backward, tmp_path):
    backward.ok("--heads", 4, "--kv-heads", 2, "--seq-q", 12, "--seq-k", 15, "--dim", 32, "--seed", 7, "--output", tmp_path / "out",
                "--variant", "recompute", "--dtype", "fp32")  # fmt: skip
    shapes = [(1, 4, 12, 32), (1, 2, 15, 32), (1, 2, 15, 32)]
    q, k, v = (seeded(7, n, shape) for n, shape in enumerate(shapes))
    assert_right(tmp_path / "out", [q, k, v + np.float32(0.5), seeded(7, 4, shapes[0])], 1e-5, np.float32)


def test_the_seed_changes_the_gradients_and_1_is_the_default(backward, tmp_path):
    for name, flags in (("default", []), ("one", ["--seed", 1]), ("two", ["--seed", 2])):
        backward.ok(*SMALL, *flags, "--variant", "two_kernels", "--output", tmp_path / name)
    dq = {name: np.load(tmp_path / name / "dq.npy") for name in ("default", "one", "two")}
    assert (dq["default"] == dq["one"]).all() and (dq["one"] != dq["two"]).any()


def test_defaults_are_printed_and_follow_what_is_given(backward):
    text = "heads 2 over 2, 9 × 9, dim 32, fp16, scale 0.176777, seed 1"
    assert text in backward.ok(*SMALL).stdout
    listing = backward.ok(*SMALL, "--list").stdout
    assert text in listing
    assert re.findall(r"^[* ] (\w+): ", listing, re.MULTILINE) == VARIANTS
    assert re.findall(r"^\* (\w+): ", listing, re.MULTILINE) == ["tuned"]


# ---- a forward pass that is given ----


def test_a_given_forward_pass_is_used_and_judged(backward, tmp_path):
    tensors = problem(1, 2, 1, 37, 53, 64)
    given = with_forward(tmp_path / "in", tensors, causal=True)
    backward.ok("--input", given, "--output", tmp_path / "out", "--causal", "--variant", "all")
    for folder in (tmp_path / "out").iterdir():
        assert_right(folder, tensors, causal=True)


def spoil_o(o, lse):
    o[0, 1, 30] *= 2


def spoil_lse(o, lse):
    lse[0, 0, 11] += 0.1


def lse_in_base_2(o, lse):
    lse *= np.log2(np.e)


@pytest.mark.parametrize(
    "spoil, saying", [(spoil_o, "O: row (batch 0, head 1, query 30)"), (spoil_lse, "LSE: row (batch 0, head 0, query 11)"), (lse_in_base_2, "LSE: row (batch 0")]
)
def test_a_wrong_forward_pass_ends_with_1_and_complete_outputs(backward, tmp_path, spoil, saying):
    given = with_forward(tmp_path / "in", problem(1, 2, 1, 37, 53, 64), spoil)
    done = backward("--input", given, "--output", tmp_path / "out")
    assert done.returncode == 1
    assert "FAIL" in done.stdout and re.search(r"tuned: (dQ|dK|dV|O|LSE):", done.stderr)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dk.npy", "dq.npy", "dv.npy"]
    assert np.load(tmp_path / "out" / "dk.npy").shape == (1, 1, 53, 64)
    backward("--input", given, "--json", tmp_path / "r.json")
    tensors = {t["name"]: t for t in read_report(tmp_path / "r.json")["results"][0]["verdict"]["tensors"]}
    assert list(tensors) == ["dQ", "dK", "dV", "O", "LSE"]
    assert not (tensors["O"]["pass"] and tensors["LSE"]["pass"])
    assert saying in " ".join(f"{name}: {t['reason']}" for name, t in tensors.items() if t["reason"])


def test_a_wrong_forward_pass_without_a_check_is_not_judged(backward, tmp_path):
    backward.ok("--input", with_forward(tmp_path / "in", problem(1, 1, 1, 5, 7, 32), spoil_lse_of_5), "--no-check")


def spoil_lse_of_5(o, lse):
    lse[0, 0, 3] += 0.5


@pytest.mark.parametrize("kept, missing", [("o", "lse"), ("lse", "o")])
def test_half_a_forward_pass_is_refused(backward, tmp_path, kept, missing):
    given = with_forward(tmp_path / "in", problem(1, 1, 1, 5, 7, 32))
    (given / f"{missing}.npy").unlink()
    saying = f"there is {kept}.npy but no {missing}.npy"
    refused(backward, "--input", given, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")


# ---- refusals ----


@pytest.mark.parametrize(
    "flags, saying",
    [
        ("--seq-q 0", "--seq-q: '0'"),
        ("--dim -3", "--dim: '-3'"),
        ("--scale nan", "--scale"),
        ("--heads 3 --kv-heads 2", "multiple"),
        ("--dtype fp64", "fp32, fp16 or bf16"),
        ("--variant best", "'best' is unknown"),
        ("--variant tuned_64 --dim 128", "tuned_64 does not support dim 128; it supports fp16, bf16; dim 32, 64;"),
        ("--variant tuned_64 --dim 40", "tuned_64 does not support dim 40"),
        ("--variant tuned_128 --dim 64", "tuned_128 does not support dim 64"),
        ("--variant pipeline --dim 33", "pipeline does not support dim 33"),
        ("--dtype fp32", "tuned does not support fp32; it supports fp16, bf16; any dim up to 256"),
        ("--dtype fp32 --variant tuned", "tuned does not support fp32"),
        ("--dim 257 --variant all", "no variant supports this"),
        ("--seed -1", "--seed"),
        ("--rows 3", "--rows"),
        ("stray", "stray"),
    ],
)
def test_bad_usage_is_refused(backward, tmp_path, flags, saying):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    refused(backward, *flags.split(), *files, saying=saying, written=tmp_path / "out")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    "name, array, saying",
    [
        ("do", np.ones((1, 2, 6, 32), np.float16), "do.npy: shape [1, 2, 6, 32] where q.npy has [1, 2, 5, 32]"),
        ("do", np.ones((1, 1, 5, 32), np.float16), "do.npy: shape"),
        ("do", np.ones((1, 2, 5, 32), np.float32), "q.npy and do.npy"),
        ("do", np.ones((1, 2, 5, 32), np.int32), "'<i4'"),
        ("do", np.asfortranarray(np.ones((1, 2, 5, 32), np.float16)), "Fortran"),
        ("q", np.ones((2, 2, 5, 32), np.float16), "batch and dim"),
        ("v", np.ones((1, 1, 8, 32), np.float16), "v.npy"),
        ("o", np.ones((1, 2, 5, 33), np.float16), "o.npy: shape"),
        ("o", np.ones((1, 2, 5, 32), np.float32), "q.npy and o.npy"),
        ("lse", np.ones((1, 2, 5, 1), np.float32), "lse.npy: shape [1, 2, 5, 1] where q.npy asks for [1, 2, 5]"),
        ("lse", np.ones((1, 2, 5), np.float16), "LSE must be float32"),
        ("lse", np.ones((1, 2, 5), np.float64), "'<f8'"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(backward, tmp_path, name, array, saying):
    folder = with_forward(tmp_path / "in", problem(1, 2, 1, 5, 7, 32))
    np.save(folder / f"{name}.npy", array)
    refused(backward, "--input", folder, "--output", tmp_path / "out", saying=saying, written=tmp_path / "out")


@pytest.mark.parametrize("name", ["q", "k", "v", "do"])
def test_a_missing_file_is_named(backward, tmp_path, name):
    folder = save(tmp_path / "in", problem(1, 2, 1, 5, 7, 32))
    (folder / f"{name}.npy").unlink()
    refused(backward, "--input", folder, saying=f"{name}.npy: no such file")


@pytest.mark.parametrize("flag, value", [("batch", 3), ("heads", 3), ("kv-heads", 2), ("seq-q", 4), ("seq-k", 8), ("dim", 64), ("seed", 1)])
def test_a_flag_that_contradicts_the_input_files_is_refused(backward, tmp_path, flag, value):
    folder = save(tmp_path / "in", problem(1, 2, 1, 5, 7, 32))
    message = refused(backward, "--input", folder, f"--{flag}", value, "--output", tmp_path / "out", written=tmp_path / "out")
    assert f"--{flag}" in message and "contradicts" in message


def test_flags_that_agree_with_the_input_files_are_accepted(backward, tmp_path):
    folder = save(tmp_path / "in", problem(1, 2, 1, 5, 7, 32))
    shape = {"batch": 1, "heads": 2, "kv-heads": 1, "seq-q": 5, "seq-k": 7, "dim": 32}
    backward.ok("--input", folder, *itertools.chain(*((f"--{flag}", value) for flag, value in shape.items())))


def test_a_problem_beyond_the_memory_ends_with_3_and_says_how_much_there_is(backward, tmp_path):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    large = ("--batch", 60000, "--seq-q", 1000000)
    message = refused(backward, *large, *files, status=3, saying="out of device memory", written=tmp_path / "out")
    assert len(re.findall(r"\d+ MB", message)) >= 2
    assert not (tmp_path / "out.json").exists()


# ---- JSON ----


def test_the_report_says_what_was_computed(backward, tmp_path):
    shape = ("--batch", 2, "--heads", 4, "--kv-heads", 2, "--seq-q", 12, "--seq-k", 15, "--dim", 32, "--causal", "--seed", 9)
    report = backward.report(tmp_path / "report.json", *shape, "--scale", -0.5, "--variant", "all")
    assert [result["variant"] for result in report["results"]] == [name for name in VARIANTS if name not in LONG_ROWS]
    assert [skipped["variant"] for skipped in report["skipped"]] == LONG_ROWS
    assert all("dim 32" in skipped["reason"] for skipped in report["skipped"])
    for result in report["results"]:
        assert result["input"] == {"seed": 9}
        assert result["problem"] == {
            "family": "backward", "batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 12, "seq_k": 15, "dim": 32, "causal": True,
            "window": 0, "scale": -0.5, "dtype": "fp16",
        }  # fmt: skip
        rows = {tensor["name"]: tensor["rows_checked"] for tensor in result["verdict"]["tensors"]}
        assert rows == {"dQ": 2 * 4 * 12, "dK": 2 * 2 * 15, "dV": 2 * 2 * 15, "O": 2 * 4 * 12, "LSE": 2 * 4 * 12}
        # Only these promise the bits of dQ.
        assert result["verdict"]["deterministic"] == (True if result["variant"] in DETERMINISTIC else None)
        assert result["verdict"]["guards_intact"]


def test_no_schedule_changes_a_bit_of_dk_and_dv(backward, tmp_path, sim):
    shape = ("--heads", 2, "--seq-q", 41, "--seq-k", 70, "--dim", 64, "--causal", "--variant", "all", "--no-check")
    schedules = [[], ["--sim-workers", 1], ["--sim-seed", 2], ["--sim-async", "eager"], ["--sim-async", "random"]]
    results = []
    for n, schedule in enumerate(schedules):
        out = tmp_path / str(n)
        backward.ok(*shape, *schedule, "--output", out)
        files = [*out.glob("*/d[kv].npy"), *(out / variant / "dq.npy" for variant in DETERMINISTIC)]
        results.append({path.relative_to(out): path.read_bytes() for path in files})
    assert len(results[0]) == 2 * (len(VARIANTS) - len(LONG_ROWS)) + len(DETERMINISTIC)
    assert all(result == results[0] for result in results[1:])


# ---- what is not finite ----

def repaired_rows(backward, tmp_path, tensors, variant="tuned_64"):
    """How many rows of 64 columns were computed again: those of dQ, and those of dK with dV. The step's own check must pass."""
    save(tmp_path / "in", tensors)
    report = backward.report(tmp_path / "report.json", "--input", tmp_path / "in", "--variant", variant, "--causal", "--counters")
    (launch,) = (one for one in report["results"][0]["counters"] if "repair_rows" in one["kernel"])
    stores = sum(line["instructions"] for line in launch["lines"] if (line["space"], line["op"]) == ("global", "store"))
    assert stores % 2 == 0  # two warps write the columns of a row
    return stores // 2


@pytest.mark.parametrize(
    ("name", "row", "rows"),
    [
        # 200 queries and keys, causal; tiles of 128 keys and of 64 queries. dO: keys behind the query, in its tile; dK and dV of each.
        (3, 0, 2 * 127), (3, 100, 2 * 27), (3, 199, 0),
        # V: queries before the key, in the tiles that the mask cuts
        (2, 0, 0), (2, 100, 100), (2, 199, 199 - 128),
    ],
)  # fmt: skip
def test_what_one_odd_element_spoils_is_computed_again_and_nothing_else(backward, tmp_path, sim, name, row, rows):
    tensors = problem(1, 1, 1, 200, 200, 64)
    tensors[name][0, 0, row, 5] = np.inf
    assert repaired_rows(backward, tmp_path, tensors) == rows


@pytest.mark.parametrize(("name", "most"), [(0, 2 * 127), (1, 128)])
def test_an_odd_element_of_q_or_k_spoils_no_more_rows_than_a_tile_has(backward, tmp_path, sim, name, most):
    for row in (0, 100, 199):
        tensors = problem(1, 1, 1, 200, 200, 64)
        tensors[name][0, 0, row, 5] = -np.inf
        assert repaired_rows(backward, tmp_path, tensors) <= most, row


def test_what_explains_one_column_explains_no_other(backward, tmp_path, sim):
    """Queries 100 and 150 are odd in columns of their own. Keys 101 to 127 see 150 alone, and share a tile with 100."""
    tensors = problem(1, 1, 1, 200, 200, 64)
    tensors[3][0, 0, 150, 7] = np.inf
    before = repaired_rows(backward, tmp_path, tensors)
    tensors[3][0, 0, 100, 5] = np.inf
    assert repaired_rows(backward, tmp_path, tensors) == before + 2 * 27
    tensors[3][0, 0, 100, 5], tensors[3][0, 0, 100, 7] = 0, np.inf  # the same column: dV is explained, and dK is
    assert repaired_rows(backward, tmp_path, tensors) == before


def test_where_everything_is_odd_nothing_is_computed_again(backward, tmp_path, sim):
    for name in range(4):
        tensors = problem(1, 1, 1, 200, 200, 64)
        tensors[name][:] = np.nan
        assert repaired_rows(backward, tmp_path, tensors) == 0


def test_products_that_overflow_in_fp16_are_computed_again(backward, tmp_path, sim):
    tensors = problem(1, 1, 1, 70, 70, 64)
    tensors[3][:, :, 3:5] *= 20000
    tensors[2] *= 20
    assert repaired_rows(backward, tmp_path, tensors) > 0

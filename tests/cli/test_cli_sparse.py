"""Sparse masks from outside, and the flag --backward of a step that has both passes. The judge is NumPy, in float64."""

import json
import re

import numpy as np
import pytest
from conftest import built, read_report
from test_cli import refused
from test_cli_backward import assert_right, gradients, problem, save

FORWARD = ["test_per_block", "list", "two_loops", "prefetch", "ordered", "tokens", "balanced"]
BACKWARD = ["backward"]
DENSE, BLOCKS, STREAMING_BLOCKS, STREAMING_TOKENS = range(4)  # head_type.npy
SEQ_Q, SEQ_K, BLOCK = 150, 210, 64
SMALL = ("--heads", 2, "--seq-q", 70, "--dim", 64)


@pytest.fixture
def sparse():
    return built("07_block_sparse")


# ---- masks ----


def live_pairs(types, blocks, streaming):
    """[heads, seq_q, seq_k]: what each head's type lets queries see, pair by pair."""
    i, j = np.indices((SEQ_Q, SEQ_K))
    own = i + SEQ_K - SEQ_Q
    first_own = (i // BLOCK * BLOCK + SEQ_K - SEQ_Q) // BLOCK  # the own blocks of a block of queries
    last_own = (np.minimum(i // BLOCK * BLOCK + BLOCK, SEQ_Q) - 1 + SEQ_K - SEQ_Q) // BLOCK
    away = np.maximum(np.maximum(first_own - j // BLOCK, j // BLOCK - last_own), 0)
    pairs = []
    for head, kind in enumerate(types):
        sink, local = streaming[head]
        pairs.append({DENSE: np.ones_like(i, bool), BLOCKS: blocks[0, head][i // BLOCK, j // BLOCK].astype(bool),
                      STREAMING_BLOCKS: (j // BLOCK < sink) | (away < local),
                      STREAMING_TOKENS: (j < sink) | (abs(own - j) < local)}[kind])  # fmt: skip
    return np.stack(pairs)


def mask(heads=4):
    """Blocks with an empty row and an empty column, and a head of each type."""
    blocks = np.random.default_rng(3).random((1, heads, -(-SEQ_Q // BLOCK), -(-SEQ_K // BLOCK))) < 0.5
    blocks[0, :, 1, :] = False
    blocks[0, :, :, 2] = False
    blocks[0, :, 2, 1] = True
    types = np.arange(heads, dtype=np.int32)[::-1] % 4
    return {"block_mask": blocks, "head_type": types, "streaming": np.array([[5, 40], [1, 1], [0, 0], [0, 0]], np.int32)[:heads]}


def save_mask(folder, arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def given(folder, heads=4, kv_heads=2, dim=64):
    """A folder with inputs and a mask, its tensors and its live pairs."""
    tensors = problem(1, heads, kv_heads, SEQ_Q, SEQ_K, dim)
    arrays = mask(heads)
    save_mask(save(folder, tensors), arrays)
    return tensors, live_pairs(arrays["head_type"], arrays["block_mask"], arrays["streaming"])


BLOCK_FLAGS = ("--block-q", BLOCK, "--block-k", BLOCK)


# ---- right numbers ----


@pytest.mark.parametrize("flags, masks", [([], {}), (["--causal"], {"causal": True}), (["--window", 90], {"window": 90})])
def test_both_passes_agree_with_numpy_where_heads_have_types_of_their_own(sparse, tmp_path, flags, masks):
    tensors, live = given(tmp_path / "in")
    sparse.ok("--input", tmp_path / "in", "--output", tmp_path / "forward", *BLOCK_FLAGS, *flags)
    expected = gradients(*tensors, live=live, **masks)
    for name, values in zip(("o", "lse"), expected):
        made = np.load(tmp_path / "forward" / f"{name}.npy")
        assert made.shape == values.shape
        largest = abs(values[np.isfinite(values)]).max()
        np.testing.assert_allclose(made, values, rtol=0, atol=2.0**-7 * largest, err_msg=name)
    assert (expected[1] == -np.inf).any()  # a row that sees nothing
    sparse.ok("--backward", "--input", tmp_path / "in", "--output", tmp_path / "backward", *BLOCK_FLAGS, *flags)
    assert sorted(path.name for path in (tmp_path / "backward").iterdir()) == ["dk.npy", "dq.npy", "dv.npy"]
    assert_right(tmp_path / "backward", tensors, live=live, **masks)


@pytest.mark.parametrize("stored", [bool, np.uint8])
def test_without_types_all_heads_are_block_sparse(sparse, tmp_path, stored):
    tensors = problem(1, 2, 2, SEQ_Q, SEQ_K, 32)
    blocks = mask(2)["block_mask"]
    save_mask(save(tmp_path / "in", tensors), {"block_mask": blocks.astype(stored)})
    live = live_pairs([BLOCKS, BLOCKS], blocks, [(0, 0)] * 2)
    sparse.ok("--backward", "--input", tmp_path / "in", "--output", tmp_path / "out", *BLOCK_FLAGS)
    assert_right(tmp_path / "out", tensors, live=live)


def test_without_a_mask_both_passes_are_dense(sparse, tmp_path):
    tensors = problem(1, 2, 1, 70, 90, 64)
    save(tmp_path / "in", tensors)
    sparse.ok("--input", tmp_path / "in", "--output", tmp_path / "forward", "--variant", "all")
    o = gradients(*tensors)[0]
    assert sorted(path.name for path in (tmp_path / "forward").iterdir()) == sorted(FORWARD)
    for folder in (tmp_path / "forward").iterdir():
        np.testing.assert_allclose(np.load(folder / "o.npy"), o, rtol=0, atol=2.0**-7 * abs(o).max())
    sparse.ok("--input", tmp_path / "in", "--output", tmp_path / "backward", "--backward")
    assert_right(tmp_path / "backward", tensors)


@pytest.mark.parametrize("flags", [["--dim", 64, "--causal"], ["--dim", 128], ["--dim", 64, "--window", 90]])
def test_a_mask_that_is_all_live_gives_the_output_of_step_05s_tuned_to_the_bit(sparse, tmp_path, flags):
    shape = ("--heads", 4, "--kv-heads", 2, "--seq-q", SEQ_Q, "--seq-k", SEQ_K, *flags)
    built("05_flash_v2").ok(*shape, "--dtype", "fp16", "--variant", "tuned", "--output", tmp_path / "dense")
    for variant in ("two_loops", "prefetch", "ordered", "tokens", "balanced"):  # in the first two rungs every tile has a mask
        sparse.ok(*shape, "--variant", variant, "--pattern", "random:1", "--output", tmp_path / variant)
        for name in ("o.npy", "lse.npy"):
            dense, live = (np.load(tmp_path / folder / name) for folder in ("dense", variant))
            assert dense.tobytes() == live.tobytes(), (variant, name)


def test_a_nan_in_a_dead_block_changes_no_bit(sparse, tmp_path):
    tensors = problem(1, 2, 2, 256, 256, 64)
    blocks = np.tril(np.ones((1, 2, 2, 2), bool))  # the first 128 queries see no key of the second block
    blocks[0, 1] = [[True, False], [True, False]]  # in head 1 nobody does
    save_mask(save(tmp_path / "clean", tensors), {"block_mask": blocks})
    q, k, v, do = (array.copy() for array in tensors)
    k[:, 1, 128:, 5] = v[:, 1, 128:, 3] = np.nan
    save_mask(save(tmp_path / "odd", [q, k, v, do]), {"block_mask": blocks})
    for name in ("clean", "odd"):
        folder = tmp_path / name
        sparse.ok("--input", folder, "--output", folder / "forward", "--variant", "all")
        sparse.ok("--input", folder, "--output", folder / "backward", "--backward")
    made = sorted(path.relative_to(tmp_path / "clean") for path in (tmp_path / "clean").glob("*/**/*.npy"))
    assert len(made) == 2 * len(FORWARD) + 3
    for path in made:
        clean, odd = (tmp_path / name / path for name in ("clean", "odd"))
        assert odd.read_bytes() == clean.read_bytes(), path  # dQ, too: it is a sum of two tiles of keys, in either order


def test_a_pattern_is_the_same_mask_in_both_passes_and_its_seed_chooses(sparse, tmp_path):
    shape = ("--heads", 2, "--seq-q", 300, "--dim", 32, "--pattern", "random:0.3,band:1", *BLOCK_FLAGS)
    masks = {}
    for name, flags in (("forward", []), ("backward", ["--backward"]), ("other", ["--seed", 2])):
        report = sparse.report(tmp_path / f"{name}.json", *shape, *flags)
        masks[name] = report["results"][0]["problem"]["sparse"]
    assert masks["forward"] == masks["backward"] and masks["forward"]["live_pairs"] != masks["other"]["live_pairs"]
    assert masks["forward"]["block_q"] == masks["forward"]["block_k"] == BLOCK


def test_packed_sequences_and_dropout_go_with_both_passes(sparse, tmp_path):
    np.save(tmp_path / "cu.npy", np.array([0, 37, 37, 150]))
    options = ("--heads", 2, "--dim", 32, "--cu-seqlens", tmp_path / "cu.npy", "--dropout", 0.25, "--pattern", "random:0.5", *BLOCK_FLAGS)
    for flags in ([], ["--backward"]):
        out = sparse.ok(*options, *flags).stdout
        assert "3 packed" in out and "dropout" in out


# ---- the flag ----


def names_in(listing):
    return re.findall(r"^[* ] (\w+): ", listing, re.MULTILINE), re.findall(r"^\* (\w+): ", listing, re.MULTILINE)


def test_each_pass_lists_its_own_variants_and_the_forward_one_says_where_the_others_are(sparse):
    forward, backward = sparse.ok("--list").stdout, sparse.ok("--backward", "--list").stdout
    assert names_in(forward) == (FORWARD, ["balanced"]) and names_in(backward) == (BACKWARD, ["backward"])
    assert forward.splitlines()[-1] == "--backward --list shows the variants of the backward pass."
    assert "--backward" not in backward
    assert "needs compute capability 9.0" in backward
    assert names_in(sparse.ok("--list", "--pattern", "band:2").stdout) == names_in(forward)


def test_both_help_texts_show_the_flag(sparse):
    forward, backward = sparse.ok("--help").stdout, sparse.ok("--help", "--backward").stdout
    for text in (forward, backward):
        assert re.search(r"^ +--backward +run the variants of the backward pass", text, re.MULTILINE)
    assert "--layer" in forward and "--layer" not in backward


def test_the_place_of_the_flag_does_not_matter(sparse, tmp_path):
    for n, args in enumerate([("--backward", *SMALL), (*SMALL, "--backward"), (*SMALL[:2], "--backward", *SMALL[2:])]):
        report = sparse.report(tmp_path / f"{n}.json", *args)
        assert report["step"] == "07_block_sparse" and "--backward" in " ".join(report["command"])
        (result,) = report["results"]
        assert result["variant"] == "backward" and result["problem"]["family"] == "backward"
        assert [tensor["name"] for tensor in result["verdict"]["tensors"]] == ["dQ", "dK", "dV", "O", "LSE"]


@pytest.mark.parametrize("name", ["01_naive_mha", "05_flash_v2", "06_backward"])
def test_steps_with_one_pass_refuse_the_flag_by_name(name):
    step = built(name)
    refused(step, "--backward", saying="not expected: --backward")
    assert "--backward" not in step.ok("--help").stdout


@pytest.mark.parametrize(
    "flags, saying",
    [
        ("--backward=true", "--backward: '--backward=true' has a value, and the flag takes none; --backward alone switches it on"),
        ("--backward=1", "--backward: '--backward=1' has a value"),
        ("--backwards", "not expected: --backwards"),
        ("--backward --variant balanced", "'balanced' is unknown; backward, or all"),
        ("--variant backward", "'backward' is unknown"),
        ("--backward --layer x", "--layer"),
        ("--backward --dtype fp32", "backward does not support fp32"),
        ("--backward --dim 40", "backward does not support dim 40"),
        ("--backward --pattern stripes:3", "pattern 'stripes:3'"),
        ("--backward --pattern band:1 --block-q 32", "blocks of 32 queries"),
        ("--pattern band:1 --block-k 32", "32 keys"),
        ("--backward --block-q 64", "there is no sparse mask"),
        ("--variant list --pattern sink:3t+local:9t", "list does not support"),
        ("--heads 1000000000 --pattern dense", "--heads: a mask is made for at most 65535 heads"),
        ("--pattern random:1e-400", "pattern 'random:1e-400': '1e-400' is too near 0 for a double"),
        ("--pattern random:1e400", "'1e400' must be a share from 0 to 1"),
        ("--pattern random:nan", "'nan' must be a share from 0 to 1"),
        ("--pattern random:", "'' must be a share from 0 to 1"),
        ("--pattern random:0.5x", "'0.5x' must be a share from 0 to 1"),
        ("--pattern band:", "'' must be a whole number from 0 to 2147483647"),
        ("--pattern band:2147483648", "'2147483648' must be a whole number from 0 to 2147483647"),
    ],
)
def test_bad_usage_is_refused(sparse, tmp_path, flags, saying):
    files = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    refused(sparse, *flags.split(), *files, saying=saying, written=tmp_path / "out")
    assert not (tmp_path / "out.json").exists()


def test_an_empty_name_is_no_variant(sparse):
    refused(sparse, "--variant", "", saying="--variant: '' is unknown")


# ---- a mask in files ----

ROWS, COLUMNS = -(-SEQ_Q // BLOCK), -(-SEQ_K // BLOCK)
FLAGS = np.ones((1, 4, ROWS, COLUMNS), np.uint8)


@pytest.mark.parametrize("flags", [[], ["--backward"]])
@pytest.mark.parametrize(
    "name, array, saying",
    [
        ("block_mask", FLAGS[:, :3], f"block_mask.npy: shape [1, 3, {ROWS}, {COLUMNS}]"),
        ("block_mask", FLAGS[:, :, :, :-1], f"block_mask.npy: shape [1, 4, {ROWS}, {COLUMNS - 1}]"),
        ("block_mask", FLAGS[0], f"block_mask.npy: shape [4, {ROWS}, {COLUMNS}]"),
        ("block_mask", np.repeat(FLAGS, 2, axis=0), f"block_mask.npy: shape [2, 4, {ROWS}, {COLUMNS}]"),
        ("block_mask", FLAGS.astype(np.float32), "'<f4'"),
        ("block_mask", FLAGS * np.uint8(2), "element 0 is 2"),
        ("block_mask", np.asfortranarray(FLAGS), "block_mask.npy: Fortran order"),
        ("block_mask", None, "some heads are block-sparse, and there is no block_mask.npy"),
        ("head_type", np.array([0, 1, 2, 4], np.int32), "head_type.npy: type 4"),
        ("head_type", np.array([0, 1, 2, -1], np.int32), "head_type.npy: type -1"),
        ("head_type", np.array([0, 1, 2], np.int32), "head_type.npy: 3 heads where q.npy has 4"),
        ("head_type", np.array([0, 1, 2, 3], np.float32), "'<f4'"),
        ("streaming", np.zeros((4, 3), np.int32), "streaming.npy: shape [4, 3]; it must be [4, 2]"),
        ("streaming", np.zeros((3, 2), np.int32), "streaming.npy: shape [3, 2]; it must be [4, 2]"),
        ("streaming", np.full((4, 2), -1, np.int32), "streaming.npy: head 0 has a number below 0"),
        ("streaming", np.zeros((4, 2), np.float32), "'<f4'"),
        ("streaming", np.asfortranarray(np.ones((4, 2), np.int32)), "streaming.npy: Fortran order"),
        ("streaming", None, "some heads stream, and there is no streaming.npy"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_by_name(sparse, tmp_path, name, array, saying, flags):
    given(tmp_path / "in")
    if array is None:
        (tmp_path / "in" / f"{name}.npy").unlink()
    else:
        np.save(tmp_path / "in" / f"{name}.npy", array)
    refused(sparse, *flags, "--input", tmp_path / "in", "--output", tmp_path / "out", *BLOCK_FLAGS, saying=saying, written=tmp_path / "out")


@pytest.mark.parametrize("flags", [[], ["--backward"]])
def test_files_and_flags_that_contradict_each_other_are_refused(sparse, tmp_path, flags):
    given(tmp_path / "in")
    read = (*flags, "--input", tmp_path / "in", "--output", tmp_path / "out")
    refused(sparse, *read, "--pattern", "band:1", *BLOCK_FLAGS, saying="--pattern contradicts", written=tmp_path / "out")
    refused(sparse, *read, saying="blocks of 128 × 128", written=tmp_path / "out")  # the mask has blocks of 64
    (tmp_path / "in" / "head_type.npy").unlink()
    refused(sparse, *read, saying="there is no head_type.npy", written=tmp_path / "out")
    (tmp_path / "in" / "block_mask.npy").unlink()
    refused(sparse, *read, saying="there is no head_type.npy", written=tmp_path / "out")


# ---- JSON ----


def test_the_reports_say_what_the_mask_was(sparse, tmp_path):
    tensors, live = given(tmp_path / "in")
    for name, flags in (("attention", []), ("backward", ["--backward"])):
        path = tmp_path / f"{name}.json"
        report = sparse.report(path, "--input", tmp_path / "in", *BLOCK_FLAGS, *flags)
        (result,) = report["results"]
        assert result["problem"]["family"] == name
        assert result["problem"]["sparse"] == {
            "block_q": BLOCK, "block_k": BLOCK, "live_pairs": int(live.sum()),
            "head_types": ["streaming by token", "streaming by block", "block-sparse", "dense"],
        }  # fmt: skip
        assert result["verdict"]["pass"] and read_report(path) == json.loads(path.read_text())
    assert 0 < live.mean() < 1 and len(tensors) == 4

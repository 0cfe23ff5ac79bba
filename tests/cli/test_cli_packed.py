"""Packed sequences from outside: --cu-seqlens. The judge is NumPy, in float64, a sequence at a time."""

import json

import numpy as np
import pytest
from conftest import built
from test_cli_backward import gradients, problem, save

FORWARD, BACKWARD = ["scalar", "tuned", "any_dim"], ["recompute", "tuned_64", "any_dim", "tuned"]
LENGTHS = [37, 0, 1, 100, 12]


@pytest.fixture
def sums(tmp_path):
    np.save(tmp_path / "cu.npy", np.cumsum([0, *LENGTHS]))  # int64, as NumPy has it
    return tmp_path / "cu.npy"


def by_sequence(tensors, **options):
    """O, LSE, dQ, dK and dV of packed tensors."""
    parts = []
    begin = 0
    for length in LENGTHS:
        if length:
            parts.append(gradients(*(array[:, :, begin : begin + length] for array in tensors), **options))
        begin += length
    return [np.concatenate(arrays, axis=2) for arrays in zip(*parts)]


@pytest.mark.parametrize("flags", [{}, {"causal": True}, {"window": 9}, {"causal": True, "window": 30}])
def test_forward_and_backward_agree_with_numpy_a_sequence_at_a_time(tmp_path, sums, flags):
    tensors = problem(1, 2, 1, sum(LENGTHS), sum(LENGTHS), 32)
    save(tmp_path / "in", tensors)
    expected = dict(zip(("o", "lse", "dq", "dk", "dv"), by_sequence(tensors, **flags)))
    masks = [*(["--causal"] if flags.get("causal") else []), *(["--window", flags["window"]] if "window" in flags else [])]
    for name, variants in (("05_flash_v2", FORWARD), ("06_backward", BACKWARD)):
        for variant in variants:
            out = tmp_path / name / variant
            built(name).ok("--input", tmp_path / "in", "--output", out, "--cu-seqlens", sums, "--variant", variant, *masks)
            for file in out.glob("*.npy"):
                values = expected[file.stem]
                np.testing.assert_allclose(np.load(file), values, rtol=0, atol=2.0**-7 * abs(values).max(), err_msg=str(file))


def test_without_files_there_are_as_many_tokens_as_the_last_sum_says(tmp_path, sums):
    out = built("05_flash_v2").ok("--cu-seqlens", sums, "--heads", 2, "--json", tmp_path / "r.json").stdout
    assert "heads 2 over 2, 150 × 150, dim 64, 5 packed, fp16" in out
    problem_json = json.loads((tmp_path / "r.json").read_text())["results"][0]["problem"]
    assert problem_json["cu_seqlens"] == [0, 37, 37, 38, 138, 150] and problem_json["seq_k"] == 150
    assert "predicted" in out and "find_sequences" in out


@pytest.mark.parametrize(
    ("array", "flags", "saying"),
    [
        (np.array([0, 5, 4], np.int32), [], "cu.npy: cu-seqlens falls from 5 to 4; it holds the sums"),
        (np.array([1, 5], np.int32), [], "must begin with 0"),
        (np.array([0], np.int32), [], "cu.npy: cu-seqlens holds one number, and so no sequence"),
        (np.array([0, 0], np.int32), [], "cu.npy: cu-seqlens ends with 0, so that there is no token"),
        (np.array([37, 0, 1], np.int32), [], "it holds the sums of the sequences' lengths: 0, the first length, …, all tokens"),
        (np.array([0, 5, -1], np.int32), [], "falls from 5 to -1"),
        (np.array([0, 5], np.int32), ["--seq-q", 6], "with packed sequences both are the last of cu-seqlens, 5"),
        (np.array([0, 5], np.int32), ["--seq-k", 6], "with packed sequences both are the last of cu-seqlens, 5"),
        (np.array([0, 5], np.int32), ["--batch", 2], "lie in one batch entry"),
        (np.array([0.0, 5.0], np.float32), [], "little-endian int32 ('<i4') or int64 ('<i8') is needed"),
        (np.array([[0, 5]], np.int32), [], "one dimension is needed"),
        (np.array([0, 2**40]), [], "beyond 32 bits"),
        (np.array([0, 5], ">i4"), [], "'>i4'"),
    ],
)
@pytest.mark.parametrize("step", ["05_flash_v2", "06_backward"])
def test_sums_that_cannot_be_are_refused(tmp_path, step, array, flags, saying):
    np.save(tmp_path / "cu.npy", array)
    done = built(step)("--cu-seqlens", tmp_path / "cu.npy", *flags)
    assert done.returncode == 2 and saying in done.stderr


def test_a_missing_file_and_other_steps_and_variants_are_refused(tmp_path, sums):
    for step, flags, saying in (
        ("05_flash_v2", ["--cu-seqlens", tmp_path / "none.npy"], "none.npy: no such file"),
        ("05_flash_v2", ["--cu-seqlens", sums, "--variant", "pipeline"], "does not support packed sequences (cu-seqlens)"),
        ("06_backward", ["--cu-seqlens", sums, "--variant", "deterministic"], "does not support packed sequences (cu-seqlens)"),
        ("01_naive_mha", ["--cu-seqlens", sums], "does not support packed sequences (cu-seqlens)"),
        ("04_flash_v1", ["--cu-seqlens", sums], "does not support packed sequences (cu-seqlens)"),
        ("01_naive_mha", ["--cu-seqlens", sums, "--layer", "data/minilm_layer"], "--cu-seqlens contradicts --layer"),
    ):
        done = built(step)(*flags)
        assert done.returncode == 2 and saying in done.stderr, (done.stderr, saying)


def test_an_input_of_another_length_is_refused(tmp_path, sums):
    save(tmp_path / "in", problem(1, 2, 1, 149, 149, 32))
    done = built("06_backward")("--input", tmp_path / "in", "--cu-seqlens", sums)
    assert done.returncode == 2 and "seq-q is 149" in done.stderr

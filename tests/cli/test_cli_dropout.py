"""Dropout from outside: --dropout, --dropout-seed and mask.npy. The judge is NumPy: Philox in whole numbers, attention in float64."""

import json

import numpy as np
import pytest
from conftest import built
from test_cli_backward import gradients, problem, save

FORWARD, BACKWARD = ["scalar", "tuned"], ["recompute", "tuned"]


def philox(counter, key, rounds=7):
    """Four words for each counter [4, …] of uint64 arrays below 2³²."""
    c, (k0, k1) = [np.asarray(x, np.uint64) for x in counter], key
    low = np.uint64(0xFFFFFFFF)
    for _ in range(rounds):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c)


def mask(batch, heads, seq_q, seq_k, n, seed):
    """1 for each pair that is kept."""
    b, h, i, j = np.indices((batch, heads, seq_q, seq_k))
    words = philox((i // 32 * 32 + i % 8, j // 32 * 32 + j % 8, h, b), (seed % 2**32, seed >> 32))
    word = np.take_along_axis(words, (i // 8 % 4)[None], axis=0)[0]
    return (word >> (8 * (j // 8 % 4)).astype(np.uint64) & np.uint64(255) >= n).astype(np.float16)


def test_philox_gives_the_known_answers():
    zeros = [np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1)]
    assert [hex(int(x)) for x in philox(zeros, (0, 0), 10)[:, 0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize(
    ("flags", "masks", "dim"),
    [([], {}, 64), (["--causal"], {"causal": True}, 32), (["--window", 30], {"window": 30}, 128), (["--causal"], {"causal": True}, 40)],
)
def test_files_forward_and_backward_agree_with_numpy(tmp_path, flags, masks, dim):
    seed, n = 2**63 + 12345, 51
    tensors = problem(2, 2, 1, 70, 101, dim)
    save(tmp_path / "in", tensors)
    kept = mask(2, 2, 70, 101, n, seed)
    assert 0.15 < 1 - kept.mean() < 0.25
    expected = dict(zip(("o", "lse", "dq", "dk", "dv"), gradients(*tensors, kept=kept * (256 / (256 - n)), **masks)))
    for name, variants in (("05_flash_v2", FORWARD), ("06_backward", BACKWARD)):
        for variant in variants:
            out = tmp_path / name / variant
            built(name).ok("--input", tmp_path / "in", "--output", out, "--variant", variant, "--dropout", 0.2, "--dropout-seed", seed, *flags)
            np.testing.assert_array_equal(np.load(out / "mask.npy"), kept)
            outputs = {"o", "lse"} if name == "05_flash_v2" else {"dq", "dk", "dv"}
            assert {file.stem for file in out.glob("*.npy")} == outputs | {"mask"}
            for file in (out / f"{stem}.npy" for stem in outputs):
                values = expected[file.stem]
                finite = np.isfinite(values)
                np.testing.assert_array_equal(np.isfinite(np.load(file)), finite)
                np.testing.assert_allclose(
                    np.load(file)[finite], values[finite], rtol=0, atol=2.0**-7 * abs(values[finite]).max(), err_msg=str(file))


def test_with_packed_sequences_the_mask_goes_by_the_place_among_all_tokens(tmp_path):
    np.save(tmp_path / "cu.npy", np.array([0, 20, 20, 75]))
    flags = ["--cu-seqlens", tmp_path / "cu.npy", "--heads", 2, "--dim", 32, "--dropout", 0.5]
    built("05_flash_v2").ok(*flags, "--variant", "scalar", "--output", tmp_path / "out")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "mask.npy"), mask(1, 2, 75, 75, 128, 1))
    built("06_backward").ok(*flags, "--variant", "recompute")
    done = built("05_flash_v2")(*flags, "--variant", "tuned")
    assert done.returncode == 2 and "does not support dropout with packed sequences" in done.stderr


def test_what_is_used_is_printed_and_written(tmp_path):
    out = built("05_flash_v2").ok("--heads", 1, "--seq-q", 9, "--dropout", 0.1, "--json", tmp_path / "r.json").stdout
    assert "dropout 26/256 (seed 1)" in out
    problem_json = json.loads((tmp_path / "r.json").read_text())["results"][0]["problem"]
    assert problem_json["dropout"] == {"of_256": 26, "seed": 1}
    none = built("05_flash_v2").ok("--heads", 1, "--seq-q", 9, "--dropout", 0, "--output", tmp_path / "none").stdout
    assert "dropout" not in none and not (tmp_path / "none" / "mask.npy").exists()


@pytest.mark.parametrize(
    ("flags", "saying"),
    [
        (["--dropout", 1], "nothing would be left"),
        (["--dropout", 0.999], "nothing would be left"),
        (["--dropout", 0.0019], "rounds to 0 of 256"),
        (["--dropout", -0.1], "a probability"),
        (["--dropout", 1.5], "a probability"),
        (["--dropout", "nan"], "--dropout: 'nan' is not a finite number in decimal"),
        (["--dropout", "x"], "--dropout: 'x' is not a finite number in decimal"),
        (["--dropout", "1e-46"], "--dropout: '1e-46' is too near 0"),
        (["--dropout", "1e400"], "--dropout: '1e400' is beyond fp32"),
        (["--dropout-seed", 3], "there is no --dropout"),
        (["--dropout", 0.5, "--dropout-seed", -1], "--dropout-seed"),
        (["--dropout", 0.5, "--dropout-seed", 2**64], "--dropout-seed"),
        (["--dropout", 0.5, "--variant", "registers"], "does not support dropout"),
        (["--dropout", 0.5, "--heads", 64, "--seq-q", 4096, "--output", "out"], "larger than 1 GB"),
    ],
)
def test_bad_requests_are_refused_by_name(tmp_path, flags, saying):
    done = built("05_flash_v2")(*flags, cwd=tmp_path)
    assert done.returncode == 2 and saying in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(1, 4))
def test_where_dropout_leaves_only_the_smallest_probabilities_their_rounding_is_allowed(seed):
    built("05_flash_v2").ok("--heads", 4, "--seq-q", 129, "--dtype", "fp16", "--dropout", 0.9, "--scale", 1, "--seed", seed)


def test_the_largest_seed_and_share_are_served(tmp_path):
    for step, variant in (("05_flash_v2", "tuned"), ("06_backward", "tuned")):
        built(step).ok("--heads", 2, "--seq-q", 70, "--variant", variant, "--dropout", 0.996, "--dropout-seed", 2**64 - 1)

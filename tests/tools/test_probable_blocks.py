"""Masks made from real Q and K: the rule on small cases, the command line, and the committed masks of data/minilm_long."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import BIN, ROOT

from tools.learn.probable_blocks import fewest_blocks, in_blocks, probabilities

LONG = ROOT / "data" / "minilm_long"
TOOL = ROOT / "tools" / "learn" / "probable_blocks.py"
MAKE = ROOT / "data" / "minilm_layer" / "make.py"


def heads(seq_q, seq_k, q_heads=2, kv_heads=1):
    numbers = np.random.default_rng(5)
    return numbers.normal(size=(1, q_heads, seq_q, 8)), numbers.normal(size=(1, kv_heads, seq_k, 8))


def test_the_probability_of_a_block_is_summed_over_keys_and_a_mean_over_queries_also_in_partial_blocks():
    p = probabilities(*heads(7, 10))
    of_blocks = in_blocks(p, 3, 4)
    assert of_blocks.shape == (1, 2, 3, 3)
    for row, column in itertools.product(range(3), repeat=2):
        block = p[..., 3 * row : 3 * row + 3, 4 * column : 4 * column + 4]
        assert of_blocks[..., row, column] == pytest.approx(block.sum(axis=-1).mean(axis=-1))
    assert of_blocks.sum(axis=-1) == pytest.approx(np.ones((1, 2, 3)))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95, 1.0])
def test_no_fewer_blocks_hold_the_share(share):
    of_blocks = in_blocks(probabilities(*heads(16, 24)), 4, 4)
    live = fewest_blocks(of_blocks, share)
    for row, chosen in zip(of_blocks.reshape(-1, 6), live.reshape(-1, 6)):
        fewest = next(n for n in range(1, 7) if max(map(sum, itertools.combinations(row, n))) >= share - 1e-12)
        assert chosen.sum() == fewest and row[chosen].sum() >= share - 1e-12
        assert row[chosen].min() >= row[~chosen].max(initial=0)


@pytest.mark.parametrize("folder, block", [(LONG, 128), (LONG / "blocks_64", 64)])
def test_the_committed_masks_are_those_that_the_tool_makes(folder, block):
    q, k = (np.load(LONG / f"{name}.npy") for name in "qk")
    live = fewest_blocks(in_blocks(probabilities(q, k), block, block), 0.95)
    types = np.load(folder / "head_type.npy")
    assert (np.load(folder / "block_mask.npy") == live).all()
    assert (types == np.where(live.all(axis=(0, 2, 3)), 0, 1)).all() and set(types) == {0, 1}
    size = f"{block} × {block}"
    (line,) = [line for line in (LONG / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith(f"| {size} |")]
    assert f"| {live.sum()} of {live.size} | {100 * live.mean():.0f} % |" in line


def test_the_step_runs_under_a_mask_that_the_tool_writes(tmp_path):
    for name, array in zip("qkv", (*heads(150, 140, 4, 2), heads(150, 140, 4, 2)[1])):
        np.save(tmp_path / f"{name}.npy", np.tile(array, 4).astype(np.float16))
    out, report = tmp_path / "masked", tmp_path / "report.json"
    blocks = ["--block-q", "64", "--block-k", "64"]
    subprocess.run([sys.executable, TOOL, "--input", tmp_path, "--out", out, "--share", "0.5", *blocks], check=True)
    subprocess.run([BIN / "07_block_sparse", "--input", out, *blocks, "--json", report], check=True)
    (result,) = json.loads(report.read_text())["results"]
    live = np.load(out / "block_mask.npy")
    assert live.shape == (1, 4, 3, 3) and not live.all()
    sizes = np.outer([64, 64, 22], [64, 64, 12])
    assert result["verdict"]["pass"] and result["problem"]["sparse"]["live_pairs"] == (live * sizes).sum()


@pytest.mark.parametrize("flags", [["--share", "0"], ["--share", "1.5"], ["--block-q", "0"]])
def test_shares_and_blocks_out_of_range_are_refused(tmp_path, flags):
    done = subprocess.run([sys.executable, TOOL, "--input", LONG, "--out", tmp_path, *flags], check=False, capture_output=True, text=True)
    assert done.returncode == 2 and flags[0] in done.stderr and not list(tmp_path.iterdir())


def check_long(folder):
    return subprocess.run([sys.executable, MAKE, "--long", "--check", "--out", folder], check=False, capture_output=True, text=True)


def test_the_stored_q_k_and_v_come_from_x_and_the_weights_and_a_changed_number_is_found(tmp_path):
    assert check_long(LONG).returncode == 0
    for name in ("x.npy", "q.npy", "k.npy", "v.npy", "tokens.txt"):
        (tmp_path / name).write_bytes((LONG / name).read_bytes())
    k = np.load(LONG / "k.npy")
    k[0, 11, 511, 31] *= np.float16(1.01)
    np.save(tmp_path / "k.npy", k)
    done = check_long(tmp_path)
    assert done.returncode == 1 and "k.npy does not come from x.npy" in done.stderr

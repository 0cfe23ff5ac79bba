"""benchmarks/sparse_peers.py without a GPU: masks, what is claimed of the times and whether it holds, the library's sparse passes, refusals."""

import ctypes
import json
import sys

import numpy as np
import pytest
from conftest import BIN, ROOT

sys.path[:0] = [str(ROOT), *(str(ROOT / folder) for folder in ("benchmarks", "tests/cli", "tools/book/plots"))]

import peers
import sparse_peers
import sparse_speed
import turns
from sparse_peers import CELLS, DENSE, FLEX, FULL_COLUMN, FULL_ROW, OURS, UNSPLIT, Cell
from test_attention_peers import WITHOUT_A_GPU, require_refusal, run
from test_cli_backward import gradients, problem
from turns import Contender

from tools.book import tables

LIBRARIES = [BIN.parent / "lib" / f"libattention_{step}.so" for step in (*sparse_peers.DENSE_STEPS.values(), sparse_peers.STEP)]


# ---- masks ----


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("kind", sparse_peers.KINDS)
def test_masks_have_the_share_and_no_long_rows_and_no_row_without_its_own_block(kind, share, causal):
    live = sparse_peers.make_mask(kind, share, causal, 16, seed=3)
    lengths = live.sum(2)
    assert not (live & ~sparse_peers.visible_blocks(causal, 128)).any()
    assert live[:, np.arange(128), np.arange(128)].all()
    assert lengths.max() <= sparse_peers.LONGEST * lengths.mean()
    for backward in (False, True):
        assert sparse_peers.exact_share(live, causal, backward) == pytest.approx(share, rel=0.12)
    if kind == "uneven":
        assert lengths.std() > 0.3 * lengths.mean()
    if kind == "mixed":
        assert lengths[3::4].sum() == pytest.approx(4 * lengths[0::4].sum(), rel=0.1)


@pytest.mark.parametrize("causal", [False, True])
def test_full_rows_and_columns_are_full_and_long_and_one_in_each_head(causal):
    visible = sparse_peers.visible_blocks(causal, 128)
    for kind, axis in ((FULL_ROW, 2), (FULL_COLUMN, 1)):
        live = sparse_peers.make_mask(kind, 0.1, causal, 8, seed=1)
        lengths, possible = live.sum(axis), visible.sum(axis - 1)
        full = (lengths == possible) & (possible > 64 - 1)
        assert (full.sum(1) == 1).all()
        assert (lengths[full] > sparse_peers.LONGEST * live.sum(axis).mean()).all()


def pairs_of(live, causal):
    seen = np.repeat(np.repeat(live, 128, 1), 128, 2)
    return seen & np.tri(seen.shape[1], dtype=bool) if causal else seen


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_and_pairs_are_those_that_are_seen(causal):
    live = sparse_peers.make_mask("random", 0.5, causal, 2, seed=2, blocks=5)
    seen = pairs_of(live, causal)
    assert sparse_peers.seen_pairs(live, causal) == seen.sum()
    for queries, keys in sparse_peers.TILES.values():
        tiles = seen.reshape(2, 640 // queries, queries, 640 // keys, keys).any(axis=(2, 4))
        assert sparse_peers.tiles_visited(live, causal, queries, keys) == tiles.sum()


def test_bits_stand_in_words_by_key_block():
    live = np.random.default_rng(1).random((3, 4, 70)) < 0.5
    words = sparse_peers.bits(live)
    assert words.dtype == np.uint32 and words.shape == (1, 3, 4, 3)
    found = [[[bool(words[0, h, r, c // 32] >> np.uint32(c % 32) & 1) for c in range(70)] for r in range(4)] for h in range(3)]
    assert (np.array(found) == live).all()


def test_kernels_of_the_plan_are_told_from_the_others():
    for name, expected in [
        ("void block_sparse::count_tiles<block_sparse::QueryRow, device::AttentionShape>(device::AttentionShape, int)", True),
        ("void block_sparse::add_up<1024>(block_sparse::PlanSizes)", True),
        ("void block_sparse::sparse_balanced<__half, Tile128<64> >(block_sparse::Mask)", False),
        ("void block_sparse::merge_parts<__half>(block_sparse::PlanSizes)", False),
        ("void backward::repair_rows<__half, device::AttentionShape, block_sparse::LivePairs>(device::AttentionShape)", False),
        ("void backward::prepare<block_sparse::Mask>(int)", False),
        ("void device::find_sequences<256>(block_sparse::Mask)", False),
    ]:
        assert sparse_peers.is_of_plan(name) == expected, name


# ---- claims ----


def report(excess=0.02, all_live=1.0, full_row=0.04, unsplit=0.3, flex=1.4, other=2.0):
    """All cells as in the JSON: `excess` is time over dense, less p; `flex` the speed over FlexAttention's; `other` dense time over that of
    PyTorch's kernels."""
    cells = {}
    for cell in CELLS:
        contenders, masks = [{"name": DENSE, "of": {}}], {}
        for kind in cell.kinds:
            p = cell.share
            over = all_live if kind == "all" else p + (full_row if kind == FULL_ROW else excess)
            masks[kind] = {"p": p}
            for name, time in ((OURS, over), *([(UNSPLIT, p + unsplit)] if kind == FULL_ROW and not cell.backward else [])):
                of = {f"{FLEX}, {kind}": {"median": flex}} if name == OURS else {}
                time_over = {DENSE: {"median": time}, "FlashAttention-2": {"median": time * other}, "cuDNN": {"median": time * other}}
                contenders.append({"name": f"{name}, {kind}", "mask": kind, "of": of, "time_over": time_over})
            contenders.append({"name": f"{FLEX}, {kind}", "mask": kind, "of": {}, "time_over": {DENSE: {"median": 9.0}}})
        about = {"backward": cell.backward, "dim": cell.dim, "causal": cell.causal, "share": cell.share}
        cells[cell.name] = {"problem": about, "masks": masks, "contenders": contenders}
    return cells


def by_name(cells):
    return {claim["what"]: claim for claim in sparse_peers.claims(cells)}


def verdicts(cells):
    return [claim["holds"] for claim in sparse_peers.claims(cells) if claim["target"] is not None]


def ours(cells, cell, kind):
    return next(c for c in cells[cell.name]["contenders"] if c["name"] == f"{OURS}, {kind}")


def test_all_claims_hold_where_all_targets_are_reached_and_every_cell_is_among_them():
    said = by_name(report())
    assert verdicts(report()) == [True] * 10
    assert not any(claim["missing"] for claim in said.values())
    sizes = {what: len(claim["cells"]) for what, claim in said.items()}
    for pass_, full in (("forward", 2), ("backward", 4)):
        assert sizes[f"{pass_}: time over dense, less p, the most"] == 4 * 3 * 4
        assert sizes[f"{pass_}, all live: time over dense, the most"] == 4
        assert sizes[f"{pass_}, d 64: speed over FlexAttention's, the least"] == 2 * (3 * 4 + 1 + full)
        assert sizes[f"{pass_}, d 128: speed over FlexAttention's, the least"] == 2 * (3 * 4 + 1 + full)
    assert sizes["forward, one full row a head: time over dense, less p, the most"] == 8
    assert sizes["the same where p is at most 0.1, or causal and sparse"] == 5 + (5 + 5 + 4)
    assert said["the same without splitting"]["most"] == pytest.approx(0.3) and said["the same without splitting"]["holds"] is None


EDGES = [
    ("forward: time over dense, less p, the most", Cell(False, 64, True, 0.1), "band", "time", 0.13),
    ("backward: time over dense, less p, the most", Cell(True, 128, False, 0.5), "mixed", "time", 0.54),
    ("forward, all live: time over dense, the most", Cell(False, 128, False, 1.0), "all", "time", 1.015),
    ("backward, all live: time over dense, the most", Cell(True, 64, True, 1.0), "all", "time", 1.04),
    ("forward, one full row a head: time over dense, less p, the most", Cell(False, 64, False, 0.25), FULL_ROW, "time", 0.3),
    ("forward, d 64: speed over FlexAttention's, the least", Cell(False, 64, False, 0.5), "uneven", "flex", 1.30),
    ("backward, d 64: speed over FlexAttention's, the least", Cell(True, 64, True, 0.1), FULL_COLUMN, "flex", 1.15),
    ("forward, d 128: speed over FlexAttention's, the least", Cell(False, 128, False, 1.0), "all", "flex", 0.97),
    ("the same where p is at most 0.1, or causal and sparse", Cell(False, 128, True, 0.5), "band", "flex", 1.10),
    ("backward, d 128: speed over FlexAttention's, the least", Cell(True, 128, True, 0.25), "random", "flex", 0.90),
]


@pytest.mark.parametrize(("what", "cell", "kind", "figure", "edge"), EDGES)
def test_one_cell_decides_a_claim_which_holds_at_its_edge_and_not_beyond(what, cell, kind, figure, edge):
    beyond = 1e-4 if figure == "time" else -1e-4
    for value, holds in ((edge, True), (edge + beyond, False)):
        cells = report()
        contender = ours(cells, cell, kind)
        (contender["time_over"][DENSE] if figure == "time" else contender["of"][f"{FLEX}, {kind}"])["median"] = value
        claim = by_name(cells)[what]
        assert claim["holds"] is holds
        assert len([other for other in sparse_peers.claims(cells) if other["holds"] is False]) == (not holds)
        assert claim["value"] == (claim["most"] if figure == "time" else claim["least"])
        assert f"{cell.name}, {kind}" in claim["cells"]


def test_a_cell_that_is_missing_is_named_and_its_claims_do_not_hold():
    cells = report()
    gone = Cell(False, 64, False, 0.25)
    ours(cells, gone, "band")["of"].clear()  # FlexAttention refused
    claim = by_name(cells)["forward, d 64: speed over FlexAttention's, the least"]
    assert claim["holds"] is False and claim["missing"] == [f"{gone.name}, band"]
    del cells[gone.name]
    claim = by_name(cells)["forward: time over dense, less p, the most"]
    assert claim["holds"] is False and claim["missing"] == [f"{gone.name}, {kind}" for kind in sparse_peers.KINDS]
    assert by_name(cells)["backward: time over dense, less p, the most"]["holds"] is True
    assert sparse_peers.claims({}) == []


def test_claims_are_the_same_after_a_way_through_json():
    cells = report(excess=0.03, full_row=0.05)
    for read in (cells, json.loads(turns.to_text(cells))):
        assert verdicts(read) == [True] * 10
    assert json.loads(turns.to_text(sparse_peers.claims(cells)))[0]["cells"]["forward, d 64, p 0.1, band"] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0.1, 0.2), (0.5, 0.6), (1.0, 1.1)], 0.9),
        ([(1.0, 2.0), (0.1, 0.2), (0.5, 1.0)], 0.5),
        ([(0.1, 0.1), (1.0, 0.99)], 1.0),
        ([(0.1, 1.2), (1.0, 3.0)], 0.0),
    ],
)
def test_break_even_lies_where_the_line_between_two_points_reaches_dense(points, expected):
    assert sparse_peers.break_even(points) == pytest.approx(expected)


def test_break_even_is_claimed_of_each_problem_beside_each_dense_kernel():
    said = by_name(report(excess=0.0, all_live=1.0, other=2.0))
    claim = said["forward: break-even share of live blocks beside FlashAttention-2, random masks, the least"]
    assert claim["cells"] == {f"forward, d {dim}{causal}": pytest.approx(0.5) for dim in (64, 128) for causal in ("", ", causal")}
    assert said[f"backward: break-even share of live blocks beside {DENSE}, random masks, the least"]["value"] == pytest.approx(1.0)


def test_times_over_dense_are_of_times_and_not_of_rates():
    ours_, dense = Contender("ours", 1e9, None, burst_ms=[[1.0], [3.0]]), Contender("dense", 4e9, None, burst_ms=[[4.0], [4.0]])
    assert sparse_peers.times_over(ours_, dense) == pytest.approx([0.25, 0.75])
    of_cell = sparse_peers.Turns(Cell(False, 64, False, 0.25))
    for name, pairs, kind, ms in ((DENSE, 4, None, 4.0), (OURS, 1, "band", 2.0), (FLEX, 1, "band", 3.0), (FLEX, 1, "random", 9.0)):
        of_cell.enter(name, pairs, None, 0.5, kind)
        of_cell.contenders[-1].burst_ms, of_cell.contenders[-1].sustained_ms = [[ms]], ms
    made = {entry["name"]: entry for entry in of_cell.as_json()}
    assert made["ours, band"]["time_over"] == {DENSE: pytest.approx({"median": 0.5, "min": 0.5, "max": 0.5})}
    assert list(made["ours, band"]["of"]) == ["FlexAttention, band"] and made["ours, band"]["of"]["FlexAttention, band"]["median"] == pytest.approx(1.5)
    assert "mask" not in made[DENSE] and made["FlexAttention, random"]["of"] == {}


# ---- the book ----


def written():
    """A whole report, with times; dense attention takes 10 ms."""
    cells = report()
    for cell in cells.values():
        for contender in cell["contenders"]:
            over = contender.get("time_over", {}).get(DENSE, {"median": 1.0})
            over |= {"min": over["median"], "max": over["median"]}
            for of in contender["of"].values():
                of |= {"min": of["median"], "max": of["median"]}
            contender |= {"verdict": "ok", "burst_ms": {"median": 10 * over["median"]}}
        for mask in cell["masks"].values():
            mask["plan_ms"] = 0.05
    return {"cells": cells, "claims": sparse_peers.claims(cells), "variants": ["balanced"]}


def test_tables_say_what_was_measured_and_what_holds(tmp_path):
    for name, arguments in (("sparse_peers", ["forward", "64"]), ("sparse_claims", [])):
        assert tables.make(tmp_path, name, arguments) == ""
    path = tmp_path / "results" / "h200" / "sparse_peers.json"
    path.parent.mkdir(parents=True)
    made = written()
    path.write_text(json.dumps(made))
    rows = tables.make(tmp_path, "sparse_peers", ["backward", "128"]).splitlines()[2:-2]
    assert len(rows) == 2 * (3 * 4 + 2 * 2 + 1)
    assert rows[0] == "| random | 0.100 | 1.200 | 0.050 | 0.120 (0.120–0.120) | +0.020 | 90.000 | 1.40 (1.40–1.40) |"
    assert tables.make(tmp_path, "sparse_claims", []).splitlines()[2] == "| forward: time over dense, less p, the most | at most 0.03 | 0.020–0.020 | 48 | holds |"
    for arguments in (["sideways", "64"], ["forward", "96"]):
        with pytest.raises(tables.TableError, match="is none of forward and backward"):
            tables.make(tmp_path, "sparse_peers", arguments)
    ours(made["cells"], Cell(True, 64, False, 0.1), "band")["verdict"] = "WRONG"
    path.write_text(json.dumps(made))
    for name, arguments in (("sparse_peers", ["forward", "64"]), ("sparse_claims", [])):
        with pytest.raises(tables.TableError, match="the result of ours, band is wrong at backward, d 64, p 0.1"):
            tables.make(tmp_path, name, arguments)


def test_the_picture_has_our_points_dense_lines_and_break_even_marks():
    made = written()
    for claim in made["claims"]:
        if "break-even" in claim["what"]:
            claim["cells"] = dict.fromkeys(claim["cells"], 0.75)
    for figure in (sparse_speed.draw(made), sparse_speed.draw(json.loads(turns.to_text(made)))):
        for axes in figure.axes:
            lines = {line.get_label(): line for line in axes.get_lines()}
            np.testing.assert_allclose(lines["ours: random"].get_xydata(), [[0.1, 1.2], [0.25, 2.7], [0.5, 5.2], [1.0, 10.0]])
            np.testing.assert_allclose(lines["break-even"].get_xydata(), [[0.75, 10.0]])
            assert list(lines["dense: steps 05 and 06"].get_ydata()) == [10.0, 10.0]
            assert {"ours: band", "ours: uneven", "ours: mixed", "ours: full row", "FlexAttention: random"} <= set(lines)
            assert len({(line.get_marker(), line.get_linestyle()) for name, line in lines.items() if not name.startswith("_")}) == len(
                [name for name in lines if not name.startswith("_")]
            )
            assert [text.get_text() for text in axes.texts] == ["0.75"]
    empty = sparse_speed.draw({"cells": {}, "claims": []})
    assert [[text.get_text() for text in axes.texts] for axes in empty.axes] == [["no run is committed yet"]] * 8


# ---- the library ----


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["uneven", FULL_ROW])
def test_the_librarys_sparse_passes_agree_with_numpy(kind, causal):
    if "sim" not in BIN.parent.name:
        pytest.skip("the GPU's libraries take memory of a GPU")
    library, live = peers.Library(LIBRARIES[2]), sparse_peers.make_mask(kind, 0.4, causal, 2, seed=5, blocks=3)
    q, k, v, d_o = tensors = problem(1, 2, 2, 384, 384, 64)
    o, lse, made = np.empty_like(q), np.empty((1, 2, 384), np.float32), [np.empty_like(x) for x in (q, k, v)]
    tensor = lambda x: peers.Tensor(x.ctypes.data, *(s // x.itemsize for s in x.strides[:3]))
    words, types = sparse_peers.bits(live), np.ones(2, np.int32)
    sparse = peers.Sparse(128, 128, 1, types.ctypes.data, types.ctypes.data, None, None, words.ctypes.data, words.ctypes.data)
    described = peers.problem_at(q.shape, "fp16", map(tensor, (q, k, v, o)), lse.ctypes.data, causal=int(causal))
    described.sparse = ctypes.addressof(sparse)
    for backward, given in ((False, None), (True, peers.Gradients(*map(tensor, (d_o, *made))))):
        with library.variant(sparse_peers.VARIANTS[backward], described, given) as (launch, operations):
            launch()
            assert operations == Cell(backward, 64, causal, 0.5).operations(sparse_peers.seen_pairs(live, causal))
    expected = gradients(*tensors, causal=causal, live=np.repeat(np.repeat(live, 128, 1), 128, 2))
    for found, right in zip((o, lse, *made), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=2.0**-7 * abs(right).max())


# ---- where PyTorch is ----


@pytest.mark.parametrize("causal", [False, True])
def test_flexattention_gets_the_same_mask_and_truth_knows_it(causal, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.nn.attention.flex_attention")
    torch.manual_seed(1)
    live = sparse_peers.make_mask("random", 0.5, causal, 2, seed=4, blocks=4)
    seen = torch.from_numpy(pairs_of(live, causal))
    mask = sparse_peers.block_mask(torch, live, causal, "cpu")
    assert (mask.to_dense()[0].bool() == torch.from_numpy(live)).all()
    assert int(mask.kv_num_blocks.sum()) == (8 if causal else 0)  # partial ones: the diagonals
    assert int(mask.full_q_num_blocks.sum()) == live.sum() - int(mask.kv_num_blocks.sum())
    hidden = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
    monkeypatch.setattr(sparse_peers.backward_peers, "SCORES", 512**2)  # one head at a time
    monkeypatch.setattr(Cell, "seq", 512)
    rows, half = peers.sampled_rows(512, 1), [torch.randn(1, 2, 512, 64).half() for _ in range(4)]
    leaves = [x.float().requires_grad_() for x in half[:3]]
    o = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=hidden)
    right = {False: [o.detach().half()], True: [x.half() for x in torch.autograd.grad(o, leaves, half[3].float())]}
    other = sparse_peers.make_mask("random", 0.5, causal, 2, seed=6, blocks=4)
    for backward in (False, True):
        truths = [sparse_peers.truth_of(torch, Cell(backward, 64, causal, 0.5), of, *half, rows) for of in (live, other, None)]
        assert truths[0].worst_ratio(*right[backward]) <= 1
        assert min(truth.worst_ratio(*right[backward]) for truth in truths[1:]) > 1
    assert sparse_peers.apart(right[True], right[True]) == 0
    changed = [x.clone() for x in right[True]]
    changed[2][0, 1, 300] = torch.nan
    assert sparse_peers.apart(right[True], changed) == float("inf")


# ---- the command line ----


@WITHOUT_A_GPU
def test_without_pytorch_or_without_a_gpu_it_refuses_in_one_line(tmp_path, module, reason):
    require_refusal("sparse_peers", LIBRARIES, tmp_path, module, reason)


def test_bad_usage_is_refused_with_what_would_be_right(tmp_path):
    for arguments, build, reason in [
        (["--cell", "d 99"], BIN.parent, "there are:\nforward, d 64, p 0.1\n"),
        (["--rounds", "0"], BIN.parent, "at least 1"),
        ([], tmp_path, "make gpu builds it"),
    ]:
        done = run("sparse_peers", *arguments, build=build)
        assert done.returncode == 2 and reason in done.stderr

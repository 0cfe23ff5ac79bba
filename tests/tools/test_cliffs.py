"""benchmarks/cliffs.py without a GPU: rows, which rows of a result an odd element reaches, what is claimed and printed, refusals."""

import itertools
import json
import sys
from collections import Counter

import numpy as np
import pytest
from conftest import BIN, ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import cliff_rows
import cliffs
import odd_elements
import peers
import sparse_peers
from cliff_rows import Case
from odd_elements import INPUTS, RESULTS, VALUES, Odd
from test_attention_peers import WITHOUT_A_GPU, require_refusal, run

from tools.measure import gpu_check

LIBRARIES = [BIN.parent / "lib" / f"libattention_{step}.so" for step in (*sparse_peers.DENSE_STEPS.values(), sparse_peers.STEP)]
ROWS = {group: list(rows()) for group, rows in cliff_rows.GROUPS.items()}


# ---- rows ----


def test_every_group_has_its_rows_and_no_row_stands_there_twice():
    assert {group: len(rows) for group, rows in ROWS.items()} == {
        "values": (45 + 18 + 2) + (60 + 24 + 5 + 3),
        "heads and batch": 2 * (5 + 4) + (5 + 4),
        "shared heads": 3 * 3 * 2 * 2 * 2,
        "dims": 2 * (32 + 5),
        "windows": 2 * 6,
        "uneven lengths": 2 * 2 * 4,
        "masks": 2 * 3,
        "plans": 2 * 4,
    }
    for group, rows in ROWS.items():
        assert {row.group for row in rows} == {group}
        assert max(Counter((row.name, row.of) for row in rows).values()) == 1


def test_what_a_row_is_compared_with_is_another_problem_of_ours_or_flash_attention_2():
    for row in itertools.chain(*ROWS.values()):
        assert bool(row.others) == bool(row.of and row.of != sparse_peers.FA2)
        assert bool(row.odd) == (row.group == "values")
        assert row.case not in row.others or row.odd or row.group == "dims"
        assert not row.fa2 or not (row.case.mask or row.case.window)  # FlashAttention-2 in PyTorch takes neither
    without = [row.case.name for row in ROWS["heads and batch"] if not row.of]
    assert without == [f"{pass_}, 1 × {heads} heads, 128 tokens, d 64" for heads in (1, 32) for pass_ in ("forward", "backward")]


def test_odd_elements_are_of_the_first_head_or_of_every_head_and_in_a_tile_too():
    odd = [row.odd for row in ROWS["values"]]
    assert {one.value for one in odd if one.every_head} == {"inf", "nan"}
    assert all(one.tensor != "d_o" or row.case.backward for one, row in zip(odd, ROWS["values"], strict=True))
    assert {(one.tensor, one.value, one.row) for one in odd} >= set(itertools.product(INPUTS, VALUES, cliff_rows.PLACES.values()))
    assert not cliff_rows.VALUES_SEQ % sparse_peers.BLOCK and cliff_rows.PLACES["middle"] % 64 not in (0, 63)


def test_a_dim_is_compared_with_multiples_of_32_that_are_not_below_it():
    others = {row.case.dim: [other.dim for other in row.others] for row in ROWS["dims"]}
    assert (others[8], others[33], others[64], others[129], others[256]) == ([32, 64], [64, 96], [64, 96], [160, 192], [256])


def test_lengths_fill_their_tokens_and_a_case_knows_its_steps_and_blocks():
    for row in ROWS["uneven lengths"]:
        for case in (row.case, *row.others):
            assert sum(case.lengths) == case.seq <= 16384 and min(case.lengths) >= 1
    assert Case(True).steps == ("05_flash_v2", "06_backward") and Case(True, mask="all").steps == ("07_block_sparse",) * 2
    live = {mask: Case(heads=2, seq=1024, mask=mask).live for mask in (*cliff_rows.MASKS, "all", "band")}
    assert {mask: int(blocks[1].sum()) for mask, blocks in live.items()} == {"one block": 1, "block row": 8, "block column": 8, "all": 64, "band": 22}
    assert Case(True, 2, 8, 2, 64, 40, True, 16).name == "backward, 2 × 8/2 heads, 64 tokens, d 40, causal, window 16"


# ---- what is said ----


def measured(name="a", ratio=1.0, of="b", **more):
    return {"name": name, "of": of, "ms": 2.0 * ratio, "of_ms": 2.0, "ratio": ratio, "fa2_ms": None, "verdict": "ok", **more}


def said(groups):
    return {claim["what"]: (claim["value"], claim["target"]) for claim in cliffs.claims(groups)}


def test_claims_are_of_the_worst_row_and_leave_out_what_was_not_measured():
    groups = {
        "values": [measured("V nan", 1.9, spread=True), measured("Q nan", 1.4, spread=False), measured("K nan", 1.2, spread=False)],
        "dims": [measured(ratio=2.5), {"name": "d 300", "of": "d 320", "refused": "dim"}, {**measured(), "ratio": None}],
        "windows": [measured(ratio=0.9)],
        "host": [measured("forward", 0.016), measured("forward", 0.016, of="c"), measured("forward and backward", 0.045)],
        "masks": [],
    }
    assert said(groups) == {
        "values: the most of the ratios": (1.9, 2.0),
        "values: the most where no product of tiles spreads NaN": (1.4, 1.5),
        "dims: the most of the ratios": (2.5, 2.0),
        "windows: the most of the ratios": (0.9, 1.1),
        "host: µs of a call, forward": (pytest.approx(32), 40),
        "host: µs of a call, forward and backward": (pytest.approx(90), 80),
    }
    assert cliffs.claims({}) == []


def test_a_row_that_the_book_explains_is_claimed_apart(monkeypatch):
    monkeypatch.setattr(cliffs, "EXPLAINED", {"dims/forward*, d 8, over d 32*": "docs/05b_flash_v2.md"})
    rows = [measured("forward, d 8", 4.0, "d 32 or 64"), measured("backward, d 8", 1.5, "d 32 or 64"), measured("forward, d 8", 1.7, "d 64")]
    assert said({"dims": rows}) == {"dims: the most of the ratios": (1.7, 2.0), "dims: the most of those that the book explains": (4.0, None)}
    assert [cliffs.page_of("dims", row) for row in rows] == ["docs/05b_flash_v2.md", None, None]
    assert cliffs.page_of("windows", rows[0]) is None
    assert cliffs.table("dims", rows)[1].endswith(" 4.000         -  over d 32 or 64, see docs/05b_flash_v2.md")


def test_every_pattern_explains_a_row_and_names_a_page_that_is_there():
    for pattern, page in cliffs.EXPLAINED.items():
        cliffs_of = [row for group, rows in ROWS.items() for row in rows if cliffs.fnmatch.fnmatchcase(f"{group}/{row.name}, over {row.of}", pattern)]
        assert cliffs_of, pattern
        assert (ROOT / page.split("#")[0]).is_file(), page


@pytest.mark.parametrize(
    ("group", "row", "limit"),
    [
        ("dims", measured(), 2.0),
        ("windows", measured(), 1.1),
        ("masks", measured(), 0.25),
        ("plans", measured(), 1.02),
        ("shared heads", measured(of="FlashAttention-2"), 1.0),
        ("shared heads", measured(of="32 key/value heads"), 2.0),
        ("values", measured(spread=True), 2.0),
        ("values", measured(spread=False), 1.5),
        ("host", measured(), None),
        ("heads and batch", {**measured(), "ratio": None}, None),
    ],
)
def test_a_row_above_its_limit_is_a_cliff_and_one_at_it_is_none(group, row, limit):
    assert cliffs.limit_of(group, row) == limit
    if limit is not None:
        lines = [cliffs.table(group, [{**row, "ratio": ratio}])[1] for ratio in (limit, limit + 1e-3)]
        assert [line.endswith(", CLIFF") for line in lines] == [False, True]


def test_the_table_has_a_line_a_row():
    rows = [
        measured("first", 1.25, "second"),
        measured("wrong", 3.0, fa2_ms=0.5, verdict="WRONG"),
        {**measured("alone", of=""), "of_ms": None, "ratio": None},
        {"name": "refused", "of": "b", "refused": "no variant takes it"},
    ]
    assert cliffs.table("dims", rows) == [
        f"{'dims':56}        ms     of ms    ratio    FA2 ms",
        f"  {'first':54}    2.5000    2.0000    1.250         -  over second",
        f"  {'wrong':54}    6.0000    2.0000    3.000    0.5000  over b, WRONG, CLIFF",
        f"  {'alone':54}    2.0000         -        -         -",
        f"  {'refused':54} refused: no variant takes it",
    ]


def test_costs_of_a_pair_and_fixed_costs_lie_on_the_line_through_both_problems():
    case = Case(seq=8192, mask="one block")
    ours, dense = (cliffs.Measured(ms, 4 * 64 * pairs, True) for ms, pairs in ((0.1, 2**18), (2.1, 2**30)))
    made = cliffs.by_pair(case, ours, dense)
    assert made["fixed_ms"] + made["ps_per_pair"] * 1e-9 * 2**30 == pytest.approx(2.1)
    assert (made["pairs"], made["tiles"], made["share"], made["us_per_tile"]) == (2**18, 16 * 2, pytest.approx(1 / 4096), pytest.approx(100 / 32))
    same = cliffs.by_pair(Case(True, window=4096), *[cliffs.Measured(1.0, 10 * 64 * 5, True)] * 2)
    assert same == {"pairs": 5}
    assert cliffs.Measured(3.0, 100, True).scaled_to(cliffs.Measured(1.0, 50, True)) == 1.5


# ---- the program, without kernels ----


def bench_of(times, fa2_ms=None):
    """A Bench that has measured: {case: (ms, operations, right)}; None: refused."""
    bench = cliffs.Bench(None, None)

    def ours(case, odd=None):
        if times[case] is None:
            raise peers.Refused("dim 300 is above 256\nand more")
        return cliffs.Measured(*times[case], spread=True if odd else None)

    bench.ours, bench.fa2_ms = ours, lambda case: fa2_ms
    return bench


def test_a_ratio_is_over_the_fastest_neighbour_scaled_where_it_counts_by_operation():
    row = next(row for row in ROWS["dims"] if row.case.dim == 40)
    times = {row.case: (3.0, 40, True), row.others[0]: (4.0, 64, True), row.others[1]: (4.8, 96, True)}
    made = bench_of(times, fa2_ms=2.0).row(row)
    assert (made["ms"], made["of_ms"], made["ratio"], made["fa2_ms"], made["verdict"]) == (3.0, pytest.approx(2.0), pytest.approx(1.5), 2.0, "ok")
    assert "pairs" not in made and "spread" not in made
    assert bench_of({**times, row.others[1]: (4.8, 96, False)}).row(row)["verdict"] == "WRONG"
    assert bench_of({**times, row.others[0]: None}).row(row) == {"name": row.name, "of": "d 64 or 96", "refused": "dim 300 is above 256"}
    window = ROWS["windows"][0]
    made = bench_of({window.case: (1.0, 256, True), window.others[0]: (2.0, 512, True)}).row(window)
    assert (made["ratio"], made["pairs"], made["fixed_ms"]) == (0.5, 1, pytest.approx(0.0))


def test_a_ratio_over_flash_attention_2_is_there_where_it_takes_the_problem():
    row, odd, first = ROWS["shared heads"][0], ROWS["values"][0], ROWS["heads and batch"][0]
    made = [bench_of({row.case: (3.0, 1, True)}, fa2_ms).row(row) for fa2_ms in (2.0, None)]
    assert [(one["of_ms"], one["ratio"]) for one in made] == [(2.0, 1.5), (None, None)]
    assert bench_of({odd.case: (3.0, 1, True)}).row(odd)["spread"] is True
    assert bench_of({first.case: (3.0, 1, True)}).row(first)["ratio"] is None


class FakeBench:
    verdict = "ok"

    def __init__(self, torch, libraries):
        assert list(libraries) == ["05_flash_v2", "06_backward", "07_block_sparse"]

    def row(self, row):
        return measured(row.name, 0.5, row.of, verdict=self.verdict if row.name.endswith("one block") else "ok")


@pytest.mark.parametrize(("verdict", "status"), [("ok", 0), ("WRONG", 1)])
def test_the_report_holds_the_groups_that_were_asked_for_and_a_wrong_result_fails(verdict, status, tmp_path, monkeypatch, capsys):
    class Library:
        describe = staticmethod(dict)

    monkeypatch.setattr(cliffs.peers, "load", lambda *_: Library)
    monkeypatch.setattr(cliffs.peers, "import_torch", lambda: None)
    monkeypatch.setattr(cliffs.peers, "machine", lambda torch, name, built, options: {"name": name, "torch": options.only})
    monkeypatch.setattr(cliffs, "Bench", FakeBench)
    monkeypatch.setattr(FakeBench, "verdict", verdict)
    path = tmp_path / "cliffs.json"
    assert cliffs.main(["--only", "windows,masks", "--only", "heads and batch", "--json", str(path)]) == status
    report = json.loads(path.read_text())
    assert {group: len(rows) for group, rows in report["groups"].items()} == {group: len(ROWS[group]) for group in ("heads and batch", "windows", "masks")}
    assert report["machine"]["torch"] == ["windows", "masks", "heads and batch"]
    assert report["claims"] == cliffs.claims(report["groups"])
    shown = capsys.readouterr()
    assert "masks: the most of the ratios: 0.500 (target 0.25)" in shown.out
    assert shown.err == ("" if verdict == "ok" else "WRONG: forward, one block (masks)\nWRONG: backward, one block (masks)\n")


def test_gpu_check_runs_it_with_each_of_its_steps():
    steps = [step for step, programs in gpu_check.PEERS.items() if "cliffs" in programs]
    assert steps == [path.stem.removeprefix("libattention_") for path in LIBRARIES]
    assert "cliffs.json" in gpu_check.__doc__


# ---- where PyTorch is ----


def attention_by_pairs(q, k, v, d_o, seen):
    """O, LSE, dQ, dK and dV of one head, in double precision, from pairs that are seen alone. A query whose scores are all −∞ adds nothing."""
    n = len(q)
    o, lse, dq, dk, dv = np.zeros_like(q), np.full(n, -np.inf), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for i in range(n):
        keys = np.flatnonzero(seen[i])
        scores = np.array([q[i] @ k[j] for j in keys])
        if (scores == -np.inf).all():
            continue
        lse[i] = scores.max() + np.log(np.exp(scores - scores.max()).sum())
        p = np.exp(scores - lse[i])
        o[i] = p @ v[keys]
        ds = p * (v[keys] @ d_o[i] - d_o[i] @ o[i])
        dq[i] = ds @ k[keys]
        for j, of_p, of_ds in zip(keys, p, ds, strict=True):
            dk[j] += of_ds * q[i]
            dv[j] += of_p * d_o[i]
    return dict(zip(("o", "lse", "dq", "dk", "dv"), (o, lse, dq, dk, dv), strict=True))


def problem_of(torch, odd=None, heads=2, seq=24, dim=6):
    """Inputs [1, heads, seq, dim] by name, and pairs that are seen: causal, without a block of keys."""
    torch.manual_seed(3)
    inputs = {name: torch.randn(1, heads, seq, dim) for name in INPUTS}
    if odd:
        odd.put(torch, inputs)
    seen = torch.ones(1, seq, seq, dtype=torch.bool).tril()
    seen[:, 16:, 4:8] = False
    return inputs, seen


def results_of(torch, inputs, seen):
    """{name: [1, heads, seq, dim]}, with NaN and infinity where they belong."""
    with np.errstate(all="ignore"):
        heads = [attention_by_pairs(*(x[0, head].double().numpy() for x in inputs.values()), seen[0].numpy()) for head in range(inputs["q"].shape[1])]
    return {name: torch.from_numpy(np.stack([of_head[name] for of_head in heads]))[None] for name in heads[0]}


ODD = [Odd(tensor, value, row) for tensor, value, row in itertools.product(INPUTS, ("inf", "-inf", "nan", "denormal"), (0, 5, 13, 23))]
ODD += [Odd("d_o", "inf", 13, whole_row=True), Odd("d_o", "inf", None), Odd("v", "nan", 5, every_head=True)]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_rows_that_are_not_finite_are_those_of_attention_pair_by_pair(odd):
    torch = pytest.importorskip("torch")
    inputs, seen = problem_of(torch, odd)
    least, most, of_tiles = odd_elements.not_finite(torch, *(x[0] for x in inputs.values()), seen, odd_elements.by_tiles(seen, 8, 4))
    for name, result in results_of(torch, inputs, seen).items():
        found = ~result[0].isfinite().reshape(*result.shape[1:3], -1).all(-1)
        assert torch.equal(found, least[name]), name
        assert not (least[name] & ~most[name]).any() and not (most[name] & ~of_tiles[name]).any()
        assert torch.equal(least[name], most[name]) or (odd.tensor in "qk" and odd.row == 0)  # a query with scores of −∞ alone


def judged(torch, odd, backward, change=lambda results: None):
    inputs, seen = problem_of(torch, odd)
    of = lambda made: [made[name] for name in RESULTS[backward]]
    results = results_of(torch, inputs, seen)
    change(results)
    return odd_elements.judge(torch, odd, backward, (seen, odd_elements.by_tiles(seen, 8, 4)), inputs, of(results), of(results_of(torch, *problem_of(torch))))


@pytest.mark.parametrize("backward", [False, True])
def test_right_results_are_accepted_and_nan_that_is_missing_or_too_much_is_not(backward):
    torch = pytest.importorskip("torch")
    for odd in ODD:
        if backward or odd.tensor != "d_o":
            assert judged(torch, odd, backward)[0], odd
    odd, name = Odd("v", "nan", 13), "dq" if backward else "o"

    def set_to(head, row, value):
        return lambda results: results[name][0, head, row, 0].fill_(value)

    assert not judged(torch, odd, backward, set_to(0, 12, np.nan))[0]  # it does not see key 13
    assert not judged(torch, odd, backward, set_to(1, 20, np.inf))[0]  # of another head
    assert not judged(torch, odd, backward, lambda results: results[name][0, 0, 20].fill_(0.0))[0]  # it does see it
    assert not judged(torch, odd, backward, set_to(0, 12, 9.0))[0]
    assert judged(torch, odd, backward, set_to(0, 20, 9.0))[0]
    lowest = Odd("v", "lowest", 13)
    assert not judged(torch, lowest, backward, set_to(0, 12, np.inf))[0]
    assert judged(torch, lowest, backward, set_to(0, 20, np.inf))[0]  # it may overflow
    assert not judged(torch, Odd("v", "denormal", 13), backward, set_to(0, 20, np.inf))[0]


@pytest.mark.parametrize(
    ("odd", "backward", "spread"),
    [
        (Odd("v", "nan", 13), False, True),
        (Odd("v", "nan", 0), False, False),  # every query of its tile sees it
        (Odd("k", "nan", 13), False, False),  # scores are masked after the product
        (Odd("q", "inf", 23), True, False),  # the last query sees every key of its tile
        (Odd("q", "inf", 13), True, True),
        (Odd("d_o", "lowest", 13), True, False),
        (Odd("d_o", "inf", None, every_head=True), True, True),  # the last keys see no ∞ in some columns
    ],
    ids=str,
)
def test_products_of_tiles_spread_nan_to_rows_with_a_masked_pair(odd, backward, spread, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys.modules[__name__], "problem_of", lambda torch, odd=None, made=problem_of: (made(torch, odd)[0], torch.ones(1, 24, 24, dtype=torch.bool).tril()))
    assert judged(torch, odd, backward) == (True, spread)


def test_pairs_of_a_case_are_causal_and_of_live_blocks():
    torch = pytest.importorskip("torch")
    case = Case(heads=2, seq=512, causal=True, mask="band")
    seen = case.seen(torch, "cpu")
    assert int(seen.sum()) == sparse_peers.seen_pairs(case.live[:1], causal=True) < 512 * 513 / 2
    assert torch.equal(odd_elements.by_tiles(seen, 128, 128)[0], torch.from_numpy(np.kron(case.live[0], np.ones((128, 128), bool))))


# ---- the command line ----


@WITHOUT_A_GPU
def test_without_pytorch_or_without_a_gpu_it_refuses_in_one_line(tmp_path, module, reason):
    require_refusal("cliffs", LIBRARIES, tmp_path, module, reason)


def test_bad_usage_is_refused_with_what_would_be_right(tmp_path):
    for arguments, build, reason in [
        (["--only", "values,widths"], BIN.parent, "no group is called 'widths'; there are: values, heads and batch, "),
        ([], tmp_path, "make gpu builds it"),
    ]:
        done = run("cliffs", *arguments, build=build)
        assert done.returncode == 2 and reason in done.stderr

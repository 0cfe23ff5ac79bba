"""benchmarks/attention_peers.py and backward_peers.py without a GPU: turns, what is made of the times, what is claimed, and what is refused."""

import itertools
import json
import os
import subprocess
import sys

import pytest
from conftest import BIN, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import attention_peers
import backward_peers
import packed_peers
import peers
import turns
from turns import Contender

LIBRARIES = sorted((BIN.parent / "lib").glob("libattention_*.so"))  # of either build


class FakeMachine:
    """Launches take the time that `speeds` says; every launch and pause is kept."""

    def __init__(self, speeds):
        self.speeds = speeds
        self.did = []
        self.now = None

    def launches(self, name):
        return lambda: setattr(self, "now", name)

    def pause(self, ms):
        self.did.append(("pause", ms))

    def each(self, launch, wake, count):
        launch()
        self.did.append((self.now, wake, count))
        return [next(self.speeds[self.now]) for _ in range(count)]

    def together(self, launch, count):
        launch()
        self.did.append((self.now, "sustained", count))
        return 4.0, 1500


@pytest.fixture
def measured():
    """Two contenders, of which one drifts: (contenders, machine)."""
    machine = FakeMachine({"steady": itertools.repeat(0.25), "drifting": itertools.count(1)})
    contenders = [Contender(name, 2e9, machine.launches(name)) for name in machine.speeds]
    turns.measure(contenders, machine, rounds=3, repetitions=2, pause_ms=5, sustained_ms=100)
    return contenders, machine


def test_every_round_gives_everyone_a_turn_after_a_pause_and_in_another_order(measured):
    _, machine = measured
    rounds = machine.did[4:-4]  # after the launches that are not counted, before the sustained ones
    assert [name for name, *_ in rounds] == ["pause", "steady", "pause", "drifting", "pause", "drifting", "pause", "steady"] + [
        "pause",
        "steady",
        "pause",
        "drifting",
    ]
    assert ("steady", 4, 2) in rounds  # 1 ms of work before the launches that count
    assert ("drifting", 1, 2) in rounds


def test_sustained_launches_fill_half_of_the_time_twice(measured):
    _, machine = measured
    assert machine.did[-4:] == [("pause", 100), ("steady", "sustained", 200), ("pause", 100), ("drifting", "sustained", 20)]


def test_times_are_kept_by_round_and_rates_are_of_the_medians(measured):
    (steady, drifting), _ = measured
    assert drifting.burst_ms == [[4, 5], [6, 7], [8, 9]]
    assert steady.rates() == [8.0] * 3
    written = turns.entry(drifting, [steady])
    assert written["burst_ms"] == {"median": 6.5, "min": 4, "max": 9}
    assert written["rounds_ms"] == {"median": [4.5, 6.5, 8.5], "min": [4, 6, 8], "max": [5, 7, 9]}
    assert written["of"] == {"steady": pytest.approx({"median": 0.25 / 6.5, "min": 0.25 / 8.5, "max": 0.25 / 4.5})}
    assert (written["sustained_ms"], written["sm_clock_mhz"]) == (4.0, 1500)


def test_a_ratio_is_the_median_of_rounds_and_not_the_ratio_of_medians():
    contenders = [Contender("one", 1e9, None, burst_ms=[[1.0], [4.0], [2.0]]), Contender("other", 1e9, None, burst_ms=[[1.0], [2.0], [8.0]])]
    assert turns.ratios(*contenders) == [1.0, 0.5, 4.0]
    assert turns.spread(turns.ratios(*contenders)) == {"median": 1.0, "min": 0.5, "max": 4.0}


def test_what_is_written_is_json_with_few_lines_and_six_digits():
    report = {"a": [1.23456789, 2.0, None], "b": {"median": 0.1, "min": 1e-7}, "c": [{"d": []}, "x" * 130]}
    text = turns.to_text(report)
    assert json.loads(text) == {**report, "a": [1.23457, 2.0, None]}
    assert '"b": {"median": 0.1, "min": 1e-07},\n' in text


def test_an_infinite_error_is_written_as_null():
    broken = Contender("o", 1.0, None, "WRONG", float("inf"), [[1.0]], 1.0)
    assert turns.entry(broken, [])["worst_ratio"] is None


# ---- problems ----


def test_cells_hold_16k_tokens_and_the_operations_of_the_pairs_that_are_seen():
    cells = attention_peers.all_cells()
    assert len({cell.name for cell in cells}) == len(cells) == 24
    assert all(cell.batch * cell.seq == 16384 and 2016 <= cell.heads * cell.dim <= 2048 for cell in cells)
    dense, causal = peers.Cell(4096, 128, False), peers.Cell(4096, 128, True)
    assert attention_peers.operations(dense) == 4 * 128 * 4096**2 * 16 * 4
    assert backward_peers.operations(dense) == 2.5 * attention_peers.operations(dense)
    assert causal.pairs / dense.pairs == pytest.approx(0.5 + 0.5 / 4096)


def test_cells_of_the_backward_pass_hold_what_is_claimed_of_them():
    cells = backward_peers.all_cells()
    assert len({cell.name for cell in cells}) == len(cells) == 22
    assert all(cell.batch * cell.seq == 16384 and 2016 <= cell.heads * cell.dim <= 2048 for cell in cells)
    of_claims = itertools.product(backward_peers.LENGTHS, backward_peers.DIMS, (False, True), ["fp16"])
    assert {peers.Cell(*problem) for problem in of_claims} < set(cells)


def test_packed_texts_fill_the_tokens_and_their_pairs_are_counted():
    assert all(sum(lengths) == peers.TOKENS and max(lengths) == packed_peers.LONGEST for lengths in packed_peers.LENGTHS.values())
    assert min(packed_peers.LENGTHS["mixed"]) >= 1 and len(set(packed_peers.LENGTHS["mixed"])) > 20
    assert len({cell.name for cell in packed_peers.CELLS}) == len(packed_peers.CELLS) == 16
    equal = packed_peers.Cell(False, "equal", 128, False)
    assert equal.operations == attention_peers.operations(peers.Cell(2048, 128, False))
    assert packed_peers.Cell(True, "equal", 128, True).operations == pytest.approx(2.5 * attention_peers.operations(peers.Cell(2048, 128, True)))


def test_what_is_claimed_of_packed_texts():
    def cell(backward, lengths, padded, flash):
        of = {"padded": {"median": padded}, packed_peers.FA2: {"median": flash}}
        return {"problem": {"backward": backward, "lengths": lengths}, "contenders": [{"name": "packed", "of": of}, {"name": "padded"}, {"name": packed_peers.FA2}]}

    cells = [cell(False, "mixed", 2.0, 1.2), cell(False, "mixed", 8.0, 1.1), cell(False, "equal", 0.9, 1.3), cell(True, "mixed", 3.0, 1.4)]
    said = {claim["what"]: claim["value"] for claim in packed_peers.claims(dict(enumerate(cells)))}
    assert said["forward: packed over padded, texts of different lengths, geometric mean"] == pytest.approx(4.0)
    assert said["forward: packed over padded, equal texts: what packing costs, the least"] == 0.9
    assert said["forward: over FlashAttention-2's, texts of different lengths, the least"] == 1.1
    assert said["backward: over FlashAttention-2's, all, geometric mean"] == pytest.approx(1.4)
    assert packed_peers.claims({}) == []


@pytest.mark.parametrize("seq", [1, 64, 65, 113, 512, 16384])
def test_sampled_rows_hold_the_ends_and_the_edges_of_tiles(seq):
    rows = peers.sampled_rows(seq, seed=1)
    assert len(rows) == len(set(rows)) == min(seq, 64)
    assert {0, seq - 1} <= set(rows) <= set(range(seq))
    if seq > 128:
        assert {15, 16, 63, 64, 127, 128, seq // 128 * 128 - 1, seq // 64 * 64 - 1} <= set(rows)
        assert rows != peers.sampled_rows(seq, seed=2)


# ---- claims ----


def cell_of(seq, dim, causal, dtype, **contenders):
    """A cell as in the JSON: contender = (TFLOP/s, {other: median ratio})."""
    entries = [
        {"name": name, "tflops": {"median": tflops}, "of": {other: {"median": ratio} for other, ratio in of.items()}}
        for name, (tflops, of) in contenders.items()
    ]
    return {"problem": {"seq": seq, "dim": dim, "causal": causal, "dtype": dtype}, "contenders": entries}


def test_claims_are_made_over_the_cells_that_have_targets():
    of = lambda fa2, roof: {"FlashAttention-2": fa2, peers.ROOF: roof}
    cells = [
        cell_of(512, 64, False, "fp16", tuned=(1, of(0.1, 0.1))),  # reported only
        cell_of(2048, 64, True, "fp16", tuned=(1, of(1.0, 0.2))),
        cell_of(2048, 128, True, "fp16", tuned=(1, of(4.0, 0.3))),
        cell_of(4096, 128, False, "fp16", tuned=(100, of(2.0, 0.6)), other=(1, of(9, 9))),
        cell_of(4096, 128, False, "bf16", tuned=(98, of(0.1, 0.1))),
        cell_of(4096, 256, False, "fp16", tuned=(1, of(0.1, 0.1))),  # reported only
        cell_of(16384, 128, True, "fp16", tuned=(1, {peers.ROOF: 0.7})),  # here the peer refused
        cell_of(16384, 64, True, "fp16"),  # and here ours did
    ]
    said = {claim["what"]: claim["value"] for claim in attention_peers.claims(dict(enumerate(cells)), ["tuned"])}
    assert said == {
        "geometric mean of the speed over FlashAttention-2's": pytest.approx(2.0),
        "the least of these": 1.0,
        "least share of the roof at d 128 from 4096 tokens": 0.6,
        "bf16 over fp16, the least": 0.98,
    }


def test_claims_of_the_backward_pass_are_of_each_head_dim_and_of_the_deterministic_variant():
    of = lambda fa2: {"FlashAttention-2": fa2}
    cells = [
        cell_of(2048, 64, True, "fp16", tuned=(100, of(1.5)), deterministic=(80, of(9))),
        cell_of(4096, 64, False, "fp16", tuned=(100, of(1.4)), deterministic=(70, of(9))),
        cell_of(16384, 128, False, "fp16", tuned=(100, of(1.2))),
        cell_of(4096, 96, False, "fp16", tuned=(100, of(1.1)), deterministic=(1, of(9))),
        cell_of(4096, 256, False, "fp16", tuned=(100, of(0.1))),  # reported only
    ]
    said = {claim["what"]: (claim["value"], claim["target"]) for claim in backward_peers.claims(dict(enumerate(cells)), ["tuned"])}
    assert said == {
        "d 64: the least of the speeds over FlashAttention-2's": (1.4, 1.35),
        "d 128: the least of the speeds over FlashAttention-2's": (1.2, 1.15),
        "geometric mean of these": (pytest.approx((1.5 * 1.4 * 1.2) ** (1 / 3)), 1.28),
        "d 32 and d 96: the least": (1.1, 1.0),
        "deterministic, whose bits are the same in every run, over tuned, the least": (0.7, 0.70),
    }


def test_nothing_measured_is_nothing_claimed():
    assert attention_peers.claims({}, ["tuned"]) == []
    assert backward_peers.claims({}, ["tuned"]) == []


# ---- the command line; other benchmarks' tests use these three ----

WITHOUT_A_GPU = pytest.mark.parametrize(  # what stands for PyTorch: torch.py
    ("module", "reason"),
    [
        ("raise ImportError", "has no PyTorch"),
        ("class cuda:\n    is_available = staticmethod(lambda: False)", "PyTorch sees no GPU"),
    ],
)


def run(program, *arguments, path=None, build=BIN.parent):
    """Runs benchmarks/PROGRAM.py. path: a folder in which Python looks for modules first."""
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    command = [sys.executable, ROOT / "benchmarks" / f"{program}.py", "--build", build, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def require_refusal(program, libraries, folder, module, reason):
    """With that module as PyTorch, the program says the reason in one line, and nothing else."""
    if not all(path.exists() for path in libraries):
        pytest.skip(f"{BIN.parent}/lib does not hold all three")
    (folder / "torch.py").write_text(module)
    done = run(program, path=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert reason in done.stderr


def test_a_library_that_is_not_there_is_bad_usage_that_says_how_to_build_it():
    done = run("attention_peers", "--step", "99_nothing")
    assert done.returncode == 2
    assert "libattention_99_nothing.so" in done.stderr
    assert "make gpu builds it" in done.stderr


def the_library():
    if not LIBRARIES:
        pytest.skip(f"{BIN.parent}/lib holds no attention step")
    return LIBRARIES[0]


@WITHOUT_A_GPU
def test_without_pytorch_or_without_a_gpu_it_refuses_by_name(tmp_path, module, reason):
    step = the_library().stem.removeprefix("libattention_")
    (tmp_path / "torch.py").write_text(module)
    done = run("attention_peers", "--step", step, path=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--variant", "nothing"], "has no variant 'nothing' (it has: "),
        (["--cell", "d 99"], "there are:\nd 64, 512 tokens, fp16\n"),
        (["--rounds", "0"], "at least 1"),
    ],
)
def test_bad_usage_is_refused_with_what_would_be_right(arguments, reason):
    step = the_library().stem.removeprefix("libattention_")
    done = run("attention_peers", "--step", step, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_library_tells_its_variants_and_refuses_by_name():
    library = peers.Library(the_library())
    about = library.describe()
    assert about["default"] in [variant["name"] for variant in about["variants"]]
    for name, dtype, heads, reason in [
        ("nothing", "fp32", 1, "has no variant 'nothing'"),
        (about["default"], "fp8", 1, "'fp8', which is none of"),
        (about["default"], "fp32", 0, "heads"),
    ]:
        problem = peers.problem_at((1, heads, 16, 32), dtype)
        with pytest.raises(peers.Refused, match=reason), library.variant(name, problem):
            pass


def test_a_library_has_one_of_the_two_passes():
    found = {path.stem: path for path in LIBRARIES}
    if not {"libattention_05_flash_v2", "libattention_06_backward"} <= set(found):
        pytest.skip(f"{BIN.parent}/lib does not hold both")
    problem = peers.problem_at((1, 1, 16, 32), "fp16")
    for step, gradients, pass_ in [("05_flash_v2", peers.Gradients(), "backward"), ("06_backward", None, "forward")]:
        library = peers.Library(found[f"libattention_{step}"])
        with pytest.raises(peers.Refused, match=f"{step} has no {pass_} pass"), library.variant("tuned", problem, gradients):
            pass


# ---- the check of the outputs, where PyTorch is ----


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_honest_outputs_are_right_and_broken_ones_are_not(dtype, causal):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    dtype = getattr(torch, dtype)
    q, k, v = (torch.randn(2, 3, 300, 64).to(dtype) for _ in range(3))
    truth = attention_peers.Truth(torch, q, k, v, causal, peers.sampled_rows(300, 1))
    scores = q.float() @ k.float().mT / 8
    if causal:
        scores = scores.masked_fill(torch.ones(300, 300).triu(1).bool(), -torch.inf)
    o, lse = (scores.softmax(-1) @ v.float()).to(dtype), scores.logsumexp(-1)
    assert truth.worst_ratio(o, lse) < 1

    def broken(change):
        changed = o.clone(), lse.clone()
        change(*changed)
        return truth.worst_ratio(*changed)

    assert broken(lambda o, lse: o[1, 2, 150].fill_(torch.nan)) == torch.inf  # in any row
    assert broken(lambda o, lse: o.zero_()) > 1
    assert broken(lambda o, lse: o[0, 0, -1].mul_(1.1)) > 1
    assert broken(lambda o, lse: o[:, :, :2].copy_(o[:, :, :2].flip(2))) > 1
    assert broken(lambda o, lse: lse.mul_(1.4427)) > 1  # in log2
    assert broken(lambda o, lse: lse[:, :, -1].add_(0.01)) > 1


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_honest_gradients_are_right_and_broken_ones_are_not(dtype, causal, monkeypatch):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    dtype = getattr(torch, dtype)
    q, k, v, d_o = (torch.randn(2, 3, 200, 64).to(dtype) for _ in range(4))
    monkeypatch.setattr(backward_peers, "SCORES", 4 * 200**2)  # two parts
    truth = backward_peers.Truth(torch, q, k, v, d_o, causal, peers.sampled_rows(200, 1))
    leaves = [x.float().requires_grad_() for x in (q, k, v)]
    o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    gradients = [x.to(dtype) for x in torch.autograd.grad(o, leaves, d_o.float())]
    assert truth.worst_ratio(*gradients) < 1

    def broken(change):
        changed = [x.clone() for x in gradients]
        change(*changed)
        return truth.worst_ratio(*changed)

    assert broken(lambda dq, dk, dv: dk[1, 2, 150].fill_(torch.nan)) == torch.inf  # in any row
    assert broken(lambda dq, dk, dv: dq.mul_(8)) > 1  # without the scale
    assert broken(lambda dq, dk, dv: dk.zero_()) > 1
    assert broken(lambda dq, dk, dv: dv[0, 0, -1].mul_(1.5)) > 1
    assert broken(lambda dq, dk, dv: dq[:, :, 2:4].copy_(dq[:, :, 2:4].flip(2))) > 1

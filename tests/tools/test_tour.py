"""The tour's truth, and what it makes of a step's report. `make tour` itself runs in CI."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools.measure import layers, tour
from tools.measure.shapes import FIXED

TOY = Path(__file__).with_name("toy_step")
MASKED_STEP = "07_block_sparse"
NAMES = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")


@pytest.fixture(scope="module")
def layer():
    return layers.Layer()


def test_the_truth_of_the_attention_gives_the_models_own_output(layer):
    weight, bias = (np.load(layers.LAYER / f"out_proj_{name}.npy").astype(np.float64) for name in ("weight", "bias"))
    y = layer.o.transpose(1, 0, 2).reshape(len(layer.x), -1) @ weight.T + bias
    assert np.abs(y - layer.y).max() <= 1e-5 * np.abs(layer.y).max()


def test_each_step_of_the_ladder_is_a_stop_with_inputs_that_give_its_truth(layer):
    stops = {stop.step: stop for stop in tour.stops(layer) if stop.inputs}
    assert [name[:2] for name in stops] == ["01", "02", "03", "04", "05", "06", "07", "08", "09"]
    product = stops["02_tiled_gemm"]
    np.testing.assert_allclose(product.inputs["a"] @ product.inputs["b"].T, product.truth["c"])
    few = [stop for stop in tour.stops(layer) if stop.step == "08_few_tokens"]
    assert [stop.tokens(layer) for stop in few] == [1, 7, 16] and len({tour.folder_of(stop) for stop in few}) == 3
    for stop in few:
        np.testing.assert_allclose(stop.inputs["a"] @ stop.inputs["b"].T + stop.inputs["bias"], stop.truth["c"])
    last = stops["09_decoding"]
    np.testing.assert_allclose(last.truth["o"][:, -1], layer.o[:, -1], atol=1e-14)  # the last token sees all
    assert last.inputs["q"].shape[1] == 7 and np.abs(last.truth["o"] - layer.o[:, -7:]).max() > 1e-4
    softmax = stops["03_online_softmax"]
    powers = np.exp(softmax.inputs["x"])
    np.testing.assert_allclose(powers / powers.sum(-1, keepdims=True), softmax.truth["y"], atol=1e-14)
    assert softmax.truth["y"].shape == (12 * 207, 207)


def test_a_step_joins_the_tour_by_its_own_folder_alone(layer, tmp_path):
    shutil.copytree(tour.ROOT / "tests" / "steps", tmp_path / "tests" / "steps", ignore=lambda _, names: {name for name in names if "." in name} - {"tour.py"})
    before = [stop.step for stop in tour.stops(layer, tmp_path)]
    assert before == [stop.step for stop in tour.stops(layer)]
    shutil.copytree(TOY / "tests", tmp_path / "tests", dirs_exist_ok=True)
    *others, toy = tour.stops(layer, tmp_path)
    assert [stop.step for stop in others] == before and toy.step == "99_toy"
    np.testing.assert_allclose(toy.truth["y"].sum(-1), 1)
    assert list(tour.programs(tmp_path)) == ["00_first_kernel"]


def stop_of(layer, step):
    return next(stop for stop in tour.stops(layer) if stop.step == step and stop.inputs)


def test_the_gradients_are_the_slopes_of_the_loss(layer):
    stop = stop_of(layer, "06_backward")
    weight, bias = (np.load(layers.LAYER / f"out_proj_{name}.npy").astype(np.float64) for name in ("weight", "bias"))

    def loss_from_o(o):
        y = o.transpose(1, 0, 2).reshape(len(layer.x), -1) @ weight.T + bias
        return ((y[:-1] - layer.x[1:]) ** 2).sum() / 2

    def loss(q, k, v):
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(32)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return loss_from_o(powers / powers.sum(-1, keepdims=True) @ v)

    def slope(function, at, way):
        return (function(at + 1e-5 * way) - function(at - 1e-5 * way)) / 2e-5

    q, k, v = (stop.inputs[name] for name in "qkv")
    way = np.random.default_rng(2).standard_normal(q.shape)
    for gradient, function, at in (
        (stop.inputs["do"], loss_from_o, layer.o),
        (stop.truth["dq"], lambda some: loss(some, k, v), q),
        (stop.truth["dk"], lambda some: loss(q, some, v), k),
        (stop.truth["dv"], lambda some: loss(q, k, some), v),
    ):
        np.testing.assert_allclose((gradient * way).sum(), slope(function, at, way), rtol=1e-6)
    part = stop.shorter(stop)
    assert part.part == "3 of 12 heads" and {name: len(values) for name, values in part.inputs.items()} == dict.fromkeys(["q", "k", "v", "do"], 3)
    for name in ("dq", "dk", "dv"):
        np.testing.assert_array_equal(part.truth[name], stop.truth[name][:3])


def test_the_masked_attention_and_its_gradients_are_those_of_the_stored_mask(layer):
    forward, backward = (stop for stop in tour.stops(layer) if stop.step == MASKED_STEP)
    q, k, v = (forward.inputs[name] for name in "qkv")
    blocks = np.load(layers.LONG_LAYER / "block_mask.npy")[0]
    types = np.load(layers.LONG_LAYER / "head_type.npy")
    assert set(types) == {0, 1} and not blocks[types == 1].all(axis=(1, 2)).any() and forward.tokens(layer) == 512

    def output(q, k, v):
        powers = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(32))
        for head, query_block, key_block in zip(*np.nonzero(~blocks & (types == 1)[:, None, None])):
            powers[head, 128 * query_block : 128 * (query_block + 1), 128 * key_block : 128 * (key_block + 1)] = 0
        return powers / powers.sum(-1, keepdims=True) @ v

    np.testing.assert_allclose(forward.truth["o"], output(q, k, v), atol=1e-13)
    np.testing.assert_array_equal(backward.inputs["do"], forward.truth["o"])
    way = np.random.default_rng(3).standard_normal(q.shape)
    loss = lambda q, k, v: (output(q, k, v) ** 2).sum() / 2
    for name, changed in (("dq", lambda e: (q + e * way, k, v)), ("dk", lambda e: (q, k + e * way, v)), ("dv", lambda e: (q, k, v + e * way))):
        slope = (loss(*changed(1e-5)) - loss(*changed(-1e-5))) / 2e-5
        np.testing.assert_allclose((backward.truth[name] * way).sum(), slope, rtol=1e-6)


def check_layer(folder):
    done = subprocess.run([sys.executable, layers.LAYER / "make.py", "--check", "--out", folder], check=False, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_the_stored_layer_passes_its_own_check_and_a_spoiled_gradient_does_not(tmp_path):
    assert check_layer(layers.LAYER) == (0, "")
    shutil.copytree(layers.LAYER, tmp_path, dirs_exist_ok=True)
    for name, spoil in (("do", lambda x: x[:, :, ::-1]), ("dk", lambda x: x * np.float32(32**0.5)), ("dv", lambda x: np.where(x == x.max(), np.nan, x))):
        right = np.load(tmp_path / f"{name}.npy")
        np.save(tmp_path / f"{name}.npy", np.ascontiguousarray(spoil(right), "<f4"))
        assert check_layer(tmp_path) == (1, f"error: {name}: not the gradient of the loss, rounded to float32\n")
        np.save(tmp_path / f"{name}.npy", right)
    (tmp_path / "dq.npy").unlink()
    status, message = check_layer(tmp_path)
    assert status == 1 and "dq.npy" in message


def test_a_part_of_the_attention_is_the_first_heads_of_the_real_one(layer):
    whole = stop_of(layer, "04_flash_v1")
    part = whole.shorter(whole)
    assert part.part == "3 of 12 heads"
    for name in "qkv":
        np.testing.assert_array_equal(part.inputs[name], getattr(layer, name)[:3])
    np.testing.assert_array_equal(part.truth["o"], layer.o[:3])
    scores = part.inputs["q"] @ part.inputs["k"].transpose(0, 2, 1) / np.sqrt(32)
    powers = np.exp(scores)
    np.testing.assert_allclose(powers / powers.sum(-1, keepdims=True) @ part.inputs["v"], part.truth["o"], atol=1e-14)


def test_a_part_of_the_product_is_its_first_columns(layer):
    whole = stop_of(layer, "02_tiled_gemm")
    part = whole.shorter(whole)
    assert part.part == "288 of 1152 columns"
    np.testing.assert_array_equal(part.inputs["a"], whole.inputs["a"])
    np.testing.assert_array_equal(part.inputs["b"], whole.inputs["b"][:288])
    np.testing.assert_array_equal(part.truth["c"], whole.truth["c"][:, :288])
    np.testing.assert_allclose(part.inputs["a"] @ part.inputs["b"].T, part.truth["c"])


def test_in_the_simulator_each_variant_runs_by_itself_the_long_ones_on_the_part(layer):
    jobs = tour.jobs_of(stop_of(layer, "05_flash_v2"), ["scalar", "tuned", "your_own"])
    assert [(job.variant, job.part, len(job.truth["o"])) for job in jobs] == [
        ("scalar", "3 of 12 heads", 3),
        ("tuned", "whole", 12),
        ("your_own", "whole", 12),
    ]
    assert all(job.part == "whole" for job in tour.jobs_of(stop_of(layer, "03_online_softmax"), ["online", "in_turns"]))


def test_the_variants_called_long_exist(layer):
    tool = tour.ROOT / "tools" / "learn" / "single.py"
    listed = subprocess.run([sys.executable, tool, "--list"], capture_output=True, text=True, check=True).stdout
    there_are = {tuple(line.split()) for line in listed.splitlines()}
    called = {(stop.step, name) for stop in tour.stops(layer) for name in stop.long}
    assert called and called <= there_are


STEP = """#!/usr/bin/env python3
import json, pathlib, sys
path = pathlib.Path(sys.argv[sys.argv.index("--json") + 1])
path.write_text(json.dumps({"asked": sys.argv[1:], "results": [], "skipped": []}))
"""


def test_a_run_is_given_the_part_and_one_worker_and_on_a_gpu_the_whole(tmp_path, monkeypatch, layer):
    monkeypatch.setattr(tour, "OUT", tmp_path / "out")
    binary = tmp_path / "05_flash_v2"
    binary.write_text(STEP)
    binary.chmod(0o755)
    whole = stop_of(layer, "05_flash_v2")
    (job,) = tour.jobs_of(whole, ["scalar"])
    asked = tour.run_stop(binary, job, on_gpu=False)["asked"]
    assert asked[asked.index("--variant") + 1] == "scalar" and asked[asked.index("--sim-workers") + 1] == "1" and "--counters" in asked
    given = np.load(f"{asked[asked.index('--input') + 1]}/k.npy")
    np.testing.assert_array_equal(given, layer.k[None, :3].astype(np.float16))
    asked = tour.run_stop(binary, whole, on_gpu=True)["asked"]
    assert asked[asked.index("--variant") + 1] == "all" and "--bench" in asked and "--sim-workers" not in asked
    given = np.load(f"{asked[asked.index('--input') + 1]}/k.npy")
    np.testing.assert_array_equal(given, layer.k[None].astype(np.float16))


def test_a_run_under_a_mask_is_given_the_mask_as_it_is_and_asks_on_one_row_first(tmp_path, monkeypatch, layer):
    monkeypatch.setattr(tour, "OUT", tmp_path / "out")
    binary = tmp_path / MASKED_STEP
    binary.write_text(STEP)
    binary.chmod(0o755)
    forward, backward = (stop for stop in tour.stops(layer) if stop.step == MASKED_STEP)
    for stop in (forward, backward):
        asked = tour.run_stop(binary, stop, on_gpu=False)["asked"]
        assert ("--backward" in asked) == (stop is backward)
        folder = asked[asked.index("--input") + 1]
        for name, values in stop.mask.items():
            given = np.load(f"{folder}/{name}.npy")
            np.testing.assert_array_equal(given, values)
            assert given.dtype == values.dtype
    assert tour.variants_of(binary, backward) == ([], [])
    assert {path.name: np.load(path).shape for path in (tour.folder_of(backward) / "input").iterdir()} == {
        **dict.fromkeys(["q.npy", "k.npy", "v.npy", "do.npy"], (1, 12, 1, 32)),
        "block_mask.npy": (1, 12, 1, 1),
        "head_type.npy": (12,),
    }


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A stop whose only variant wrote what it should, and its report; call with changes of either."""
    monkeypatch.setattr(tour, "OUT", tmp_path)
    truth = np.array([[1.0, -4.0]])

    def make(written=truth, backend="sim", name="FlashSteps simulator", part="whole", gradients=None, note="", counts=None, **changes):
        files = gradients or {"y": written}  # as they were written
        stop = layers.Stop("09_some", "its product", {"x": truth}, [], dict.fromkeys(files, truth), part=part, note=note)
        folder = tmp_path / "09_some" / "_".join(files) / "fast"
        folder.mkdir(parents=True, exist_ok=True)
        for file, values in files.items():
            np.save(folder / f"{file}.npy", np.asarray(values, np.float32))
        kernel = {"kernel": "k", "flops": 0.0, "bytes_read": 3e6, "bytes_written": 1.25e6}
        result = {
            "variant": "fast",
            "problem": {"dtype": "fp32"},
            "verdict": {"pass": True, "tensors": [{"worst_ratio": 0.25}, {"worst_ratio": 0.5}]},
            "times_ms": {"median": 0.002} if backend == "gpu" else None,
            "host_seconds": None if backend == "gpu" else 1.5,
            "kernels": [kernel],
            "counters": [{"kernel": "k", "exact": dict(zip(NAMES, [130, 100, 1000])), "estimate": {}, "at_least": {}, "lines": []}],
            "findings": [],
            **changes,
        }
        report = {"backend": backend, "device": {"name": name}, "results": [result], "skipped": []}
        (row,) = tour.rows_of(stop, report, counts or tour.counted(stop, report, backend == "gpu"))
        return row

    return make


def test_a_row_says_what_was_predicted_what_was_counted_and_how_right_it_is(ran):
    assert ran().cells() == {
        "step": "09_some",
        "variant": "fast",
        "input": "whole",
        "kernels": 1,
        "MB predicted": "4.25",
        "MB asked for": "0.03",
        "B asked for / output": "16,000.0",  # the tensor has two numbers
        "bank conflicts": "30",
        "conflicts / output": "15.00",
        "GPU time, µs": "-",
        "H200 time, µs": "-",
        "of the roof": "-",
        "host time, s": "1.50",
        "error / allowed": "0.50",
        "off the model": "0.0e+00",
        "verdict": "ok",
    }


def test_a_row_of_gradients_says_how_far_each_of_them_is_off(ran):
    right, wrong = [[1.0, -4.0]], [[1.0, -2.0]]
    row = ran(gradients={"dq": right, "dk": right, "dv": right})
    assert (row.outputs, row.ok) == (6, True)
    for name in ("dq", "dk", "dv"):
        row = ran(gradients={"dq": right, "dk": right, "dv": right} | {name: wrong})
        assert row.cells()["off the model"] == "dq 0.0e+00 dk 0.0e+00 dv 0.0e+00".replace(f"{name} 0.0e+00", f"{name} 5.0e-01")
        assert not row.ok


def test_each_note_of_a_stop_stands_once_below_the_table_and_in_the_steps_order(ran, layer):
    rows = [ran(note="of gradients"), ran(part="3 of 12 heads", note="of gradients"), ran(note="of a mask"), ran()]
    assert tour.note_on(rows) == f"{tour.NOTE} of gradients of a mask" and tour.note_on(rows[3:]) == ""
    notes = {stop.step: stop.note for stop in tour.stops(layer) if stop.note}
    assert list(notes) == ["06_backward", MASKED_STEP, "09_decoding"]
    assert "PyTorch" in notes["06_backward"] and "mask" in notes[MASKED_STEP]


def test_on_a_gpu_there_are_times_and_no_counts_that_nobody_stored(ran):
    cells = ran(backend="gpu", name="NVIDIA H200").cells()
    assert (cells["GPU time, µs"], cells["of the roof"], cells["host time, s"]) == ("2", "50.0 %", "-")  # 4.25 MB at 4.25 TB/s
    assert (cells["MB asked for"], cells["bank conflicts"]) == ("-", "-")
    assert ran(backend="gpu", name="another").cells()["of the roof"] == "-"


def test_counts_on_a_gpu_that_were_stored_name_the_device_that_was_counted_on(ran):
    row = ran(backend="gpu", name="NVIDIA H100", counts={"fast": (2e6, 5)})
    assert (row.cells()["MB asked for"], row.cells()["bank conflicts"]) == ("2.00", "5")
    assert "Nsight Compute on an NVIDIA H200 (results/h200)" in tour.note_on([row])
    assert tour.note_on([ran(), ran(backend="gpu")]) == ""  # counted here; nowhere


def test_times_of_the_gpu_and_of_the_host_never_share_a_column(ran):
    simulated, measured = ran(), ran(backend="gpu", name="NVIDIA H200")
    both = tour.table_of([simulated, measured])
    assert [row["GPU time, µs"] for row in both] == ["-", "2"]
    assert [row["host time, s"] for row in both] == ["1.50", "-"]
    assert "GPU time, µs" not in tour.table_of([simulated])[0]
    assert "host time, s" not in tour.table_of([measured])[0]
    for table in (tour.as_text(both).splitlines()[2:], tour.as_html(both).split("<tr>")[2:]):
        assert "1.50" in table[0] and "1.50" not in table[1]


def test_table_report_and_picture_say_what_ran_on_a_part(ran, layer, monkeypatch):
    rows = [ran(), ran(part="3 of 12 heads")]
    table = tour.table_of(rows)
    assert [row["input"] for row in table] == ["whole", "3 of 12 heads"]
    assert "3 of 12 heads" in tour.as_text(table)
    note = tour.note_on(rows)
    assert "not scaled" in note and tour.note_on(rows[:1]) == ""
    labels = []
    monkeypatch.setattr(tour.plt.Axes, "set_yticks", lambda axes, places, names=(), **rest: labels.extend(names))
    tour.draw(rows, layer, None)
    assert labels == ["09 fast", "09 fast (3 of 12 heads)"]
    tour.write_report(rows, "the simulator", layer, note)
    page = (tour.OUT / "report.html").read_text()
    assert "<td>3 of 12 heads</td>" in page and "not scaled" in page


# ---- the report's story ----


def test_every_step_has_a_chapter_with_its_pages_title_and_question_and_a_short_paragraph():
    told = tour.story()
    steps = sorted(path.name for path in (tour.ROOT / "steps").glob("[0-9][0-9]_*"))
    assert list(told) == [step[:2] for step in steps]
    for step in steps:
        chapter, page = told[step[:2]], (tour.ROOT / "docs" / f"{step}.md").read_text()
        assert page.startswith(f"# {chapter.title}\n") and chapter.question.endswith("?")
        assert f"]({step}.md)" in chapter.idea and "\n\n" not in chapter.idea and 40 < len(chapter.idea.split()) < 120


def test_the_report_tells_the_steps_in_order_with_their_questions_ideas_and_counts(ran, layer):
    rows = [ran(), ran(part="3 of 12 heads")]
    rows = [tour.replace(row, step="05_flash_v2", variant=name, requested=asked) for row, name, asked in zip(rows, ["scalar", "tuned"], [80, 20])]
    tour.draw(rows, layer, None)
    tour.write_report([tour.replace(rows[0], step="99_new"), *rows], "the simulator", layer, "a note", {"00_first_kernel": "add: 3 elements & 0 wrong\n"})
    page = (tour.OUT / "report.html").read_text()
    told = tour.story()
    texts = ["<h2>00 · A first kernel</h2>", told["00"].question, "<pre>add: 3 elements &amp; 0 wrong\n</pre>", "<h2>99_new</h2>", "<td>scalar</td>"]
    texts += ["<h2>05 · FlashAttention-2, forward</h2>", told["05"].question, 'href="../../docs/05_flash_v2.md"', "<td>tuned</td>", "a note"]
    places = [page.index(text) for text in texts]
    assert places == sorted(places)
    assert "For each number of <code>y</code>, <code>scalar</code> asked global memory for 40.0 bytes, and <code>tuned</code> asked for 10.0 bytes." in page


def test_counts_are_told_of_each_result_of_a_step_and_only_where_something_was_counted(ran):
    forward, backward = ran(), ran(gradients={"dq": [[1.0, -4.0]], "dk": [[1.0, -4.0]]})
    named = lambda row, name, asked: tour.replace(row, variant=name, requested=asked)
    assert tour.said_of_counts([forward, named(forward, "b", None)]) == ""
    said = tour.said_of_counts([named(forward, "a", 2), named(forward, "b", 4), named(backward, "c", 8), named(backward, "d", 4)])
    assert said == (
        "For each number of `y`, `a` asked global memory for 1.0 bytes, and no variant asked for fewer. "
        "For each number of `dq` and `dk`, `c` asked global memory for 2.0 bytes, and `d` asked for 1.0 bytes."
    )


def test_without_a_gpu_the_committed_times_of_an_h200_stand_beside_the_counts(ran, layer, monkeypatch):
    problem = {"family": "softmax", "rows": 8, "cols": 9, "dtype": "fp16"}
    report = {"results": [{"variant": "fast", "problem": problem, "verdict": {"pass": True}, "times_ms": {"median": 0.25}}]}
    monkeypatch.setattr(tour, "committed", lambda: {("09_some", "tour"): report, ("09_some", "4k"): report})
    monkeypatch.setitem(tour.SHOWN_AT, "09_some", ["tour", "4k"])
    row = ran()
    assert row.cells()["H200 time, µs"] == "250" and row.cells()["GPU time, µs"] == "-"
    assert "not measured on this machine" in tour.note_on([row])
    assert tour.table_of_step("09_some", [row])[0]["H200 time, 8 × 9, fp16"] == "250 µs"
    measured = ran(backend="gpu", name="NVIDIA H200")
    assert measured.cells()["H200 time, µs"] == "-" and tour.note_on([measured]) == ""
    assert not [column for column in tour.table_of_step("09_some", [measured])[0] if "H200" in column]


def test_the_committed_times_are_of_the_tours_problems(layer):
    stops = {stop.step: stop for stop in tour.stops(layer) if stop.inputs and not stop.mask}
    there = {step for step, shape in tour.committed() if shape == "tour"}
    assert there and there <= set(stops)
    for step in there:
        problem = tour.committed()[step, "tour"]["results"][0]["problem"]
        assert problem["dtype"] == stops[step].dtype
        shape = next(iter(stops[step].inputs.values())).shape
        assert shape == tuple(problem[name] for name in (("rows", "cols") if problem["family"] == "softmax" else ("heads", "seq_q", "dim")))


@pytest.mark.parametrize(("status", "right"), [(0, True), (1, False)])
def test_the_program_of_step_00_is_run_and_what_it_printed_is_kept(tmp_path, status, right):
    (name,) = tour.programs()
    binary = tmp_path / name
    binary.write_text(f"#!/bin/sh\necho add: 1; echo simulator: race >&2; exit {status}\n")
    binary.chmod(0o755)
    assert tour.run_program(binary) == (right, "add: 1\nsimulator: race\n")


@pytest.mark.parametrize(
    "change",
    [
        {"written": [[1.0, -4.001]]},
        {"written": [[1.0, np.nan]]},
        {"findings": [{"kind": "race"}]},
        {"verdict": {"pass": False, "tensors": [{"worst_ratio": 1.5}]}},
        {"verdict": {"pass": False, "tensors": [{"worst_ratio": None}]}},
    ],
)
def test_a_wrong_result_fails_the_tour(ran, change):
    assert ran().ok
    assert not ran(**change).ok


def test_the_picture_is_drawn_with_and_without_times(ran, layer):
    lse = np.log(np.exp(layer.scores).sum(-1))
    for row in (ran(), ran(backend="gpu", name="NVIDIA H200"), ran(backend="gpu", name="another")):
        tour.draw([row], layer, lse)
        assert (tour.OUT / "ladder.png").stat().st_size > 10000
        (tour.OUT / "ladder.png").unlink()


def test_stored_counts_are_those_of_the_tours_shape():
    flags = FIXED["02_tiled_gemm"]["tour"]
    shape = np.load(layers.LAYER / "in_proj_weight.npy").shape
    assert flags[: 6] == ["--m", "207", "--n", str(shape[0]), "--k", str(shape[1])]
    heads = json.loads((layers.LAYER / "layer.json").read_text())["heads"]
    assert FIXED["01_naive_mha"]["tour"] == ["--heads", str(heads), "--seq-q", "207", "--dim", str(shape[1] // heads)]

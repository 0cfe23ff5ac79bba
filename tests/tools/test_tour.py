"""The tour's truth, and what it makes of a step's report. `make tour` itself runs in CI."""

import json

import numpy as np
import pytest

from tools.measure import tour

NAMES = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")


@pytest.fixture(scope="module")
def layer():
    return tour.Layer()


def test_the_truth_of_the_attention_gives_the_models_own_output(layer):
    weight, bias = (np.load(tour.LAYER / f"out_proj_{name}.npy").astype(np.float64) for name in ("weight", "bias"))
    y = layer.o.transpose(1, 0, 2).reshape(len(layer.x), -1) @ weight.T + bias
    assert np.abs(y - layer.y).max() <= 1e-5 * np.abs(layer.y).max()


def test_each_step_of_the_ladder_is_a_stop_with_inputs_that_give_its_truth(layer):
    stops = {stop.step: stop for stop in tour.stops(layer) if stop.inputs}
    assert [name[:2] for name in stops] == ["01", "02", "03", "04", "05"]
    product = stops["02_tiled_gemm"]
    np.testing.assert_allclose(product.inputs["a"] @ product.inputs["b"].T, product.truth)
    softmax = stops["03_online_softmax"]
    powers = np.exp(softmax.inputs["x"])
    np.testing.assert_allclose(powers / powers.sum(-1, keepdims=True), softmax.truth, atol=1e-14)
    assert softmax.truth.shape == (12 * 207, 207)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A stop whose only variant wrote what it should, and its report; call with changes of either."""
    monkeypatch.setattr(tour, "OUT", tmp_path)
    truth = np.array([[1.0, -4.0]])
    stop = tour.Stop("09_some", "its product", {"x": truth}, [], "y", truth)

    def make(written=truth, backend="sim", name="FlashSteps simulator", **changes):
        folder = tmp_path / "09_some" / "y" / "fast"
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "y.npy", np.asarray(written, np.float32))
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
        (row,) = tour.rows_of(stop, report, tour.counted(stop, report, backend == "gpu"))
        return row

    return make


def test_a_row_says_what_was_predicted_what_was_counted_and_how_right_it_is(ran):
    assert ran().cells() == {
        "step": "09_some",
        "variant": "fast",
        "kernels": 1,
        "MB predicted": "4.25",
        "MB asked for": "0.03",
        "bank conflicts": "30",
        "GPU time, µs": "-",
        "of the roof": "-",
        "host time, s": "1.50",
        "error / allowed": "0.50",
        "off the model": "0.0e+00",
        "verdict": "ok",
    }


def test_on_a_gpu_there_are_times_and_no_counts_that_nobody_stored(ran):
    cells = ran(backend="gpu", name="NVIDIA H200").cells()
    assert (cells["GPU time, µs"], cells["of the roof"], cells["host time, s"]) == ("2", "50.0 %", "-")  # 4.25 MB at 4.25 TB/s
    assert (cells["MB asked for"], cells["bank conflicts"]) == ("-", "-")
    assert ran(backend="gpu", name="another").cells()["of the roof"] == "-"


def test_times_of_the_gpu_and_of_the_host_never_share_a_column(ran):
    simulated, measured = ran(), ran(backend="gpu", name="NVIDIA H200")
    both = tour.table_of([simulated, measured])
    assert [row["GPU time, µs"] for row in both] == ["-", "2"]
    assert [row["host time, s"] for row in both] == ["1.50", "-"]
    assert "GPU time, µs" not in tour.table_of([simulated])[0]
    assert "host time, s" not in tour.table_of([measured])[0]
    for table in (tour.as_text(both).splitlines()[2:], tour.as_html(both).split("<tr>")[2:]):
        assert "1.50" in table[0] and "1.50" not in table[1]


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
    flags = tour.FIXED["02_tiled_gemm"]["tour"]
    shape = np.load(tour.LAYER / "in_proj_weight.npy").shape
    assert flags[: 6] == ["--m", "207", "--n", str(shape[0]), "--k", str(shape[1])]
    heads = json.loads((tour.LAYER / "layer.json").read_text())["heads"]
    assert tour.FIXED["01_naive_mha"]["tour"] == ["--heads", str(heads), "--seq-q", "207", "--dim", str(shape[1] // heads)]

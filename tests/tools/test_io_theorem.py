"""What attention asks of memory is what the formulas say: for flash v1 and v2 within 1 %, over lengths, head dims and block sizes."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from conftest import BIN, ROOT

from tools.learn import io_counts
from tools.learn.io_counts import MEMORIES, STANDARD, V1, V2, Point

COMMITTED = json.loads((ROOT / "results" / "sim" / "io_theorem.json").read_text())["points"]
V1_POINTS = [Point(V1, n, d, kib) for n, d, kib in ((256, 64, 48), (320, 64, 227), (256, 32, 99), (128, 128, 227), (240, 64, 99))]


def about(point):
    return " ".join(str(value) for value in asdict(point).values() if value)


@pytest.mark.parametrize("point", V1_POINTS, ids=about)
def test_the_counted_bytes_of_flash_v1_are_those_of_the_formula(point):
    assert io_counts.counted(point, BIN.parent) == pytest.approx(io_counts.predicted(point), rel=0.01)


def test_the_counted_bytes_of_flash_v2_are_those_of_the_formula():
    point = Point(V2, 256, 128)
    assert io_counts.counted(point, BIN.parent) == pytest.approx(io_counts.predicted(point), rel=0.01)


def test_the_committed_counts_are_the_sweep_and_within_one_percent_of_the_formulas():
    points = io_counts.points()
    assert [Point(row["algorithm"], row["n"], row["d"], row["kib"]) for row in COMMITTED] == points
    for point, row in zip(points, COMMITTED):
        assert row["predicted"] == io_counts.predicted(point)
        assert row["counted"] == pytest.approx(row["predicted"], rel=0.01), row
    assert {point.algorithm for point in points} == {STANDARD, V1, V2}


@pytest.mark.parametrize("algorithm", [STANDARD, V2])
def test_the_committed_counts_are_what_the_kernels_do_today(algorithm):
    row = next(row for row in COMMITTED if row["algorithm"] == algorithm)
    assert io_counts.counted(Point(algorithm, row["n"], row["d"]), BIN.parent) == row["counted"]


@pytest.mark.parametrize("kib", MEMORIES)
@pytest.mark.parametrize("dim", [32, 64, 128, 256])
def test_the_formula_knows_the_block_sizes_of_the_kernels(tmp_path, kib, dim):
    """The executable predicts the same bytes: from the sizes of its own structs."""
    report = tmp_path / "report.json"
    flags = ["--variant", MEMORIES[kib], "--heads", "1", "--seq-q", "64", "--dim", dim, "--dtype", "fp16", "--no-check", "--json", report]
    subprocess.run([str(part) for part in [BIN / "04_flash_v1", *flags]], check=True, capture_output=True, cwd=ROOT)
    (result,) = json.loads(Path(report).read_text())["results"]
    kernel = next(kernel for kernel in result["kernels"] if kernel["kernel"] == "algorithm_1")
    assert kernel["bytes_read"] + kernel["bytes_written"] == io_counts.v1_bytes(64, dim, kib)


def test_less_shared_memory_means_more_bytes_and_less_than_needed_more_than_standard_attention():
    counted = {(row["algorithm"], row["kib"]): row["counted"] for row in COMMITTED if (row["n"], row["d"]) == (1024, 64)}
    assert counted[V1, 48] > counted[V1, 99] > counted[V1, 227]
    assert counted[V1, 48] > counted[STANDARD, None] > counted[V1, 227]

"""The simulator counts what Nsight Compute counts: on the committed measurements, to the digit."""

import json
import shutil

import pytest
from conftest import BIN, ROOT

from tools.measure import parity
from tools.measure.profiling.machine import DEVICES

MEASURED = ROOT / "results" / DEVICES[0]


@pytest.fixture
def measured(step):
    """The folder with the step's measurements."""
    folder = parity.results_of(step)
    if not (folder / f"ncu_{step}.csv").is_file():
        pytest.skip(f"{step} was not measured yet: make gpu-check STEP={step[:2]}")
    return folder


@pytest.mark.parametrize("step", parity.SHAPES)
def test_every_exact_metric_equals_nsight_computes_at_the_smallest_and_the_ragged_shape(step, measured, capsys):
    chosen = [shape for shape in parity.SHAPES[step] if shape.split(",")[0] in ("smallest", "ragged", "all")]  # "smallest, backward", too
    counts = parity.compare_step(step, measured, BIN.parent, chosen)
    print(capsys.readouterr().out)  # shown if the test fails
    assert counts["compared"] > 0
    assert counts["different"] == 0


@pytest.mark.long
@pytest.mark.parametrize("step", parity.SHAPES)
def test_every_exact_metric_equals_nsight_computes(step, measured, capsys):
    counts = parity.compare_step(step, measured, BIN.parent)
    print(capsys.readouterr().out)  # shown if the test fails
    assert counts["different"] == 0
    known = json.loads((measured / "parity.json").read_text())[step]
    assert counts == known, f"tools/measure/parity.py --step {step[:2]} --json results/{measured.name}/parity.json"


def test_a_number_that_differs_is_noticed(tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(MEASURED, folder)
    path = folder / "ncu_calibration.csv"
    lines = path.read_text().splitlines()
    column = next(line for line in lines if line.startswith('"ID"')).split('","').index("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    at = next(i for i, line in enumerate(lines) if "global_load(" in line)
    cells = lines[at].split('","')
    cells[column] = str(int(cells[column]) + 1)
    lines[at] = '","'.join(cells)
    path.write_text("\n".join(lines) + "\n")
    assert parity.compare_step("calibration", folder, BIN.parent)["different"] == 1


def test_kernels_that_were_not_measured_are_refused(tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(MEASURED, folder)
    path = folder / "ncu_calibration.csv"
    path.write_text(path.read_text().replace("global_load(", "another_kernel(", 1))
    with pytest.raises(SystemExit, match="measure again"):
        parity.compare_step("calibration", folder, BIN.parent)

"""A step is added without a change to any file that is there: tests/tools/toy_step is laid over a copy of the project. A family of problems
is added with two lines in one file that is there: tests/tools/toy_family.

What builds the step and all that it needs, from nothing, is run by `make test-all` alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from conftest import ROOT, SCHEMA

from tools.machine_code import sass_code

TOY = Path(__file__).with_name("toy_step")
FAMILY = Path(__file__).with_name("toy_family")
ANY_STEP = "common/run/family/any_step.h"
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def run(*words, cwd, status=0):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{' '.join(map(str, words))}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"
    return done.stdout + done.stderr


def toy_files(toy=TOY):
    return [path.relative_to(toy) for path in sorted(toy.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def test_the_toy_step_lies_where_contributing_says():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## Add a step") :].split("\n## ")[0]
    places = set(re.findall(r"- `((?:steps|tests/steps)/NN_name/)`", section))
    assert {str(path.parent).replace("99_toy", "NN_name") + "/" for path in toy_files()} == places == {"steps/NN_name/", "tests/steps/NN_name/"}
    assert not [path for toy in (TOY, FAMILY) for path in toy_files(toy) if (ROOT / path).exists()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The project with the toy step, and with the toy family and its step. Of the project's files one is another, by two lines."""
    tree = tmp_path_factory.mktemp("copy") / "FlashSteps"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file() and not name.startswith(("results/", "docs/images/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    os.symlink(ROOT / ".venv", tree / ".venv")
    for toy in (TOY, FAMILY):
        for path in toy_files(toy):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(toy / path, tree / path)
    families = (ROOT / ANY_STEP).read_text()
    softmax, last = '#include "common/run/family/softmax.h"\n', "const BackwardStep*>"
    assert families.count(softmax) == families.count(last) == 1
    families = families.replace(softmax, softmax + softmax.replace("softmax", "gather"))
    (tree / ANY_STEP).write_text(families.replace(last, "const BackwardStep*, const GatherStep*>"))
    return tree


def build(tree, preset, *targets):
    run("cmake", "--preset", preset, "-DCMAKE_BUILD_TYPE=Debug", cwd=tree)  # which compiles faster
    run("cmake", "--build", tree / "build" / preset, "--parallel", "2", "--target", *targets, cwd=tree)


@pytest.mark.long
def test_a_step_is_added_by_its_folder_alone(copy):
    build(copy, "sim", "99_toy", "test_99_toy")
    step = copy / "build" / "sim" / "bin" / "99_toy"
    listed = run(step, "--list", cwd=copy)
    assert "hopper: a kernel that is compiled for sm_90a alone" in listed
    assert "needs compute capability 9.0 alone" in listed and "needs compute capability 8.0," in listed

    report_file = copy / "report.json"
    run(step, "--variant", "all", "--counters", "--rows", "67", "--cols", "45", "--json", report_file, cwd=copy)
    report = json.loads(report_file.read_text())
    jsonschema.validate(report, SCHEMA)
    assert [result["variant"] for result in report["results"]] == ["row_per_thread", "hopper", "borrowed"]
    assert all(result["verdict"]["pass"] for result in report["results"])
    assert [array["name"] for array in report["results"][0]["arrays"]] == ["x", "y"]

    tests = run("ctest", "--preset", "sim", "--show-only=json-v1", cwd=copy)
    entries = {test["name"]: test for test in json.loads(tests)["tests"]}
    labels = next(p["value"] for p in entries["99_toy"]["properties"] if p["name"] == "LABELS")
    assert labels == ["99_toy"]
    run(copy / "build" / "sim" / "tests" / "test_99_toy", cwd=copy)

    python = [sys.executable]
    assert "1_row_per_thread.cuh" in run(*python, "tools/mutate/mutate.py", "--step", "99", "--list", cwd=copy)
    assert "caught" in run(*python, "tools/mutate/mutate.py", "--step", "99", "--only", "row >= [[rows]]", cwd=copy)
    assert "row_per_thread" in run(*python, "tools/measure/profile_step.py", "--step", "99", cwd=copy)
    told = run(*python, "tools/measure/tour.py", "sim", cwd=copy)
    assert "99_toy: the softmax of a head" in told and "hopper" in told and "02_tiled_gemm" not in told  # which is not built
    assert "<h2>99_toy</h2>" in (copy / "build" / "tour" / "report.html").read_text()


@pytest.mark.long
def test_a_family_is_added_by_its_files_and_two_lines(copy):
    """Its arrays have four types; ids come from a file and go to one, and one output has as many entries as the launch says."""
    build(copy, "sim", "98_gather", "test_98_gather")
    run(copy / "build" / "sim" / "tests" / "test_98_gather", cwd=copy)
    step, folder = copy / "build" / "sim" / "bin" / "98_gather", copy / "in"
    random = np.random.default_rng(5)
    x, factors = random.integers(-99, 100, (50, 37)), random.integers(-128, 128, 37)
    for dtype in (np.int32, np.int64):
        ids = random.integers(0, 50, 31).astype(dtype)
        folder.mkdir(exist_ok=True)
        for name, array in {"x": x.astype(np.float16), "factors": factors.astype(np.int8), "ids": ids}.items():
            np.save(folder / f"{name}.npy", array)
        run(step, "--input", folder, "--output", copy / "out", "--counters", "--json", copy / "report.json", cwd=copy)
        outputs = ("y", "taken", "missed_count", "missed", "rest")
        y, taken, count, missed, rest = loaded = [np.load(copy / "out" / f"{name}.npy") for name in outputs]
        assert [array.dtype for array in loaded] == [np.float32, np.int32, np.int32, np.int32, np.float16]
        assert np.array_equal(y, x[ids] * factors)
        assert np.array_equal(taken, np.bincount(ids, minlength=50))
        assert np.array_equal(missed, np.flatnonzero(taken == 0)) and count.tolist() == [len(missed)]
        assert np.array_equal(rest, x[missed])
    arrays = json.loads((copy / "report.json").read_text())["results"][0]["arrays"]
    jsonschema.validate(arrays, {"$ref": "#/$defs/result/properties/arrays", "$defs": SCHEMA["$defs"]})
    assert [array["type"] for array in arrays] == ["fp16", "int8", "int32", "fp32", "int32", "int32", "int32", "fp16"]
    assert arrays[-1]["count"] == "missed_count"

    np.save(folder / "ids.npy", np.array([0, 50], np.int32))
    assert "ids.npy: x.npy has no row 50" in run(step, "--input", folder, cwd=copy, status=2)
    np.save(folder / "factors.npy", factors.astype(np.int32))
    assert "elements of type '<i4'; int8 ('|i1') is needed" in run(step, "--input", folder, cwd=copy, status=2)


@pytest.mark.long
def test_a_kernel_file_is_compiled_for_hopper_alone(copy):
    if not Path(NVCC).exists():
        pytest.skip("no nvcc on this machine")
    build(copy, "gpu", "step_99_toy", "step_99_toy_sm_90a")
    objects = {path.name: path for path in (copy / "build" / "gpu").rglob("*.o") if "99_toy" in path.name or "99_toy" in str(path)}
    assert sass_code.architectures(objects["2_hopper.sm_90a.cu.o"]) == ["sm_90a"]
    assert sass_code.architectures(objects["step.cu.o"]) == ["sm_80", "sm_90"]

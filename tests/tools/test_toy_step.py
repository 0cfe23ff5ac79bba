"""A step is added without a change to any file that is there: tests/tools/toy_step is laid over a copy of the project.

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
import pytest
from conftest import ROOT, SCHEMA

from tools.machine_code import sass_code

TOY = Path(__file__).with_name("toy_step")
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def run(*words, cwd, status=0):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{' '.join(map(str, words))}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"
    return done.stdout + done.stderr


def toy_files():
    return [path.relative_to(TOY) for path in sorted(TOY.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]


def test_the_toy_step_lies_where_contributing_says():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## Add a step") :].split("\n## ")[0]
    places = set(re.findall(r"- `((?:steps|tests/steps)/NN_name/)`", section))
    assert {str(path.parent).replace("99_toy", "NN_name") + "/" for path in toy_files()} == places == {"steps/NN_name/", "tests/steps/NN_name/"}
    assert not [path for path in toy_files() if (ROOT / path).exists()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The project with the toy step; no file of the project is another one."""
    tree = tmp_path_factory.mktemp("copy") / "FlashSteps"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file() and not name.startswith(("results/", "docs/images/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    os.symlink(ROOT / ".venv", tree / ".venv")
    for path in toy_files():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOY / path, tree / path)
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


@pytest.mark.long
def test_a_kernel_file_is_compiled_for_hopper_alone(copy):
    if not Path(NVCC).exists():
        pytest.skip("no nvcc on this machine")
    build(copy, "gpu", "step_99_toy", "step_99_toy_sm_90a")
    objects = {path.name: path for path in (copy / "build" / "gpu").rglob("*.o") if "99_toy" in path.name or "99_toy" in str(path)}
    assert sass_code.architectures(objects["2_hopper.sm_90a.cu.o"]) == ["sm_90a"]
    assert sass_code.architectures(objects["step.cu.o"]) == ["sm_80", "sm_90"]

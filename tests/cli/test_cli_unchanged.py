"""A list of old command lines: each ends as it did when the list was written, with the same outputs to the bit.

command_lines.json was written by the executables as they were before their host side was rebuilt. A change that means to alter a
number writes it anew, and its commit says why:

    .venv/bin/python tests/cli/test_cli_unchanged.py
"""

import ctypes
import ctypes.util
import hashlib
import json
import platform
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from conftest import BIN, ROOT, Step

LIST = Path(__file__).with_name("command_lines.json")
LAYER = "data/minilm_layer"

# DIR is a folder with inputs made here, OUT one for outputs.
LINES = [
    # attention: types, grouped heads, masks, windows, scales, lengths, every variant
    "01_naive_mha",
    "01_naive_mha --variant all --heads 6 --kv-heads 2 --seq-q 37 --seq-k 53 --dim 40 --causal --output OUT",
    "01_naive_mha --variant all --batch 2 --heads 3 --seq-q 9 --dim 1 --seed 7 --output OUT",
    "01_naive_mha --heads 1 --seq-q 40 --seq-k 7 --dim 33 --causal --scale -0.5 --output OUT",
    f"01_naive_mha --layer {LAYER} --output OUT",
    f"01_naive_mha --layer {LAYER} --variant row_per_thread --causal --no-check --output OUT",
    "04_flash_v1 --variant all --heads 6 --kv-heads 2 --seq-q 97 --seq-k 203 --dim 64 --causal --output OUT",
    "04_flash_v1 --variant all --heads 1 --seq-q 65 --dim 96 --dtype bf16 --output OUT",
    "04_flash_v1 --variant wrong_update --seq-q 70 --output OUT",
    "04_flash_v1 --heads 2 --seq-q 33 --dim 7 --dtype fp32 --scale 0 --output OUT",
    "05_flash_v2 --output OUT",
    "05_flash_v2 --variant all --heads 6 --kv-heads 2 --seq-q 97 --seq-k 203 --dim 64 --causal --output OUT",
    "05_flash_v2 --variant all --heads 2 --seq-q 150 --dim 128 --window 40 --dtype bf16 --output OUT",
    "05_flash_v2 --variant all --heads 1 --seq-q 70 --dim 32 --scale -3 --output OUT",
    "05_flash_v2 --variant all --heads 1 --seq-q 20 --dim 96 --scale 0 --output OUT",
    "05_flash_v2 --heads 1 --seq-q 20 --dim 33 --causal --window 9 --output OUT",
    "05_flash_v2 --heads 1 --seq-q 130 --dim 256 --dtype bf16 --causal --output OUT",
    "05_flash_v2 --variant all --heads 1 --seq-q 64 --dim 64 --scale 1e30 --output OUT",
    "05_flash_v2 --input DIR --output OUT",
    "05_flash_v2 --input DIR --variant all --causal --dtype bf16 --output OUT",
    "04_flash_v1 --input DIR --causal --output OUT",
    # products
    "02_tiled_gemm --output OUT",
    "02_tiled_gemm --variant all --m 131 --n 77 --k 88 --output OUT",
    "02_tiled_gemm --variant all --batch 3 --batch-a 1 --m 33 --n 65 --k 40 --lda 48 --ldb 56 --ldc 67 --dtype bf16 --output OUT",
    "02_tiled_gemm --variant all --m 20 --n 30 --k 7 --output OUT",
    "02_tiled_gemm --input DIR --variant all --output OUT",
    # softmaxes
    "03_online_softmax --output OUT",
    "03_online_softmax --variant all --rows 5 --cols 1003 --ldx 1005 --ldy 1013 --output OUT",
    "03_online_softmax --variant all --rows 3 --cols 34567 --dtype fp32 --output OUT",
    "03_online_softmax --variant all --rows 1 --cols 1 --output OUT",
    "03_online_softmax --input DIR --variant all --dtype fp32 --output OUT",
    # other schedules, counters
    "05_flash_v2 --sim-seed 9 --sim-async eager --sim-workers 1 --seq-q 70 --output OUT",
    "02_tiled_gemm --sim-seed 18446744073709551615 --sim-async random --output OUT",
    "05_flash_v2 --variant all --heads 1 --seq-q 64 --dim 32 --counters --output OUT",
    "04_flash_v1 --variant all --heads 1 --seq-q 64 --dim 32 --counters --json OUT/report.json",
    "03_online_softmax --variant all --rows 8 --cols 64 --trace OUT/trace.jsonl",
    # --list
    *(f"{step} --list" for step in ("01_naive_mha", "02_tiled_gemm", "03_online_softmax", "04_flash_v1", "05_flash_v2")),
    "05_flash_v2 --list --dim 200 --dtype bf16",
    # refusals: bad usage, requests that nobody serves, contradictions, files that are not there
    "05_flash_v2 --nonsense",
    "05_flash_v2 --variant nobody",
    "05_flash_v2 --heads 0",
    "05_flash_v2 --heads 3 --kv-heads 2",
    "05_flash_v2 --dim 257",
    "05_flash_v2 --dim 1e3",
    "05_flash_v2 --variant ldmatrix --dim 96 --output OUT",
    "05_flash_v2 --variant all --dim 257 --output OUT",
    "05_flash_v2 --dtype fp8",
    "05_flash_v2 --scale nan",
    "05_flash_v2 --batch 65536",
    "05_flash_v2 --window 0",
    "05_flash_v2 --bench",
    "05_flash_v2 --input DIR --seed 3",
    "05_flash_v2 --input DIR --heads 9",
    "05_flash_v2 --input DIR/nowhere",
    f"05_flash_v2 --layer {LAYER}",
    f"01_naive_mha --layer {LAYER} --window 4",
    f"01_naive_mha --layer {LAYER} --input DIR",
    "01_naive_mha --dtype fp16",
    "01_naive_mha --window 5",
    "05_flash_v2 --sim-async never",
    "05_flash_v2 --counters --json DIR",
    "05_flash_v2 --output DIR/q.npy",
    "05_flash_v2 --seq-q 1073741825",
    "05_flash_v2 --heads 60000 --seq-q 60000 --dim 256",
    "02_tiled_gemm --heads 4",
    "02_tiled_gemm --k 8 --lda 7",
    "02_tiled_gemm --variant swizzle --k 7",
    "02_tiled_gemm --batch 2 --batch-a 3",
    "02_tiled_gemm --dtype fp32",
    "02_tiled_gemm --experts DIR",
    "02_tiled_gemm --m 2000000 --n 2000000",
    "03_online_softmax --dtype bf16",
    "03_online_softmax --variant vectorised --cols 70000",
    "03_online_softmax --rows 0",
    "03_online_softmax --cols 5 --ldx 4",
]  # fmt: skip

# Of these, what takes seconds.
LONG_LINES = [
    "04_flash_v1 --variant all --heads 6 --kv-heads 2 --seq-q 97 --seq-k 203 --dim 64 --causal --output OUT",
    "05_flash_v2 --variant all --heads 6 --kv-heads 2 --seq-q 97 --seq-k 203 --dim 64 --causal --output OUT",
    f"01_naive_mha --layer {LAYER} --output OUT",
]


def arithmetic():
    """What the bits depend on, other than us: the processor's kind and the C library's functions."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    at = np.random.default_rng(5).uniform(-20, 20, 20000)
    digest = hashlib.sha256(platform.machine().encode())
    for name in ("exp", "exp2", "log"):
        for suffix, number, real in (("", ctypes.c_double, np.float64), ("f", ctypes.c_float, np.float32)):
            function = libm[name + suffix]
            function.restype, function.argtypes = number, [number]
            values = np.array([function(float(abs(real(x)) if name == "log" else real(x))) for x in at], real)
            digest.update(values.tobytes())
    return digest.hexdigest()


def make_inputs(folder):
    """q, k, v, a, b and x of small numbers, as float16; with a NaN, an infinity and a zero row where each is a case of its own."""
    random = np.random.default_rng(11)
    for name, shape in {"q": (2, 4, 37, 32), "k": (2, 2, 70, 32), "v": (2, 2, 70, 32), "a": (2, 40, 24), "b": (2, 50, 24),
                        "x": (6, 300)}.items():  # fmt: skip
        array = random.standard_normal(shape).astype(np.float16)
        if name == "v":
            array[0, 0, 69, 3], array[1, 1, 66, 5] = np.nan, np.inf
        if name == "x":
            array[2, 7], array[3], array[4, 1] = np.nan, -np.inf, -np.inf
        np.save(folder / f"{name}.npy", array)


def shown(report):
    """Of --json: what neither the machine nor the clock decides, and what schema 3 had."""
    for result in report["results"]:
        del result["host_seconds"]
        result.pop("arrays", None)
    return {"results": report["results"], "skipped": report["skipped"], "step": report["step"]}


def digest_of(path):
    content = path.read_bytes()
    if path.name == "report.json":
        content = json.dumps(shown(json.loads(content)), sort_keys=True).encode()
    if path.name == "trace.jsonl":  # its header names the command line
        events = [line for line in content.decode().splitlines() if '"command"' not in line]
        content = "\n".join(events).encode()
    if path.suffix != ".npy":  # a line of the source may have another number
        content = re.sub(rb"(\.cuh):\d+", rb"\1", content)
    return hashlib.sha256(content).hexdigest()[:16]


def end_of(line, inputs):
    """How one ends: exit status, why it is refused, and what it wrote."""
    with tempfile.TemporaryDirectory() as out:
        step, *arguments = [word.replace("DIR", str(inputs)).replace("OUT", out) for word in line.split()]
        done = Step(step)(*arguments)
        end = {"status": done.returncode}
        if done.returncode >= 2:
            end["stderr"] = done.stderr.replace(str(inputs), "DIR").replace(out, "OUT").replace(str(ROOT) + "/", "")
            if "out of device memory" in done.stderr:  # how much there is depends on the machine
                end["stderr"] = end["stderr"].split(";")[0]
        files = sorted(path for path in Path(out).rglob("*") if path.is_file())
        if files:
            end["files"] = {str(path.relative_to(out)): digest_of(path) for path in files}
        return end


def ends(folder, lines):
    make_inputs(folder)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(lines, pool.map(lambda line: end_of(line, folder), lines), strict=True))


@pytest.mark.parametrize("lines", [
    pytest.param([line for line in LINES if line not in LONG_LINES], id="those of a second or so"),
    pytest.param(LONG_LINES, marks=pytest.mark.long, id="the others"),
])  # fmt: skip
def test_old_command_lines_end_as_they_did(tmp_path, lines):
    written = json.loads(LIST.read_text())
    assert set(LONG_LINES) < set(LINES)
    assert list(written["ends"]) == LINES, "command_lines.json has other lines: write it anew"
    if not (BIN / "../CMakeCache.txt").resolve().read_text().count("FLASHSTEPS_BACKEND:STRING=sim"):
        pytest.skip("a GPU rounds 2^x otherwise than the C library that wrote the list")
    same_bits = written["arithmetic"] == arithmetic()
    changed = []
    for line, end in ends(tmp_path, lines).items():
        was = written["ends"][line]
        if not same_bits:  # of files, only that they are there
            end["files"], was["files"] = sorted(end.get("files", [])), sorted(was.get("files", []))
        if end != was:
            changed.append(f"{line}\n  was {was}\n  is  {end}")
    assert not changed, "\n".join(changed)
    if not same_bits:
        pytest.skip("exit statuses, refusals and files' names are as they were; bits: another processor or C library wrote the list")


if __name__ == "__main__":
    scratch = Path(tempfile.mkdtemp())
    LIST.write_text(json.dumps({"arithmetic": arithmetic(), "ends": ends(scratch, LINES)}, indent=1) + "\n")
    shutil.rmtree(scratch)

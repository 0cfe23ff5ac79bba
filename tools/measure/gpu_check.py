"""Everything that needs a GPU, in one go: tests, compute-sanitizer, benchmarks, Nsight Compute.

Runs what is built in build/gpu and writes into --out:
    summary.json    of each part: the machine, the sources, and what passed
    ceilings.json   what the GPU can do at most, by benchmarks/ceilings (tools/measure/ceilings.py takes it into docs/machine/)
    bench.json      the benchmarks' JSON, one entry per step and shape (docs/result.schema.json)
    gemm_peers.json step 02 beside cuBLAS and the roof of mma.sync, in turns (benchmarks/gemm_peers.cu)
    few_tokens_peers.json  step 08 beside cuBLAS and a kernel that only reads, in turns (benchmarks/few_tokens_peers.cu)
    experts_peers.json     its products routed to experts beside both ways of calling cuBLAS, in turns (benchmarks/experts_peers.cu)
    softmax_peers.json  step 03 beside a copy of the same bytes, in turns (benchmarks/softmax_peers.cu)
    attention_peers.json, backward_peers.json, packed_peers.json, dropout_peers.json   steps 05 and 06 beside PyTorch's kernels
                    (benchmarks/attention_peers.py, backward_peers.py, packed_peers.py, dropout_peers.py), where a Python has PyTorch
    sparse_peers.json   step 07 beside dense attention and FlexAttention (benchmarks/sparse_peers.py), where a Python has PyTorch
    decoding_peers.json step 09 beside PyTorch's kernels and a kernel that only reads (benchmarks/decoding_peers.py), where a Python has PyTorch
    cliffs.json     problems of steps 05, 06 and 07 that take far longer than a neighbour (benchmarks/cliffs.py), where a Python has PyTorch
    training.json   a transformer block trained with steps 05 and 06, and with PyTorch's attention (benchmarks/training.py), where a Python has PyTorch
    ncu_STEP.csv    Nsight Compute's raw page for every kernel of the step, at its fixed shapes and large ones
    ncu_calibration.csv, ncu_calibration_ampere.csv, ncu_calibration_hopper.csv   the same for the kernels of tests/programs/calibration_*.cu,
                    which the simulator's counters are held to
    log.txt         all output
With --step or --only, what is run replaces its like in --out, and the rest stays. Tests and sanitizers share the GPU, several at a time; what is timed or counted has it alone.
Exit status 1 if anything failed. Clocks and other settings of the GPU are left alone.
"""

import argparse
import datetime
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.measure.profiling import ncu
from tools.measure.shapes import (
    BENCHED,
    CONTENDERS,
    FIXED,
    LAYERED,
    PEERS,
    PROFILED,
    SANITIZED,
    claims,
    making_inputs,
)

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["tests", "sanitizers", "ceilings", "bench", "ncu", "calibration"]
WHOLE = ["ceilings", "calibration"]  # which belong to no step
HOST_ONLY = {"test_problem", "test_attention_options", "test_packed", "test_dropout", "test_score_options", "test_reference", "test_check", "test_backward_reference", "test_check_backward", "test_check_sparse"}  # they call no kernel: make test has run them
TIMED = ["test_measure"]  # these need the GPU for themselves
PLAIN_CUDA = ["00_first_kernel", "first_flash"]  # programs of one file, which check themselves
# With its flags. Bytes behind each allocation, so that an access past the end does not fall into the next one.
SANITIZERS = {"memcheck": ["--padding", "65536"], "racecheck": [], "synccheck": [], "initcheck": []}


class Check:
    """Runs commands, keeps their output in one log, and remembers what failed: {part: {"machine": …, "passed": {name: bool}}}."""

    def __init__(self, out, build, about, goes_on):
        self.out = out
        self.build = build
        self.about = about
        self.log = (out / "log.txt").open("a" if goes_on else "w")
        self.lock = threading.Lock()  # of what commands that run at the same time write
        self.path = out / "summary.json"
        self.parts = json.loads(self.path.read_text()) if goes_on and self.path.exists() else {}
        self.passed = {}  # of the current part

    def begin(self, part):
        """What runs from here on is this part's, and replaces what it had."""
        self.passed = {}
        self.parts[part] = {"machine": self.about, "passed": self.passed}

    def finish(self):
        """Writes summary.json; the names of what failed, in all parts."""
        self.path.write_text(json.dumps(self.parts, indent=1) + "\n")
        return [name for part in self.parts.values() for name, ok in part["passed"].items() if not ok]

    def run_together(self, commands):
        """Runs commands {name: (command, environment)} several at a time; each may use as many cores as it likes."""
        with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 1) // 2)) as pool:
            for done in [pool.submit(self.run, name, command, env=env) for name, (command, env) in commands.items()]:
                done.result()

    def run(self, name, command, timeout=300, env=None):
        """Runs a command; returns its output. Its success is recorded under `name`."""
        begin = time.monotonic()
        try:
            done = subprocess.run(
                [str(part) for part in command], cwd=ROOT, env={**os.environ, **(env or {})}, timeout=timeout,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
            )
            output, ok = done.stdout, done.returncode == 0
        except subprocess.TimeoutExpired as late:
            output, ok = f"{late.stdout or ''}\nstopped after {timeout} s", False
        except FileNotFoundError as missing:
            output, ok = f"{missing.filename} is missing", False
        seconds = time.monotonic() - begin
        with self.lock:
            self.passed[name] = ok
            print(f"{'ok  ' if ok else 'FAIL'} {name} ({seconds:.1f} s)", flush=True)
            self.log.write(f"==== {name}: {' '.join(map(str, command))}\n{output}\n")
            if not ok:
                print("\n".join(output.splitlines()[-30:]), flush=True)
        return output


def machine(commit):
    """The GPU, its driver and clocks, the toolkit, and which sources were measured."""
    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
    values = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0].split(", ")
    nvcc = shutil.which("nvcc")
    release = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()[-1] if nvcc else "not here"
    describe = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        **dict(zip(query.split(","), values)),
        "nvcc": release,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit or describe.stdout.strip() or "unknown",
        "command": "make gpu-check",
    }


def sm_clock():
    """The SM clock right now, in MHz: what a benchmark that has just ended ran at, or a little less."""
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def of(steps, by_step):
    """The part of a table of shapes that belongs to these steps."""
    return {step: shapes for step, shapes in by_step.items() if step in steps}


def run_tests(check):
    left_out = HOST_ONLY | set(TIMED)
    both_tiers = "~[long],[long]"
    tests = {f"test {test.name}": ([test, both_tiers], None) for test in sorted((check.build / "tests").glob("test_*")) if test.name not in left_out}
    tests |= {f"test {name}": ([check.build / "bin" / name], None) for name in PLAIN_CUDA}
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for name in ("cli", "cli_gemm", "cli_softmax", "cli_backward", "cli_packed", "cli_dropout"):
        tests[f"test command line, {name}"] = ([*pytest, f"tests/cli/test_{name}.py"], {"FLASHSTEPS_BIN": str(check.build / "bin")})
    if importlib.util.find_spec("torch"):
        for test, file in {"examples/flashsteps_torch.py": "flashsteps_torch", "rows far apart": "far_rows"}.items():
            tests[f"test {test}"] = ([*pytest, f"tests/tools/test_{file}.py"], {"FLASHSTEPS_BIN": str(check.build / "bin")})
    else:
        print("examples/flashsteps_torch.py: not tested, because no Python here has PyTorch (torch)")
    check.run_together(tests)
    for test in TIMED:
        check.run(f"test {test}", [check.build / "tests" / test])
    fragments = check.run("fragments of ldmatrix and mma.sync", [check.build / "tests" / "fragments"])
    check.passed["fragments as in the simulator"] = fragments == (ROOT / "results" / "sim" / "fragments.json").read_text()


def run_sanitizers(check, steps, tests=("conformance", "ceilings"), plain=PLAIN_CUDA):
    programs = {test: [check.build / "tests" / f"test_{test}"] for test in tests} | {name: [check.build / "bin" / name] for name in plain}
    for step, shapes in of(steps, SANITIZED).items():
        for shape in shapes:
            programs[f"{step} {' '.join(shape)}"] = [check.build / "bin" / step, "--variant", "all", *shape]
    for step in set(LAYERED) & set(steps):
        programs[f"{step} layer"] = [check.build / "bin" / step, "--layer", "data/minilm_layer"]
    check.run_together(
        {
            f"{tool} {name}": (["compute-sanitizer", "--tool", tool, *flags, "--error-exitcode", "99", *program], None)
            for tool, flags in SANITIZERS.items()
            for name, program in programs.items()
        }
    )


def run_ceilings(check, about):
    """ceilings.json: what benchmarks/ceilings measures, and on which machine."""
    path = check.out / "ceilings.json"
    path.unlink(missing_ok=True)
    print(check.run("bench ceilings", [check.build / "benchmarks" / "ceilings", "--json", path]))
    if path.exists():
        path.write_text(json.dumps({"machine": about, **json.loads(path.read_text())}, indent=1) + "\n")


def run_benchmarks(check, steps):
    """Returns the JSON of each step and shape."""
    entries = []
    for step, shapes in of(steps, BENCHED).items():
        for name, shape in shapes.items():
            path = check.out / "one.json"
            path.unlink(missing_ok=True)
            flags = [*([] if "--variant" in shape else ["--variant", "all"]), "--bench", *shape]
            print(check.run(f"bench {step} {name}", [check.build / "bin" / step, *flags, "--json", path]))
            if path.exists():
                report = json.loads(path.read_text())
                report["command"] = [step, *flags]  # without this machine's paths
                entries.append({"shape": name, "sm_clock_mhz_after": sm_clock(), **report})
                path.unlink()
    return entries


def run_peers(check, about, step, program, peers):
    """PROGRAM.json: what the benchmark measures at each shape, on which machine, and what may be said of it."""
    path = check.out / "one.json"
    shapes = {}
    for name, (shape, variants) in peers.items():
        path.unlink(missing_ok=True)
        chosen = [flag for variant in variants for flag in ("--variant", variant)]
        print(check.run(f"{program} {name}", [check.build / "bin" / program, *shape, *chosen, "--json", path]))
        if path.exists():
            shapes[name] = {**json.loads(path.read_text()), "sm_clock_mhz_after": sm_clock()}
            path.unlink()
    said = claims(step, program, shapes)
    report = {"machine": about, "shapes": shapes, **({"claims": said} if said else {})}
    (check.out / f"{program}.json").write_text(json.dumps(report, indent=1) + "\n")


def python_with_torch():
    """A Python that can import PyTorch; None where neither this one nor the one on PATH can."""
    for python in filter(None, [sys.executable, shutil.which("python3")]):
        if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def run_torch_peers(check, commit, program):
    """PROGRAM.json: what the benchmark beside PyTorch's kernels measures and writes."""
    python = python_with_torch()
    if python is None:
        print(f"{program}.json: not measured, because no Python here has PyTorch (torch), whose kernels are the peers")
        return
    path = check.out / f"{program}.json"
    path.unlink(missing_ok=True)
    command = [python, f"benchmarks/{program}.py", "--build", check.build, "--commit", commit, "--json", path.resolve()]
    print(check.run(program, command, timeout=600))


def profile(check, name, program, metrics, inputs):
    """Nsight Compute's rows for every launch of a program, header and units first. If it refuses that many metrics, there are at least
    the counters; the failure stays on record."""
    rows = ncu.raw_page(check.run(f"ncu {name}", ncu.command(program, metrics)), metrics, **inputs)
    if not rows and metrics is not ncu.COUNTERS:
        return ncu.raw_page(check.run(f"ncu {name}, counters only", ncu.command(program, ncu.COUNTERS)), ncu.COUNTERS, **inputs)
    return rows


def run_ncu(check, name, shapes, metrics):
    """ncu_NAME.csv. shapes: {name: (arguments, command)}"""
    lines = []
    for shape, (arguments, command) in shapes.items():
        lines.append(f"# shape {shape}: {' '.join(arguments)}".rstrip())
        lines += [",".join(f'"{cell}"' for cell in row) for row in profile(check, f"{name} {shape}", command, metrics, making_inputs(name, arguments))]
    (check.out / f"ncu_{name}.csv").write_text("\n".join(lines) + "\n")


def run_ncu_of_step(check, step):
    program = [check.build / "bin" / step, "--variant", "all", "--no-check"]
    shapes = {**FIXED[step], **PROFILED.get(step, {})}
    run_ncu(check, step, {name: (shape, [*program, *shape]) for name, shape in shapes.items()}, ncu.METRICS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu", help="the gpu preset's build folder")
    parser.add_argument("--commit", help="of the sources, where the repository's history is not at hand")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="run these parts only")
    parser.add_argument("--step", choices=[name[:2] for name in FIXED], help="two digits: run what belongs to this step only")
    args = parser.parse_args()
    step = next((name for name in FIXED if args.step and name.startswith(args.step)), None)
    if not (args.build / "bin").is_dir():
        parser.error(f"{args.build}/bin is missing: run make gpu first")
    if shutil.which("nvidia-smi") is None:
        parser.error("this machine has no GPU (no nvidia-smi); what it can run is: make test")
    args.out.mkdir(parents=True, exist_ok=True)
    here = machine(args.commit)
    check = Check(args.out, args.build.resolve(), here, goes_on=args.only or step)
    steps = [step] if step else list(FIXED)
    parts = args.only or [part for part in PARTS if not (step and part in WHOLE)]
    suffix = f" {step}" if step else ""
    if "tests" in parts:
        check.begin(f"tests{suffix}")
        if step:
            check.run(f"test test_{step}", [check.build / "tests" / f"test_{step}", "~[long],[long]"])
        else:
            run_tests(check)
    if "sanitizers" in parts:
        check.begin(f"sanitizers{suffix}")
        run_sanitizers(check, steps, *([(), ()] if step else []))
    if "ceilings" in parts:
        check.begin("ceilings")
        run_ceilings(check, here)
    if "bench" in parts:
        path = args.out / "bench.json"
        entries = json.loads(path.read_text()) if path.exists() else []
        measured = []
        for name in steps:
            check.begin(f"bench {name}")
            for program, contenders in CONTENDERS.get(name, {}).items():
                run_peers(check, here, name, program, contenders)
            for program in PEERS.get(name, []):
                if program not in measured:  # packed_peers and dropout_peers are of two steps, cliffs of three
                    measured.append(program)
                    run_torch_peers(check, here["commit"], program)
            entries = [entry for entry in entries if entry["step"] != name] + run_benchmarks(check, [name])
        entries.sort(key=lambda entry: list(BENCHED).index(entry["step"]))
        path.write_text(json.dumps(entries, indent=1) + "\n")
    if "ncu" in parts:
        for name in steps:
            check.begin(f"ncu {name}")
            run_ncu_of_step(check, name)
    if "calibration" in parts:
        check.begin("calibration")
        for name in ("calibration", "calibration_ampere", "calibration_hopper"):
            run_ncu(check, name, {"all": ([], [check.build / "tests" / name])}, ncu.COUNTERS)
    failed = check.finish()
    print(f"{sum(len(part['passed']) for part in check.parts.values()) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

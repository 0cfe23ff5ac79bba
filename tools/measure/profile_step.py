"""What each kernel of a step did, and what bounds it: counted by Nsight Compute on a GPU, by the simulator elsewhere.

    make profile STEP=01                                          the step's variants at a fixed shape
    make profile STEP=01 VARIANT=block_softmax ARGS="--heads 4 --seq-q 256"
    make profile STEP=01 ARGS="--source results --shape 4k --plot roofline.png"

Flags that are not listed below go to the step's executable. The same rows come from both sources; what a source does not know is "-" or
left out. docs/profiling.md says how to read them. Exit status 2 where something is missing; the message says what helps.
"""

import argparse
import csv
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.measure import parity, traces
from tools.measure.profiling import digest, ncu
from tools.measure.profiling.bounds import needs, verdict
from tools.measure.profiling.launch import ROWS, from_ncu, from_report
from tools.measure.profiling.machine import DEVICES, machine, machine_of, measured_on
from tools.measure.shapes import BENCHED, FIXED, PROFILED, making_inputs

ROOT = Path(__file__).resolve().parents[2]


class Missing(Exception):
    """Something that the profile needs is not there; the text says what, and what helps."""


# ---- what to profile ----


def step_of(number):
    """ "01" as "01_naive_mha"."""
    steps = sorted(path.parent.name for path in (ROOT / "steps").glob("[0-9][0-9]_*/step.cu"))
    found = [step for step in steps if step == number or step.startswith(f"{number}_")]
    if not found:
        raise Missing(f"there is no step {number or '(none given)'}: STEP is one of {', '.join(steps)}")
    return found[0]


def has_gpu():
    """Whether nvidia-smi finds one."""
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def gpu_name():
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def shapes_of(step):
    """{name: flags} of all shapes that the repository measures a step at."""
    return {**FIXED.get(step, {}), **PROFILED.get(step, {}), **BENCHED.get(step, {})}


def flags_of(step, shape, source):
    """The flags of a named shape. Without a name: a small one for the simulator, the largest for a GPU, where small ones only show latency."""
    known = shapes_of(step)
    if shape is None:
        large = PROFILED.get(step) or FIXED.get(step, {})
        shape = next(iter(FIXED.get(step, {})), None) if source == "sim" else next(reversed(large), None)
        if shape is None:
            return "the step's own shape", []
    if shape not in known:
        raise Missing(f"step {step} has no shape {shape}; it has: {', '.join(known)}")
    return shape, known[shape]


def described(shape, flags):
    """A shape with the flags that make it: its name says little, and no count means anything without it."""
    flags = " ".join(flags)
    return shape if flags in ("", shape) else f"shape {shape}: {flags}"


# ---- to run it ----


def executable(build, step):
    path = build / "bin" / step
    if not path.exists():
        where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        raise Missing(f"{where} is not built: run make {build.name}")
    return path


def simulate(build, step, variant, flags, traced=False):
    """The launches that the simulator counts; if asked, with one warp's accesses to shared memory."""
    with tempfile.TemporaryDirectory() as folder:
        path, trace = Path(folder) / "report.json", Path(folder) / "trace.jsonl"
        program = [executable(build, step), "--variant", variant, "--no-check", "--counters", *flags, "--json", path]
        program += ["--trace", trace] if traced else []
        done = subprocess.run([str(part) for part in program], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Missing(done.stderr.strip() or f"{step} ended with {done.returncode}")
        launches = from_report(json.loads(path.read_text()))
        for launch, (_, events) in zip(launches, traces.read(trace), strict=True) if traced else []:
            launch.shared = [event for event in events if "shared" in event]
        return launches


def measure(build, step, variant, flags):
    """Nsight Compute's rows, and the program's own report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        rows = ncu.run([executable(build, step), "--variant", variant, "--no-check", *flags, "--json", path], ROOT, **making_inputs(step, flags))
        return rows, json.loads(path.read_text())


def keep_report(build, step, variant, flags, path):
    """Nsight Compute's full report, for its own window."""
    program = [executable(build, step), "--variant", variant, "--no-check", *flags]
    ncu.keep(program, path, ROOT)
    print(f"{path}: open it with ncu-ui")


# ---- simulator against Nsight Compute ----


def compare(simulated, rows):
    """Prints both numbers of every metric that both know; returns the counts of parity.compare_step."""
    total = Counter(launches=len(simulated), compared=0, different=0, estimates=0, estimates_different=0)
    if [launch.kernel for launch in simulated] != [ncu.base_name(row["Kernel Name"]) for row in rows]:
        raise Missing("the simulator and Nsight Compute saw other kernels: measure again")
    table = [["kernel", "metric", "simulator", "Nsight Compute", ""]]
    for launch, row in zip(simulated, rows):
        for name, ours in launch.values.items():
            mark = launch.marks.get(name, "")
            theirs = parity.of_hardware(row, name)
            if theirs is None or mark == ">=":
                continue
            total["estimates" if mark else "compared"] += 1
            if ours != theirs:
                total["estimates_different" if mark else "different"] += 1
            if ours or theirs:
                says = "" if ours == theirs else "estimate" if mark else "DIFFERS"
                table.append([launch.kernel, name, f"{mark}{ours:,.0f}", f"{theirs:,.0f}", says])
    print("\n".join(digest.aligned(table)))
    print(
        f"\n{total['compared']} exact numbers compared, {total['different']} different;"
        f" {total['estimates']} estimates, {total['estimates_different']} different"
    )
    return dict(total)


# ---- what is written ----


def as_json(launches, device):
    """All that is known of each launch: the rows of the table, in base units, and what the bound was derived from."""
    entries = []
    for launch in launches:
        rows = {row.name: value for row in ROWS if (value := row.value(launch, device)) is not None}
        bound = verdict(launch, device)
        entries.append(
            {
                "kernel": launch.kernel,
                "variant": launch.variant,
                "rows": rows,
                "metrics": launch.values,
                "needs": [dataclasses.asdict(need) for need in needs(launch, device)],
                "bound": {"unit": bound.unit, "text": bound.text},
            }
        )
    return entries


def write_csv(path, launches, device):
    """A line for each launch, a column for each row of the table; empty where it is not known."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "kernel", *(row.name for row in ROWS), "bound"])
        for launch in launches:
            known = (row.value(launch, device) for row in ROWS)
            writer.writerow([launch.variant, launch.kernel, *("" if v is None else v for v in known), verdict(launch, device).text])


def write_plot(path, launches, device, title):
    from tools.measure.profiling import plots  # Matplotlib takes a second to load

    plots.draw(launches, digest.grouped(launches), device, title).savefig(path, dpi=120)


def digests(check):
    """Writes results/digests/, or says which of them are out of date; the exit status."""
    stale = []
    for step, device in digest.measured_steps(ROOT).items():
        path = ROOT / "results" / "digests" / f"{step}.txt"
        text = digest.digest(ROOT, device, step)
        if not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
    for name in stale:
        print(f"{name} is out of date: tools/measure/profile_step.py --digest" if check else f"wrote {name}")
    return 1 if check and stale else 0


# ---- the command line ----


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--step", help="two digits, or the whole name")
    parser.add_argument("--variant", default="all", help="a variant's name, or all (the default)")
    parser.add_argument("--source", choices=["gpu", "sim", "results"], help="default: gpu where there is one, else sim")
    parser.add_argument("--shape", help="a named shape of tools/measure/shapes.py, in place of shape flags")
    parser.add_argument("--compare", action="store_true", help="simulator and Nsight Compute side by side")
    parser.add_argument("--json", type=Path, help="write all numbers to a file")
    parser.add_argument("--csv", type=Path, help="write the rows to a file")
    parser.add_argument("--plot", type=Path, help="draw the roofline (with times), or the lines of the source and the banks that they want (without)")
    parser.add_argument("--report", type=Path, help="keep Nsight Compute's full report (GPU only)")
    parser.add_argument("--device", choices=DEVICES, help="whose ceilings and committed results (default: on which the step was measured)")
    parser.add_argument("--build", type=Path, help="the preset's build folder (default build/gpu or build/sim)")
    parser.add_argument("--sim-build", type=Path, default=ROOT / "build" / "sim", help="the simulator's, for --compare")
    parser.add_argument("--digest", action="store_true", help="write results/digests/ from the committed measurements, and stop")
    parser.add_argument("--check-digest", action="store_true", help="exit status 1 if a digest is out of date, and stop")
    args, args.flags = parser.parse_known_args(arguments)
    args.flags = [flag for flag in args.flags if flag != "--"]
    return args


def committed(args, step):
    """(shape, launches, rows) of the committed profile, of the variants that were asked for."""
    path = ROOT / "results" / args.device / f"ncu_{step}.csv"
    if not path.exists():
        raise Missing(f"{path.relative_to(ROOT)} does not exist: step {step} was not measured yet")
    if args.flags:
        raise Missing(f"the committed results hold named shapes only; give --shape in place of {' '.join(args.flags)}")
    shape, _ = flags_of(step, args.shape, "gpu")
    found = digest.committed(ROOT, args.device, step)
    if shape not in found:
        raise Missing(f"{path.name} has no benchmarked shape {shape}; it has: {', '.join(found)}")
    return shape, [launch for launch in found[shape] if args.variant in ("all", launch.variant)]


def profile(args, step):
    """Everything but --digest."""
    source = args.source or ("gpu" if has_gpu() else "sim")
    device = machine(ROOT, args.device)
    if source == "gpu":
        if not has_gpu():
            raise Missing("this machine has no GPU (nvidia-smi finds none): take --source sim, or --source results")
        if (known := machine_of(ROOT, gpu_name())) is None:
            print(f"nobody measured the ceilings of {gpu_name()}: floors and shares are by those of {device['device']}", file=sys.stderr)
        else:
            device = known[1]
    elif args.report:
        raise Missing("--report keeps what Nsight Compute measures: it needs a GPU")

    if args.compare and source != "gpu":
        return compare_committed(args, step)
    if source == "results":
        shape, launches = committed(args, step)
        flags = shapes_of(step)[shape]
    else:
        shape, flags = (" ".join(args.flags), args.flags) if args.flags and not args.shape else flags_of(step, args.shape, source)
        if args.shape:
            flags = [*flags, *args.flags]
        build = args.build or ROOT / "build" / source
        if source == "sim":
            launches = simulate(build, step, args.variant, flags, traced=args.plot is not None)
        else:
            rows, report = measure(build, step, args.variant, flags)
            launches = from_ncu(rows, report)
            if args.compare:
                return 1 if compare(simulate(args.sim_build, step, args.variant, flags), rows)["different"] else 0
            if args.report:
                keep_report(build, step, args.variant, flags, args.report)
    if not launches:
        raise Missing(f"there is no variant {args.variant} in it")
    says = {"gpu": "Nsight Compute", "sim": "the simulator: exact counts, no times", "results": f"results/{args.device}"}[source]
    title = f"{step}, {described(shape, flags)} ({says})"
    print(f"{title}\n")
    print(digest.text(launches, device), end="")
    if args.json:
        content = {"step": step, "shape": shape, "source": source, "ceilings": device["device"], "launches": as_json(launches, device)}
        args.json.write_text(json.dumps(content, indent=1) + "\n")
    if args.csv:
        write_csv(args.csv, launches, device)
    if args.plot:
        write_plot(args.plot, launches, device, title)
    return 0


def compare_committed(args, step):
    """The simulator against the committed profile, at one fixed shape or at all."""
    if args.variant != "all" or args.flags:
        raise Missing("without a GPU, --compare takes the committed profile: all variants, at --shape " + " or ".join(FIXED.get(step, {})))
    path = ROOT / "results" / args.device / f"ncu_{step}.csv"
    if not path.exists():
        raise Missing(f"{path.relative_to(ROOT)} does not exist: step {step} was not measured yet")
    if args.shape and args.shape not in FIXED[step]:
        raise Missing(f"{step} is compared at its fixed shapes: {', '.join(FIXED[step])}")
    rows, different = ncu.measured(path), 0
    for shape in [args.shape] if args.shape else FIXED[step]:
        print(f"{step}, {described(shape, FIXED[step][shape])}: the simulator, and results/{args.device}\n")
        different += compare(simulate(args.sim_build, step, "all", FIXED[step][shape]), rows[shape])["different"]
    return 1 if different else 0


def main(arguments=None):
    args = parsed(arguments)
    try:
        if args.digest or args.check_digest:
            return digests(args.check_digest)
        step = step_of(args.step or "")
        args.device = args.device or (parity.results_of(step).name if args.compare else measured_on(ROOT, step))
        return profile(args, step)
    except (Missing, ncu.NcuError) as error:
        print(f"profile: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

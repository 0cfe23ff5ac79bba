"""Simulator against Nsight Compute, to the digit.

Reruns the simulator on the shapes that results/DEVICE/ncu_STEP.csv was measured at, kernel by kernel, and compares every metric that
the simulator claims to be exact. The calibration kernels (tests/calibration_*.cu) are compared in the same way. Metrics that
the simulator calls estimates are shown where they differ. Exit status 1 if an exact one does.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.measure.profiling.machine import DEVICES, measured_on
from tools.measure.profiling.ncu import (
    OPCODES,
    base_name,
    instances,
    measured,
    number,
    product,
)
from tools.measure.shapes import CHANGED, COUNTED_ON, FIXED, NOT_MEASURED

ROOT = Path(__file__).resolve().parents[2]


def results_of(step):
    """The folder with the counts that the simulator is compared with."""
    return ROOT / "results" / COUNTED_ON.get(step, measured_on(ROOT, step))


def is_measured(step, folder):
    return (folder / f"ncu_{step}.csv").is_file()


# Executables of build/sim/tests that have no shapes; each counts once it has been measured.
CALIBRATIONS = [name for name in ("calibration", "calibration_ampere", "calibration_hopper") if is_measured(name, results_of(name))]
SHAPES = {**FIXED, **{name: {"all": []} for name in CALIBRATIONS}}


def of_hardware(row, metric):
    """What Nsight Compute says of a metric; None where it was not asked."""
    name, _, opcode = metric.partition(".")
    if name == OPCODES:
        counts = instances(row.get(name, ""))
        return counts.get(opcode, 0) if counts else None
    if metric == "launch__grid_size":
        return product(row["Grid Size"])
    if metric == "launch__block_size":
        return product(row["Block Size"])
    return number(row.get(metric, ""))


def simulated(step, shape, build):
    """The simulator's counters of every launch of every variant, in launch order."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        if step in CALIBRATIONS:
            command = [build / "tests" / step, report]
        else:
            command = [build / "bin" / step, "--variant", "all", "--no-check", "--counters", *shape, "--json", report]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        result = json.loads(report.read_text())
        if step in CALIBRATIONS:
            return result
        newer = NOT_MEASURED.get(step, [])
        return [launch | {"variant": r["variant"]} for r in result["results"] if r["variant"] not in newer for launch in r["counters"]]


def compare(launch, row):
    """Yields (metric, simulator, hardware, exact?) for what both know of one launch."""
    values = [(name, value, True) for name, value in launch["exact"].items()]
    values += [(name, entry["value"], False) for name, entry in launch["estimate"].items()]
    for name, value, exact in values:
        hardware = of_hardware(row, name)
        if hardware is not None:
            yield name, value, hardware, exact


def compare_step(step, results, build, chosen=None):
    """Compares all shapes of a step, or those whose names are chosen, with the measurements in a folder; prints what differs. Returns
    {"launches", "compared", "different", "estimates", "estimates_different"}, counts of launches and of numbers."""
    path = results / f"ncu_{step}.csv"
    if not path.is_file():
        sys.exit(f"{path.name} does not exist: step {step} was not measured yet (make gpu-check STEP={step[:2]})")
    rows = measured(path)
    total = Counter(launches=0, compared=0, different=0, estimates=0, estimates_different=0)
    for shape, arguments in SHAPES[step].items():
        if chosen and shape not in chosen:
            continue
        launches = simulated(step, arguments, build)
        kernels = [(base_name(launch["kernel"]), base_name(row["Kernel Name"])) for launch, row in zip(launches, rows[shape])]
        if len(launches) != len(rows[shape]) or any(ours != theirs for ours, theirs in kernels):
            sys.exit(f"{path.name}, shape {shape}: other kernels than the step launches now; measure again (make gpu-check)")
        pairs = [(launch, row) for launch, row in zip(launches, rows[shape]) if launch.get("variant") not in CHANGED.get(step, [])]
        total["launches"] += len(pairs)
        for launch, row in pairs:
            for metric, ours, theirs, exact in compare(launch, row):
                total["compared" if exact else "estimates"] += 1
                if ours != theirs:
                    total["different" if exact else "estimates_different"] += 1
                    kind = "DIFFERS" if exact else "estimate"
                    print(f"{kind}  {step} {shape} {base_name(launch['kernel'])}: {metric} simulator {ours}, hardware {theirs}")
    for variant in NOT_MEASURED.get(step, []) + CHANGED.get(step, []):
        print(f"{step}: {variant} is newer than the last measurement, and left out")
    print(f"{step}: {total['launches']} launches, {total['compared']} exact numbers, {total['different']} different")
    return dict(total)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step", help="two digits, or calibration; default: all that was measured")
    parser.add_argument("--device", choices=DEVICES, help="whose results (default: those of the device on which a step was counted last)")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    parser.add_argument("--json", type=Path, help="write these steps' counts to a file, results/DEVICE/parity.json, where the others stay")
    args = parser.parse_args()
    folders = {step: ROOT / "results" / args.device if args.device else results_of(step) for step in SHAPES}
    there = [step for step in SHAPES if args.step or is_measured(step, folders[step])]
    steps = [step for step in there if args.step is None or step == args.step or step.startswith(args.step + "_")]
    if not steps:
        parser.error(f"there is no step {args.step} with fixed shapes; there are: {', '.join(SHAPES)}")
    totals = {step: compare_step(step, folders[step], args.build) for step in steps}
    compared, different = (sum(total[what] for total in totals.values()) for what in ("compared", "different"))
    print(f"{compared} numbers compared with Nsight Compute's, {different} different")
    if args.json:
        before = json.loads(args.json.read_text()) if args.json.exists() else {}
        args.json.write_text(json.dumps(dict(sorted({**before, **totals}.items())), indent=1) + "\n")
    sys.exit(1 if different or not compared else 0)


if __name__ == "__main__":
    main()

"""Checks of what the compilers made of the kernels.

    hooks   sim build: does every memory access of a kernel pass the simulator's hooks?
    sass    gpu build: what did nvcc make of each kernel, is it what the step plans, and which of the simulator's counts are exact?
    rungs   gpu build: registers and main loop of each variant's kernels, for the book's tables (results/machine_code); part of sass

Exit status 1 if a check failed, 2 if something to check, or a tool, is missing.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.machine_code import hooks, rungs, sass, sass_code, sass_plan
from tools.machine_code.code_listing import (
    ROOT,
    Missing,
    demangled,
    from_root,
    in_source_order,
)
from tools.machine_code.sass_plan import short
from tools.machine_code.x86_code import Code, kernel_objects
from tools.measure.shapes import FIXED, LAYERED, NOT_COMPARED, REACHED
from tools.mutate.mutate import make_nans

MEANT = "no hook sees"  # in the comment of a line: it escapes on purpose
COLUMNS = ["LDG", "STG", "LDS", "STS", "LDL", "STL", "BAR", "SHFL", "MUFU", "FFMA", "HMMA"]
WHERE_USED = ["LD", "ST", "LDSM", "STSM", "LDGSTS", "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "UTMALDG", "UTMASTG", "UBLKCP", "HGMMA"]


def as_text(rows, numbers=()):
    """Aligned columns under a header, the first row; the columns named in `numbers` are aligned at the right, their zeros shown as dots."""
    right = [n for n, name in enumerate(rows[0]) if name in numbers]
    cells = [["·" if n in right and cell == 0 else str(cell) for n, cell in enumerate(row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(cell.rjust(width) if n in right else cell.ljust(width) for n, (cell, width) in enumerate(zip(row, widths))).rstrip()
             for row in cells]  # fmt: skip
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


# ---- hooks ----


def meant(escape):
    """Does the source say that this access escapes?"""
    file, _, line = escape.place.rpartition(":")
    path = ROOT / file
    lines = path.read_text().splitlines() if path.is_file() else []
    return int(line) <= len(lines) and MEANT in lines[int(line) - 1].partition("//")[2]


def check_hooks(args):
    """Returns the exit status."""
    listed = args.objects or [path for _, path in kernel_objects(args.build)]
    objects = [path for path in listed if args.objects or path.is_file()]  # the exercises are not always built
    if not objects:
        raise Missing(f"{from_root(str(args.build.resolve()))} holds no object with kernels: run make sim first")
    kernels = functions = on_purpose = 0
    bad = []
    for path in objects:
        of_kernels, of_functions, escapes = hooks.escapes_of(Code(path))
        kernels += of_kernels
        functions += of_functions
        on_purpose += sum(meant(escape) for escape in escapes)
        bad += [escape for escape in escapes if escape not in bad and not meant(escape)]
    if kernels == 0:
        raise Missing(f"there is no kernel in {', '.join(map(str, objects))}")
    names = demangled({word for escape in bad for word in f"{escape.what} {escape.code}".split() if word.startswith("_Z")})
    for escape in bad:
        what, code = (" ".join(names.get(word, word) for word in text.split()) for text in (escape.what, escape.code))
        print(f"{escape.place}: {escape.kernel} {what}\n    {code}\n    {escape.remedy}")
    print(f"hooks: {kernels} kernels, and what they call, {functions} functions in {len(objects)} objects: "
          f"{len(bad)} accesses escape" + (f", and {on_purpose} on purpose" if on_purpose else ""))  # fmt: skip
    return 1 if bad else 0


# ---- sass ----


def small_layer(folder):
    """A layer for --layer, of random numbers and quickly computed."""
    tokens, width = 40, 64
    random = np.random.default_rng(1)
    shapes = {"x": (1, tokens, width), "in_proj_weight": (3 * width, width), "in_proj_bias": (3 * width,),
              "out_proj_weight": (width, width), "out_proj_bias": (width,)}  # fmt: skip
    for name, shape in shapes.items():
        np.save(folder / f"{name}.npy", random.standard_normal(shape, dtype=np.float32))
    return ["--layer", folder, "--heads", "2"]


def run_simulator(step, build):
    """The JSON reports of the step's variants, with counters: at two of the fixed shapes and those that reach the rest of the code, and
    of the layer around it."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shapes = [flags for shape, flags in FIXED[step].items() if shape.split(",")[0] in ("smallest", "ragged")] + REACHED.get(step, [])
        runs = [shape if "--variant" in shape else ["--variant", "all", *shape] for shape in shapes]
        if step in LAYERED:
            runs.append(small_layer(folder))
        commands = [[made(str(word), folder) for word in run] for run in runs]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda command: counted_report(step, build, command), commands))


def made(word, folder):
    """Of a run: NANS64 stands for inputs of head dim 64 with NaNs, LONGNANS64 for some of several tiles and 8 heads, SUMS300 for packed
    sequences of 300 tokens in all, BIAS300 for a bias of 300 keys, some hidden, SINKS2 for sinks of two heads, LENGTHS290 for a cache of one
    entry with 290 keys, OUT for a folder; other words stay."""
    for name, array in (("BIAS", lambda n: np.where(np.arange(n) % 7 == 3, -np.inf, 1).astype(np.float32)),
                        ("SINKS", lambda n: np.ones(n, np.float32)), ("LENGTHS", lambda n: np.array([n], np.int32))):  # fmt: skip
        if word.startswith(name):
            np.save(folder / f"{word}.npy", array(int(word.removeprefix(name))))
            return folder / f"{word}.npy"
    if word.startswith("NANS"):
        return make_nans(folder / word, dim=int(word[4:]))
    if word.startswith("LONGNANS"):
        return make_nans(folder / word, dim=int(word[8:]), heads=8, tokens=200)
    if word == "OUT":
        return folder / "out"
    if word.startswith("SUMS"):
        tokens = int(word[4:])
        np.save(folder / f"{word}.npy", np.array([0, tokens // 7, tokens // 7, tokens // 2, tokens], np.int32))
        return folder / f"{word}.npy"
    return word


def counted_report(step, build, run):
    """The JSON report of one run, with counters."""
    binary = build / "bin" / step
    if not binary.is_file():
        raise Missing(f"{binary} is missing: run make sim first")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [binary, *run, "--no-check", "--counters", "--json", report]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0 or not report.is_file():
            raise Missing(f"{step} failed with status {done.returncode}: {' '.join(map(str, run))}\n{done.stderr[-400:]}")
        return json.loads(report.read_text())


def kernel_table(kernels):
    """A row for each kernel: what it needs, and how many instructions of the interesting kinds it has."""
    used = COLUMNS + [column for column in WHERE_USED if any(kernel.counts[column] for kernel in kernels)]
    rows = [["kernel", "registers", "stack", *used]]
    rows += [[short(kernel.name), kernel.registers, kernel.stack, *(kernel.counts[column] for column in used)] for kernel in kernels]
    return as_text(rows, rows[0][1:])


def line_table(step, rows):
    """A row for each line that accesses memory: what the source asks for, and what the machine code does."""
    table = [["kernel", "line", "access", "in the source", "in the machine code", ""]]
    for row in rows:
        verdict = ("estimate" if row.declared else "DIFFERS") if row.difference else "exact" + " *" * row.unrolled + " †" * row.elsewhere
        line = row.place.removeprefix(f"steps/{step}/")
        table.append([short(row.kernel), line, f"{row.space} {row.op}", row.source, row.machine, verdict])
    agree = [row for row in rows if not row.difference]
    notes = ["\n* in an unrolled loop: exact where all lanes of a warp go round it equally often"] * any(row.unrolled for row in agree)
    notes += ["\n† some of it bears the name of another line"] * any(row.elsewhere for row in agree)
    return as_text(table) + "".join(notes)


def steps_in(build, wanted):
    """The names of the steps that are built: all, or one by its number."""
    steps = sorted(path.name for path in (build / "bin").glob("[0-9][0-9]_*"))
    chosen = [step for step in steps if wanted in (None, step, step.split("_")[0])]
    if not chosen:
        raise Missing(f"{from_root(build.resolve())} holds no step {wanted or ''}: run make gpu first".replace("  ", " "))
    return chosen


def of_step(kernel, step):
    """The step's own, or one that stands in common/device/ alone."""
    places = [instruction.place for instruction in kernel.instructions]
    return any(place.startswith(f"steps/{step}/") for place in places) or all(place.startswith("common/device/") for place in places)


def check_step(step, args):
    """Prints the tables of a step. Returns what --json gets, and what is wrong: [text]"""
    executable = args.build / "bin" / step
    result = {"step": step, "kernels": []}
    plan, chosen, problems = sass_plan.read_plan(step), {}, []
    for arch in sass_code.architectures(executable):
        kernels = [kernel for kernel in sass_code.kernels_of(executable, arch).values() if of_step(kernel, step)]
        kernels.sort(key=lambda kernel: in_source_order(kernel.instructions[0].place))
        print(f"{step}, compiled for {arch}: registers and bytes of stack for each thread, instructions by kind\n")
        print(f"{kernel_table(kernels)}\n")
        if loops := list(sass_plan.loop_rows(plan, kernels)):
            print(f"{step}, {arch}: loops with HMMA, for one warp and {plan.get('round', 'one round')}\n")
            print(f"{as_text([sass_plan.LOOPS, *loops], sass_plan.LOOPS[1:])}\n")
        differences = [f"{step}, {arch}: {text}" for text in sass_plan.problems_of(plan, kernels, arch)]
        problems += differences
        planned = sum(sass_plan.is_planned(plan, kernel) for kernel in kernels)
        print(f"{step}, {arch}: {planned} kernels beside tests/steps/{step}/plan.json, {len(kernels) - planned} others that may not spill: "
              f"{len(differences)} differences\n")  # fmt: skip
        for kernel in kernels:
            result["kernels"].append({"kernel": kernel.name, "arch": arch, "registers": kernel.registers, "stack_bytes": kernel.stack,
                                      "instructions": dict(sorted(kernel.counts.items())),
                                      "loops": [dict(sorted(counts.items())) for counts in kernel.tensor_loops]})  # fmt: skip
        if arch == args.arch:
            chosen = {kernel.name: kernel for kernel in kernels}
    if not chosen:
        raise Missing(f"{from_root(str(executable.resolve()))} holds no kernel of {step} for {args.arch}")
    if args.table:
        return result, problems
    if step in NOT_COMPARED and not args.counters:
        print(f"{step}: its accesses were not compared with what the simulator counts: {NOT_COMPARED[step]}")
        return result, problems + (check_record(step, chosen, args) if args.arch == rungs.ARCH else [])
    if step not in FIXED and not args.counters:
        print(f"{step}: has no fixed shapes (tools/measure/shapes.py), so its counters were not compared")
        return result, problems
    reports = [json.loads(path.read_text()) for path in args.counters] or run_simulator(step, args.sim_build)
    rows, found = compare_step(step, chosen, sass.counted_kernels(reports), args.sim_build)
    print(f"{step}: accesses of the source, as the simulator counts them, beside the machine code for {args.arch}\n")
    print(f"{line_table(step, rows)}\n")
    result["lines"] = [vars(row) for row in rows]
    print(f"{step}: {sum(not row.difference for row in rows)} of {len(rows)} lines agree; {len(found)} problems")
    return result, problems + found + (check_record(step, chosen, args) if args.arch == rungs.ARCH else [])


def printed(step, args):
    """check_step with what it prints as text, for several steps at a time: (text, result, problems)"""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        result, problems = check_step(step, args)
    return text.getvalue(), result, problems


def check_record(step, kernels, args):
    """Compares what results/machine_code says of a step with the build, or writes it: [what is wrong]"""
    shapes = rungs.launched({shape: counted_report(step, args.sim_build, run) for shape, run in rungs.commands(step).items()})
    if not shapes:
        return []
    nvcc = rungs.nvcc_of(args.build / "bin" / step, rungs.ARCH)
    return rungs.update_or_compare(rungs.record(step, kernels, shapes, nvcc), args.update)


def check_rungs(args):
    """Returns the exit status."""
    problems = []
    for step in steps_in(args.build, args.step):
        if rungs.commands(step):
            problems += check_record(step, sass_code.kernels_of(args.build / "bin" / step, rungs.ARCH), args)
            print(f"{step}: {'wrote' if args.update else 'compared with'} {rungs.FOLDER}/{step}.json")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def compare_step(step, kernels, counted, sim_build):
    """Returns the rows of all kernels, and what is wrong."""
    folder = ROOT / "steps" / step  # step.cu, and what is compiled for newer devices
    objects = [path for file, path in kernel_objects(sim_build) if Path(file).resolve().parent == folder]
    if not objects or not all(path.is_file() for path in objects):
        raise Missing(f"{from_root(str(sim_build.resolve()))} holds no object of {from_root(str(folder))}: run make sim first")
    in_source = {kernel.name: (code, kernel) for code in map(Code, objects) for kernel in code.kernels().values()}
    rows, problems = [], []
    for name, kernel in kernels.items():
        if name not in counted:
            problems.append(f"{name}: the simulator has not run it, so that nothing says what it counts")
            continue
        beside = sass.multiplications_beside(*in_source[name]) if name in in_source else {}
        of_kernel = sass.compare(name, kernel, counted[name], beside)
        rows += of_kernel
        problems += sass.problems_of(name, of_kernel, counted[name])
    problems += [f"{name}: counted by the simulator, but not in the executable" for name in counted if name not in kernels]
    return rows, problems


def check_sass(args):
    """Returns the exit status."""
    results, problems = [], []
    steps = steps_in(args.build, args.step)
    with ProcessPoolExecutor(min(len(steps), os.cpu_count() or 1)) as pool:
        started = {step: pool.submit(printed, step, args) for step in reversed(steps)}  # the later ones take longer
        for step in steps:
            text, result, found = started[step].result()
            print(text, end="", flush=True)
            results.append(result)
            problems += found
    if args.json:
        args.json.write_text(json.dumps({"steps": results, "problems": problems}, indent=1) + "\n")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("hooks", help="does every access of a kernel pass the simulator's hooks?")
    command.add_argument("objects", nargs="*", type=Path, help="object files; default: all that hold kernels")
    command.add_argument("--build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    command.set_defaults(run=check_hooks)
    command = commands.add_parser("sass", help="which of the simulator's counts are exact?")
    command.add_argument("--step", help="its number, two digits; default: all")
    command.add_argument("--build", type=Path, default=ROOT / "build" / "gpu", help="the gpu preset's build folder")
    command.add_argument("--sim-build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    command.add_argument("--arch", default="sm_90", help="whose code is compared (default sm_90)")
    command.add_argument("--counters", nargs="+", type=Path, default=[], help="what the step wrote with --counters --json; default: run it")
    command.add_argument("--table", action="store_true", help="only show what nvcc made of each kernel")
    command.add_argument("--json", type=Path, help="write everything to this file")
    command.add_argument("--update", action="store_true", help="write results/machine_code instead of comparing with it")
    command.set_defaults(run=check_sass)
    command = commands.add_parser("rungs", help="registers and main loop of each variant's kernels, for the book's tables")
    command.add_argument("--step", help="its number, two digits; default: all")
    command.add_argument("--build", type=Path, default=ROOT / "build" / "gpu", help="the gpu preset's build folder")
    command.add_argument("--sim-build", type=Path, default=ROOT / "build" / "sim", help="the sim preset's build folder")
    command.add_argument("--update", action="store_true", help="write results/machine_code instead of comparing with it")
    command.set_defaults(run=check_rungs)
    args = parser.parse_args()
    try:
        sys.exit(args.run(args))
    except Missing as missing:
        print(f"disassembly: {missing}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

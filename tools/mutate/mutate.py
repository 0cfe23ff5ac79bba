"""Breaks a step's kernels on purpose, one synchronisation, index or register at a time, and says what caught it.

    make mutate STEP=01                 every mutant of the step; writes build/mutants/01_naive_mha.json
    tools/mutate/mutate.py --step 01 --list    which there are
    make mutate STEP=01 TIER=quick SAMPLE=20   does `make test` alone catch 20 of them? writes results/mutants/quick_tier.json

Each mutant (tools/mutate/mutants.py finds them) is made in a copy of the step's folder. What reads the changed file is compiled, and linked
with the rest of build/sim, by the build's own commands. It runs at every shape of the step's mutants.json under each of three schedules; a
shape may also be one of the step's tests. Exit status 0: all were caught, or mutants.json explains why nothing can notice them. 1: one was
not, or one that is explained was caught after all. 2: bad usage.
"""

import argparse
import functools
import json
import math
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGXCPU, Signals

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.mutate.mutants import MutationError, find, source_file
from tools.mutate.rebuild import Rebuild, UsageError, shown

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (1, 2, 3)  # of the simulator's schedules
WALL_SECONDS = 600  # more than any run takes, even on a busy machine; what ends a run that hangs is its processor time
WRONG_RESULT = "wrong result"
FAILED_TEST = "failed test"


# ---- building ----


def name_of(path, folder):
    """A source as mutants.json names it: from the step's folder, or from the repository's root."""
    return path.name if path.parent == folder else str(path.relative_to(ROOT))


class Builder(Rebuild):
    """Builds a program that a step is part of, its executable or its tests, with another folder's copy of the step."""

    def __init__(self, build, step, program=None, last=()):
        self.step, self.folder, self.last = step, ROOT / "steps" / step, last  # last: the compiler's last flags
        super().__init__(build, self.folder / "step.cu", program or f"bin/{step}")
        # Which of our files each source reads, as mutants.json names them. What ninja knows nothing of may read each: None.
        ours = lambda read: {name_of(path, self.folder) for path in read if path.is_relative_to(ROOT)}
        self.sources = {source: None if read is None else ours(read) for source, read in self.read_files().items()}
        self.unit_of = functools.cache(lambda source: Rebuild(build, source, self.program))

    def __call__(self, tree, changed=None, jobs=1):
        """Builds the program in `tree`, from what is there of our files, where these differ (None: any of the step's folder may). What
        reads none of them is linked as the build has it. Returns (program, None), or (None, the first error)."""
        differs = (lambda name: "/" not in name) if changed is None else set(changed).__contains__
        units = [self.unit_of(source) for source, files in self.sources.items() if files is None or any(map(differs, files))]
        outputs = [tree / unit.object.replace("/", "_") for unit in units]

        def compile_one(unit, output):
            if output.exists():  # the step's executable and its tests share objects
                return None
            source = tree / "steps" / self.step / unit.source.name if unit.source.parent == self.folder else unit.source
            # Reports name the sources as if they lay in the repository.
            return unit.compile(source, output, f"-I{tree}", f"-ffile-prefix-map={tree}={ROOT}", last=self.last)

        with ThreadPoolExecutor(jobs) as pool:
            errors = [error for error in pool.map(compile_one, units, outputs) if error]
        if errors:
            return None, errors[0].replace(f"{tree}/", "")
        compiled = {unit.object: str(output) for unit, output in zip(units, outputs)}
        program = tree / Path(self.program).name
        error = self.link(compiled.pop(self.object, self.object), program, compiled)
        return (None, error) if error else (program, None)


def copy_step(step, tree, mutant=None):
    """The step's folder in another tree, with one change or none."""
    folder = tree / "steps" / step
    shutil.copytree(ROOT / "steps" / step, folder, ignore=shutil.ignore_patterns("exercises"))
    if mutant is not None:
        file = source_file(folder, mutant.file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(mutant.apply(source_file(ROOT / "steps" / step, mutant.file).read_text()))


# ---- running ----


@dataclass
class Run:
    """One run of a program: what complained (nothing: all was well), the first complaint and its lines of the source."""

    shape: str
    seed: int
    kinds: list
    text: str = ""
    lines: list = field(default_factory=list)
    ended: bool = True  # by itself, with a report


def save_arrays(folder, shapes, seed):
    """Random numbers as NAME.npy, one file for each name."""
    numbers = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for name, shape in shapes.items():
        np.save(folder / f"{name}.npy", numbers.standard_normal(shape).astype(np.float32))
    return folder


def make_layer(folder):
    """A small layer: 7 tokens, 3 heads of 5."""
    tokens, heads, width = 7, 3, 15
    shapes = {"x": (tokens, width), "in_proj_weight": (3 * width, width), "in_proj_bias": (3 * width,)}
    shapes |= {"out_proj_weight": (width, width), "out_proj_bias": (width,)}
    (save_arrays(folder, shapes, 1) / "layer.json").write_text(json.dumps({"heads": heads}))
    return folder


def make_nans(folder, dim=8, heads=2, tokens=11):
    """Inputs whose last key and value are NaN: under a causal mask the last query alone may see them."""
    save_arrays(folder, dict.fromkeys(["q", "k", "v", "do"], (1, heads, tokens, dim)), 2)  # do: for the backward pass
    for name in "kv":
        array = np.load(folder / f"{name}.npy")
        array[:, :, -1] = np.nan
        np.save(folder / f"{name}.npy", array)
    return folder


def make_sums(file):
    """Packed sequences of 0 to 70 tokens, 150 in all (--cu-seqlens)."""
    np.save(file.with_suffix(".npy"), np.array([0, 37, 37, 80, 150], np.int32))
    return file.with_suffix(".npy")


# Words of mutants.json that stand for folders of inputs, or for a file, each with what makes it.
INPUTS = {"LAYER": make_layer, "NANS": make_nans, "NANS64": functools.partial(make_nans, dim=64), "SUMS": make_sums}


def complaints(report):
    """(kinds, first text) of a report as --json writes it: the simulator's findings before the checker's verdict."""
    findings = [finding for result in report["results"] for finding in result["findings"]]
    verdicts = [result["verdict"] for result in report["results"]]
    reasons = [verdict["reason"] for verdict in verdicts if not verdict["pass"]]
    kinds = [finding["kind"] for finding in findings] + [WRONG_RESULT] * bool(reasons)
    texts = [finding["text"] for finding in findings] + reasons
    return list(dict.fromkeys(kinds)), texts[0] if texts else ""


def places(text):
    """The lines of the source that a report names: both of a race, else one."""
    return re.findall(r" at ((?:\w+/)+[\w.]+:\d+)(?:, called at [^ ,]+)* by ", text) or re.findall(r" at ((?:\w+/)+[\w.]+:\d+)", text)[:1]


QUICK_TIER = {"quick tier": ["--tests"]}  # in place of a step's shapes: what `make test` runs of its tests, up to the first that fails


def is_test(arguments):
    return arguments[:1] in (["--test"], ["--tests"])


def failed_test(output):
    """The name of the first test case that failed, from Catch2's report."""
    name = re.search(r"^-{70,}\n((?:(?!-{70}).+\n)+)-{70,}$", output, re.MULTILINE)
    return " ".join(name[1].split()) if name else "a test"


def seeds_of(arguments):
    """The schedules of a shape; a test chooses its own."""
    return SEEDS[:1] if is_test(arguments) else SEEDS


def run(program, shape, arguments, seed, cpu_seconds, report):
    """Runs a program at one shape under one schedule, on one worker, so that the same run gives the same report; or a test of the
    step's test program."""
    variant = [] if "--variant" in arguments else ["--variant", "all"]
    command = [program, *variant, *arguments, "--sim-seed", seed, "--sim-workers", 1, "--json", report]
    if is_test(arguments):
        names = [re.sub(r'([,"\[\]\\])', r"\\\1", name) for name in arguments[1:]]  # as Catch2 wants it
        command = [program, *names, "--abort"]
    limited = ["sh", "-c", f'ulimit -c 0; ulimit -S -t {cpu_seconds}; exec "$0" "$@"', *map(str, command)]
    report.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            limited, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Run(shape, seed, ["hang"], f"did not end within {WALL_SECONDS} s", ended=False)
    if done.returncode == -SIGXCPU:
        return Run(shape, seed, ["hang"], "did not end", ended=False)
    if done.returncode < 0:
        return Run(shape, seed, [f"crash ({Signals(-done.returncode).name})"], done.stderr.strip(), ended=False)
    if is_test(arguments):
        if "No tests ran" in done.stdout:
            raise UsageError(f"{program.name} has no test “{arguments[1]}”")
        failed = done.returncode != 0
        return Run(shape, seed, [FAILED_TEST] * failed, f"{' '.join(arguments[1:]) or failed_test(done.stdout)}: failed" * failed, ended=not failed)
    if done.returncode not in (0, 1):
        return Run(shape, seed, ["refused launch"], done.stderr.strip(), ended=False)
    kinds, text = complaints(json.loads(report.read_text()))
    if bool(kinds) != (done.returncode == 1):
        raise RuntimeError(f"{shlex.join(map(str, command))}: exit status {done.returncode}, but its report says: {kinds}")
    return Run(shape, seed, kinds, text.replace(f"{ROOT}/", ""), places(text))


def timed(*arguments):
    """A run, and the processor time that it took. For a process of its own: a process knows only what all its children took together."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Laboratory:
    """Builds and runs mutants of one step. `folder` holds what comes and goes; with `keep`, trees stay there."""

    def __init__(self, step, shapes, folder, build, keep=None, last=()):
        self.step, self.folder, self.keep = step, folder, keep
        self.builder = Builder(build, step, last=last)
        with_tests = any(is_test(shape) for shape in shapes.values())
        self.test_builder = Builder(build, step, f"tests/test_{step}", last) if with_tests else None
        inputs = {word: str(make((keep or folder) / word)) for word, make in INPUTS.items()}
        self.shapes = {name: [inputs.get(word, word) for word in shape] for name, shape in shapes.items()}
        self.cpu_seconds = dict.fromkeys(shapes, 600 if shapes == QUICK_TIER else 60)

    def program_of(self, shape, program, tree, changed):
        """(what runs at a shape, None), the step's program or its tests', built when they are first needed; or (None, the first error)."""
        if not is_test(self.shapes[shape]):
            return program, None
        tests = tree / Path(self.test_builder.program).name
        return (tests, None) if tests.exists() else self.test_builder(tree, changed)

    def tree(self, name):
        """A folder for that mutant alone, with a readable name."""
        readable = re.sub(r"[^\w.+-]+", "_", name).strip("_")[:100]
        return (self.keep or self.folder) / f"{readable}.{zlib.crc32(name.encode()):08x}"

    def baseline(self, mutants, jobs):
        """Builds the step as it is, as far as these mutants will be, and runs it at their shapes. Nothing may complain; what it takes
        bounds what a mutant may take."""
        tree = self.folder / "baseline"
        copy_step(self.step, tree)
        changed = {mutant.file for mutant in mutants}
        program, error = self.builder(tree, changed, jobs)
        runs = {}
        with ProcessPoolExecutor(jobs) as pool:
            for shape in dict.fromkeys(shape for mutant in mutants for shape in mutant.shapes):
                fitting_program, error = (None, error) if error else self.program_of(shape, program, tree, changed)
                if error:
                    break
                report = tree / f"report_{len(runs)}.json"
                arguments = (shape, self.shapes[shape], SEEDS[0], self.cpu_seconds[shape], report)
                runs[shape] = pool.submit(timed, fitting_program, *arguments)
        if error:
            raise UsageError(f"the step as it is does not compile: {error}")
        for shape, future in runs.items():
            done, seconds = future.result()
            self.cpu_seconds[shape] = math.ceil(3 + 10 * seconds)
            if done.kinds:
                raise UsageError(f"the step as it is fails at the shape “{shape}”: {done.text}")
        shutil.rmtree(tree)

    def __call__(self, mutant):
        """[Run, …] of a mutant; one that does not compile has one, without a shape."""
        tree, changed = self.tree(mutant.id), {mutant.file}
        shutil.rmtree(tree, ignore_errors=True)
        copy_step(self.step, tree, mutant)
        program, error = self.builder(tree, changed)
        runs = [Run("", 0, ["compiler"], error, ended=False)] if error else []
        for shape in mutant.shapes if program else ():
            fitting_program, error = self.program_of(shape, program, tree, changed)
            if error:
                runs.append(Run(shape, SEEDS[0], ["compiler"], error, ended=False))
                continue
            for seed in seeds_of(self.shapes[shape]):
                runs.append(run(fitting_program, shape, self.shapes[shape], seed, self.cpu_seconds[shape], tree / "report.json"))
        if not self.keep:
            shutil.rmtree(tree)
        return runs


# ---- results ----


def summarise(mutant, runs):
    """A mutant and what its runs said, for JSON."""
    caught = [one for one in runs if one.kinds]
    silent = [one for one in caught if one.ended and WRONG_RESULT not in one.kinds]  # the simulator alone spoke
    kinds = dict.fromkeys(kind for one in caught for kind in one.kinds)
    first = caught[0] if caught else None
    return {
        "id": mutant.id,
        "file": mutant.file,
        "line": mutant.line,
        "what": mutant.what,
        "before": mutant.before,
        "after": mutant.after,
        "runs": len(runs),
        "caught": len(caught),
        "right_values": len(silent),
        "at": {shape: sum(one.shape == shape for one in caught) for shape in dict.fromkeys(one.shape for one in caught)},
        "by": {kind: sum(kind in one.kinds for one in caught) for kind in kinds},
        "first": first and {
            "by": first.kinds[0],
            "shape": first.shape,
            "seed": first.seed,
            "lines": first.lines,
            "text": first.text,
        },
        "equivalent": mutant.equivalent,
    }


def outdated(document, mutants, shapes):
    """What a file of results says differently from what the tool finds today: [a line for each difference, …]."""
    there = {result["id"]: (result["before"], result["after"], result["equivalent"]) for result in document["mutants"]}
    today = {mutant.id: (mutant.before, mutant.after, mutant.equivalent) for mutant in mutants}
    lines = [f"gone: {name}" for name in there if name not in today]
    lines += [f"missing: {name}" for name in today if name not in there]
    lines += [f"changed: {name}" for name in today if name in there and today[name] != there[name]]
    return lines + ["the shapes or the seeds are others"] * ((document["shapes"], document["seeds"]) != (shapes, list(SEEDS)))


def fitting(older, mutants, shapes):
    """Of an older document, what still holds: {id: result}. The mutant's text is as it was, and so are its shapes and the seeds. Why it
    is equivalent may have been said since. What a test checks, and what else a file holds, is not compared: after such a change run
    its mutants by name (--only)."""
    if not older or older["seeds"] != list(SEEDS):
        return {}
    there = {result["id"]: result for result in older["mutants"]}
    known = {}
    for mutant in mutants:
        result = there.get(mutant.id)
        if result is None or (result["before"], result["after"]) != (mutant.before, mutant.after):
            continue
        same_shapes = all(older["shapes"].get(shape) == shapes[shape] for shape in mutant.shapes)
        all_runs = sum(len(seeds_of(shapes[shape])) for shape in mutant.shapes)
        if same_shapes and (result["runs"] == all_runs or "compiler" in result["by"]):
            known[mutant.id] = result | {"equivalent": mutant.equivalent}
    return known


def merged(document, older, mutants):
    """The results of all mutants: those of this run, and for the rest those of an older file that still fit."""
    known = fitting(older, mutants, document["shapes"])
    known |= {result["id"]: result for result in document["mutants"]}
    everything = document | {"mutants": [known[mutant.id] for mutant in mutants if mutant.id in known]}
    differences = outdated(everything, mutants, document["shapes"])
    if differences:
        more = [f"and {len(differences) - 5} more"] * (len(differences) > 5)
        raise UsageError("\n  ".join(["the results in results/mutants do not fit any more; run --missing:", *differences[:5], *more]))
    return everything["mutants"]


def as_json(document):
    """One line for each mutant."""
    lines = [f"  {json.dumps(result, ensure_ascii=False)}" for result in document["mutants"]]
    head = json.dumps({key: value for key, value in document.items() if key != "mutants"}, indent=1, ensure_ascii=False)
    return head.removesuffix("\n}") + ',\n "mutants": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def write(file, document):
    """Never half of it: a run that is ended from outside leaves the results that it had."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    part.write_text(as_json(document))
    part.replace(file)


def recorded(older, step, seed, results):
    """results/mutants/quick_tier.json with these results of a step: one line for each mutant."""
    by = lambda first: f"{first['by']}: {first['text'].removesuffix(': failed')}" if first["by"] == FAILED_TEST else first["by"]
    brief = lambda result: {key: result[key] for key in ("id", "before", "after")} | {"caught_by": result["first"] and by(result["first"])}
    steps = (older or {}).get("steps", {}) | {step: {"seed": seed, "mutants": [brief(result) for result in results]}}
    parts = []
    for name, part in sorted(steps.items()):
        lines = ",\n".join(f"   {json.dumps(mutant, ensure_ascii=False)}" for mutant in part["mutants"])
        parts.append(f'  {json.dumps(name)}: {{"seed": {part["seed"]}, "mutants": [\n{lines}\n  ]}}')
    return '{\n "steps": {\n' + ",\n".join(parts) + "\n }\n}\n"


def complaint(result):
    """Why a mutant's result is not good; None if it is."""
    if result["caught"] and result["equivalent"]:
        return "was caught, although mutants.json says that nothing can notice it: take that out"
    if not result["caught"] and not result["equivalent"]:
        return "was not caught: add a shape or a test that catches it, or say in mutants.json why nothing can"
    return None


def caught_by(result):
    """ "race 9, wrong result 2": what caught a mutant, each with the number of runs where it did."""
    if not result["caught"]:
        return "equivalent" if result["equivalent"] else "NOTHING"
    return ", ".join(f"{kind} {count}" for kind, count in result["by"].items())


def as_text(results):
    """The table for a terminal."""
    header = ["mutant", "caught in", "by, in how many runs", "first seen at"]
    rows = [
        [
            result["id"],
            f"{result['caught']} of {result['runs']}",
            caught_by(result),
            " and ".join(result["first"]["lines"]) if result["first"] else "",
        ]
        for result in results
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    rule = ["-" * width for width in widths]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [header, rule, *rows]]
    return "\n".join(lines)


def in_words(results):
    """A line that sums a table up."""
    caught = sum(result["caught"] > 0 for result in results)
    equivalent = sum(not result["caught"] and result["equivalent"] is not None for result in results)
    rest = len(results) - caught - equivalent
    return f"{len(results)} mutant{'s' * (len(results) != 1)}: {caught} caught, {equivalent} equivalent, {rest} not caught"


# ---- the command line ----


def whole_number(least):
    def parse(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least {least}")
        return int(text)

    return parse


def parse_arguments(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step", required=True, help="two digits: 01")
    parser.add_argument("--list", action="store_true", help="show the mutants and stop")
    parser.add_argument("--only", metavar="TEXT", help="those whose name holds TEXT")
    parser.add_argument("--sample", metavar="N", type=whole_number(1), help="a random choice of N of them")
    parser.add_argument("--seed", metavar="S", type=whole_number(0), default=1, help="of --sample (default 1)")
    parser.add_argument("--tier", choices=["quick"], help="run the quick tier of the step's tests, not the shapes; writes results/mutants/quick_tier.json")
    parser.add_argument("--jobs", metavar="N", type=whole_number(1), default=os.cpu_count(), help="at a time (default: one per core)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there, as they come (default: build/mutants/NAME.json, where all ran)")
    parser.add_argument("--update", action="store_true", help="put them into results/mutants/, for the book; with --only: among the others there")
    parser.add_argument("--missing", action="store_true", help="with --update or --json: run only those whose results there no longer fit")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep each mutant there: its sources, its program, its last report")
    parser.add_argument("--unoptimised", action="store_true", help="compile a mutant in less than half the time; its runs take longer")
    parser.add_argument("--build", metavar="DIR", type=Path, default=ROOT / "build" / "sim", help="a finished sim build (default: build/sim)")
    args = parser.parse_args(words)
    if args.update and (args.sample or args.json):
        parser.error("--update goes neither with --sample nor with --json")
    if args.missing and not (args.update or args.json):
        parser.error("--missing goes with --update or with --json")
    if args.tier and args.update:
        parser.error("--tier does not go with --update: it writes a file of its own")
    return args


def step_named(number):
    folders = [folder for folder in ROOT.glob("steps/[0-9][0-9]_*") if folder.name.split("_")[0] == number]
    if len(folders) != 1:
        known = ", ".join(sorted(folder.name for folder in ROOT.glob("steps/[0-9][0-9]_*")))
        raise UsageError(f"there is no step {number}; there are: {known}")
    return folders[0]


def choose(mutants, only=None, sample=None, seed=1):
    """Those whose name holds the text, or a sample of them, in their order."""
    chosen = [mutant for mutant in mutants if only is None or only in mutant.id]
    if not chosen:
        raise UsageError(f"no mutant's name holds “{only}” (--list shows all)" if only else "the step has no mutants")
    if sample is not None and sample < len(chosen):
        places = random.Random(seed).sample(range(len(chosen)), sample)
        chosen = [chosen[place] for place in sorted(places)]
    return chosen


def run_all(laboratory, mutants, jobs, save=lambda results: None):
    """Results of the mutants, in their order; says on stderr how far it is, and calls save with {id: result} of those that are done."""
    results = {}
    began = time.monotonic()
    laboratory.baseline(mutants, jobs)
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(laboratory, mutant): mutant for mutant in mutants}
        try:
            for future in as_completed(futures):
                mutant = futures[future]
                results[mutant.id] = summarise(mutant, future.result())
                after = f"[{len(results)}/{len(mutants)}, {time.monotonic() - began:.0f} s]"
                print(f"{after} {mutant.id}: {caught_by(results[mutant.id])}", file=sys.stderr, flush=True)
                save(results)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [results[mutant.id] for mutant in mutants]


def mutate(args):
    """Does what the arguments say; the exit status."""
    folder = step_named(args.step)
    mutants, shapes = find(folder)
    if args.tier:
        mutants = [replace(mutant, shapes=tuple(QUICK_TIER)) for mutant in mutants if mutant.equivalent is None]
        shapes = QUICK_TIER
    chosen = choose(mutants, args.only, args.sample, args.seed)
    describe = lambda results: {"step": folder.name, "seeds": list(SEEDS), "shapes": shapes, "mutants": results}
    committed = ROOT / "results" / "mutants" / f"{folder.name}.json"
    there = committed if args.update else args.json if args.missing else None
    older = json.loads(there.read_text()) if there and there.exists() else None
    known = fitting(older, mutants, shapes) if args.missing else {}
    chosen = [mutant for mutant in chosen if mutant.id not in known]
    if args.list:
        print("\n".join(mutant.id for mutant in chosen))
        return 0
    if args.update:  # before the work: will its results go together with those that stay?
        merged(describe([summarise(mutant, []) for mutant in chosen]), older, mutants)
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)

    def save(results):  # of --json, beside those that were there and still fit
        if args.json:
            together = known | results
            write(args.json, describe([together[mutant.id] for mutant in mutants if mutant.id in together]))

    with tempfile.TemporaryDirectory() as scratch:
        keep = args.keep and args.keep.resolve()
        laboratory = Laboratory(folder.name, shapes, Path(scratch).resolve(), args.build.resolve(), keep, ("-O0",) * args.unoptimised)
        results = run_all(laboratory, chosen, args.jobs, save)
    document, out = describe(results), None
    if args.json:
        save({result["id"]: result for result in results})
    elif args.tier and not args.only:
        tier = ROOT / "results" / "mutants" / "quick_tier.json"
        tier.write_text(recorded(json.loads(tier.read_text()) if tier.exists() else None, folder.name, args.seed, results))
    elif args.update:
        document["mutants"], out = merged(document, older, mutants), committed
    elif not args.tier and len(chosen) == len(mutants):
        out = ROOT / "build" / "mutants" / f"{folder.name}.json"
    print(f"{as_text(results)}\n\n{in_words(results)}")
    if out:
        write(out, document)
    if out or args.json:
        print(f"Results: {shown((out or args.json).resolve())}")
    together = results + [result for result in known.values() if args.json]  # of the file, also those that ran before
    bad = [(result["id"], reason) for result in together if (reason := complaint(result))]
    for name, reason in bad:
        print(f"{name}: {reason}", file=sys.stderr)
    return 1 if bad else 0


def main():
    args = parse_arguments(sys.argv[1:])
    try:
        sys.exit(mutate(args))
    except (UsageError, MutationError) as error:
        print(f"mutate: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

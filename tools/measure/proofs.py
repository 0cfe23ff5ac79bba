"""Records of long proofs: a long test that passed need not run again before a file changes that it read.

    proofs.py due [--sass] [--seed N]    names the tests that have no valid record, and a random tenth of the others (--again X): what CI runs
    proofs.py record [NAME…]             runs the tests without a valid record (or those named), and writes the records of those that pass
    proofs.py check                      says of each test whether its record is valid; if not, which file changed

A record, results/proofs/NAME.json, says what the test read while it ran: strace sees every file that the test, its programs and the
compilers that it starts open. A program of the build stands for all sources and headers from which ninja makes it. Of a copy of the
project that the test made, what it read there counts, and not what it copied. The record's key is a SHA-256 over the contents of these
files, the names in the folders that were listed, the build's own files and the compilers' versions.
`make test-all` never looks at records: it runs everything.

`make sass` counts as a long test of each step, sass_NN_name. A step's test reads other steps only through what is built from them: that
its Python file looks into every step's folder, to find its own, does not count.
"""

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "results" / "proofs"
BUILDS = {"sim": ROOT / "build" / "sim", "gpu": ROOT / "build" / "gpu"}
# Every test depends on how things are built, though cmake does not run while it does.
ALWAYS = [
    "CMakeLists.txt",
    "CMakePresets.json",
    "cmake/FlashSteps.cmake",
    "cmake/architectures.cmake",
    "requirements.txt",
    "tests/CMakeLists.txt",
    "tools/bootstrap",
    "tools/build",
]
OF_A_STEP = re.compile(r"(?:tests/steps|steps|solutions|results/[^/]+/exercises)/(\d\d_[a-z0-9_]+)(?:/|$)")
OF_ALL_STEPS = {"steps/", "tests/steps/", "solutions/"}
LOOKED_THROUGH = re.compile(r"(tests|tests/tools|tests/tools/exercises|tests/cli|tools(/.*)?)/$")  # by Python, for modules: another file there is no matter
# The book's site has a page for every source that the book names, and for what is in the folders that it names. In the browser a few of
# them are opened; that the others can be made, the test docs says.
IN_THE_BROWSER = re.compile(r"docs/|tools/book/(tables/)?[^/]*$|tests/(conftest\.py|tools/(test_browser\.py|page_checks\.js))$")
SOURCES_IN_THE_BROWSER = {
    "steps/05_flash_v2/",
    "notebooks/02_banks_and_tiles.ipynb",
    "steps/05_flash_v2/12_tuned.cuh",
    "steps/06_backward/step.cu",
    "tests/steps/02_tiled_gemm/plan.json",
    "tools/measure/traces.py",
}
# strace's lines: 7 openat(AT_FDCWD</home/me>, "x", O_RDONLY) = 3</home/me/x>, which is in two parts if another process came between.
BEGUN = re.compile(r"^(\d+) +(openat\(.*) <unfinished \.\.\.>$")
ENDED = re.compile(r"^(\d+) +<\.\.\. openat resumed>(.*)$")
OPENED = re.compile(r"^(\d+) +openat\(.*, (O_[A-Z_|]+).*\) = \d+<([^>]+)>$")
EXECUTED = re.compile(r'^(\d+) +execve\("(/[^"]+)", (\[.*?\])')
COPY = re.compile(r"/.*/FlashSteps/(?!build/)(.+)")  # a test's copy of the project has this name


def run(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


# ---- tests ----


class Entry(NamedTuple):
    command: list
    environment: dict
    timeout: float  # seconds
    alone: bool  # it needs both cores
    step: str | None


@cache
def tests():
    """Name → Entry of every test with the label long, the longest first."""
    shown = run(["ctest", "--preset", "sim", "--show-only=json-v1", "-L", "^long$"])
    found = {}
    for test in json.loads(shown)["tests"]:
        if "command" not in test:
            sys.exit(f"proofs: {test['name']} is not built: make sim")
        properties = {entry["name"]: entry["value"] for entry in test["properties"]}
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        step = next((label for label in properties["LABELS"] if label not in ("", "long")), None)
        entry = Entry(test["command"], environment, properties["TIMEOUT"], properties.get("PROCESSORS", 1) > 1, step)
        found[properties.get("COST", 0), test["name"]] = entry
    return {name: found[cost, name] for cost, name in sorted(found, reverse=True)}


@cache
def sass():
    """The same of `make sass`, which needs nvcc: a test of each step that has a plan."""
    command = [str(ROOT / ".venv/bin/python"), "tools/machine_code/disassembly.py", "sass", "--step"]
    steps = sorted((path.parent.name for path in ROOT.glob("tests/steps/*/plan.json")), reverse=True)  # the later ones take longer
    return {f"sass_{step}": Entry([*command, step[:2]], {}, 1800, False, step) for step in steps}


# ---- what a test read ----


@cache
def tracked():
    """The project's files, less the records themselves."""
    return frozenset(path for path in run(["git", "ls-files"]).splitlines() if not path.startswith("results/proofs/"))


def inside(path):
    """A path relative to the project, or None."""
    return os.path.relpath(path, ROOT) if path.startswith(f"{ROOT}/") else None


@cache
def objects(build):
    """Object → the files that its compiler read, by ninja's log of dependencies."""
    found = {}
    for block in run(["ninja", "-C", build, "-t", "deps"]).split("\n\n"):
        head, *files = block.strip().splitlines() or [""]
        found[head.split(":")[0]] = [os.path.normpath(build / file.strip()) for file in files]
    return found


@cache
def sources_of(target, build):
    """The project's files from which ninja makes a target of a build folder; none if it does not make it."""
    shown = subprocess.run(["ninja", "-C", build, "-t", "inputs", target], capture_output=True, text=True, check=False)
    if shown.returncode:
        return frozenset()
    inputs = shown.stdout.splitlines()
    files = [os.path.normpath(build / path) for path in inputs]
    files += [header for path in inputs for header in objects(build).get(path, [])]
    return frozenset(path for path in map(inside, files) if path in tracked())


def step_of(path):
    match = OF_A_STEP.match(path)
    return match and match[1]


def whole(trace):
    """strace's lines, each in one piece."""
    begun = {}
    for line in trace:
        if match := BEGUN.match(line):
            begun[match[1]] = match[2]
        elif match := ENDED.match(line):
            yield f"{match[1]} {begun.pop(match[1], 'openat(, O_RDONLY')}{match[2]}"
        else:
            yield line


def what_is_open(trace):
    """Of strace's lines: the paths that were opened or executed, relative to the project; and whether nvcc ran, or
    something looked at what it made."""
    opened, nvcc = Counter(), False
    copies, git = set(), {}
    for line in whole(trace):
        if match := EXECUTED.match(line):
            process, path, words = match.groups()
            git[process] = path.endswith("/git") and ("compares" if '"diff"' in words else "lists")
            flags = ""
        elif match := OPENED.match(line):
            process, flags, path = match.groups()
        else:
            continue
        nvcc |= path.endswith(("/nvcc", "/cuobjdump")) and os.path.exists(path)
        mine = inside(path := os.path.normpath(path))
        if mine is None:
            if match := COPY.match(path):
                if "O_CREAT" in flags:
                    copies.add(path)
                else:
                    opened[match[1]] += 1
        elif not git.get(process) or os.path.isfile(path) and mine != ".git/index":  # git diff asks for the files that it is told
            opened[mine] += 1
        elif git[process] == "lists":
            opened["all names"] += 1
    # Who copies a file opens it once. In a copy, names count where a folder is listed.
    for path in copies:
        opened[COPY.match(path)[1]] -= 1
    if not copies and opened["all names"]:
        opened[".git/index"] = 1
    return {path for path, times in opened.items() if times > 0} - {"all names"}, nvcc


def counts(name, path):
    """Whether what a test opened matters to it."""
    return name != "browser_long" or IN_THE_BROWSER.match(path) is not None or path in SOURCES_IN_THE_BROWSER


def reads(paths, step=None):
    """Of the paths that a test opened, and of what those in a build folder were made from: the project's files, and the folders that were
    listed (these end with "/"). With a step, no other step's folder counts, but for what was built from it."""
    files, folders, made = set(), set(), set()
    for path in paths:
        path = re.sub(r"__pycache__/([^/.]+)\.cpython-\d+\.pyc$", r"\1.py", path)  # what Python made of it
        if path.startswith("build/"):
            preset, _, target = path.removeprefix("build/").partition("/")
            if preset in BUILDS and target not in ("", "build.ninja"):  # that is made of what ALWAYS has, and of lists of names
                made |= sources_of(target, BUILDS[preset])
        elif path == ".git/index":
            folders.add("/")  # git's list of all files
        elif path in tracked():
            files.add(path)
        elif any(name.startswith(f"{path}/") for name in tracked()):
            folders.add(f"{path}/")
    folders = {path for path in folders if not LOOKED_THROUGH.match(path)}
    if step:
        files = {path for path in files if step_of(path) in (None, step)}
        folders = {path for path in folders - OF_ALL_STEPS if step_of(path) in (None, step)}
    # A source that is added beside a step's or its tests' belongs to their programs, by CMake's glob.
    return files | made, folders | {f"{os.path.dirname(path)}/" for path in made if step_of(path)}


# ---- keys ----


def compilers(nvcc):
    """Their versions: the build's, and nvcc's if the test called it."""
    found = {}
    for path in sorted((BUILDS["sim"] / "CMakeFiles").glob("*/CMakeCXXCompiler.cmake")):
        text = path.read_text()
        for name in ("ID", "VERSION"):
            found[f"c++ {name.lower()}"] = re.search(rf'set\(CMAKE_CXX_COMPILER_{name} "([^"]*)"\)', text)[1]
    if nvcc:
        root = next((os.environ[name] for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)), "/usr/local/cuda")
        nvcc = Path(root) / "bin" / "nvcc"
        found["nvcc"] = re.search(r"V([\d.]+)", run([nvcc, "--version"]))[1] if nvcc.exists() else "none"
    return found


@cache
def digest_of(path):
    file = ROOT / path
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "missing"


def names_in(folder):
    """The tracked names below a folder, one level deep; of "/", all tracked files."""
    if folder == "/":
        return sorted(tracked())
    return sorted({path.removeprefix(folder).split("/")[0] for path in tracked() if path.startswith(folder)})


def lines_of(record):
    """What the key is made of, a line each."""
    lines = [f"{path} {digest_of(path)}" for path in sorted({*record["reads"], *ALWAYS}) if not path.endswith("/")]
    lines += [f"{path} {' '.join(names_in(path))}" for path in sorted(record["reads"]) if path.endswith("/")]
    return lines + [f"{name} {version}" for name, version in compilers("nvcc" in record["compilers"]).items()] + [record["command"]]


def key_of(record):
    return hashlib.sha256("\n".join(lines_of(record)).encode()).hexdigest()


def command_of(command):
    """As it is wherever the project lies."""
    return " ".join(command).replace(f"{ROOT}/", "")


def state_of(name, entry):
    """Empty if the test's record is valid, else what is wrong with it."""
    file = RECORDS / f"{name}.json"
    if not file.exists():
        return "has no record"
    record = json.loads(file.read_text())
    if record["command"] != command_of(entry.command):
        return "its command changed"
    if key_of(record) == record["key"]:
        return ""
    changed = [path for path in record["reads"] if not path.endswith("/") and not since(record["commit"], path)]
    return f"changed since {record['commit'][:10]}: {', '.join(changed[:3]) or 'names in a folder, the build or a compiler'}"


def since(commit, path):
    """Whether the file is what it was then."""
    then = subprocess.run(["git", "show", f"{commit}:{path}"], cwd=ROOT, capture_output=True, check=False)
    return then.returncode == 0 and hashlib.sha256(then.stdout).hexdigest() == digest_of(path)


# ---- commands ----


def due(entries, seed, again=0.1):
    """The tests that must run: those without a valid record and, of the others, a random choice, with the share `again` of their seconds on
    average."""
    states = {name: state_of(name, entry) for name, entry in entries.items()}
    wanted = [name for name, state in states.items() if state]
    for name in wanted:
        print(f"proofs: {name} {states[name]}", file=sys.stderr)
    held = [name for name in states if not states[name]]
    seconds = {name: json.loads((RECORDS / f"{name}.json").read_text())["seconds"] for name in held}
    chance = random.Random(seed)
    chance.shuffle(held)
    chosen, left = [], sum(seconds.values()) * again
    for name in held:
        if chance.random() * seconds[name] >= left:  # where more seconds than are left would run, chance decides: then they are the mean
            break
        chosen.append(name)
        left -= seconds[name]
    if again > 0 and held and not chosen:
        chosen = [min(held, key=seconds.get)]
    print(f"proofs: {len(seconds)} of {len(entries)} tests have a valid record; again, by chance (--seed {seed}): {', '.join(chosen) or 'none'}", file=sys.stderr)
    return sorted(wanted + chosen)


def cases_of(output):
    """How many cases passed, by Catch2's or pytest's last words; None where neither speaks."""
    for pattern in (r"in (\d+) test cases?\)", r"(?:^|, )(\d+) passed"):
        if match := re.search(pattern, output, re.MULTILINE):
            return int(match[1])
    return None


def prove(name, entry):
    """Runs a test under strace. Its record, or None if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        strace = ["strace", "-f", "-y", "--seccomp-bpf", "-s", "4096", "-e", "trace=openat,execve", "-o", trace]
        began = time.monotonic()
        try:
            done = subprocess.run(
                [*strace, *entry.command],
                cwd=ROOT,
                env={**os.environ, **entry.environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=2 * entry.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"proofs: {name} did not end", flush=True)
            return None
        seconds = time.monotonic() - began
        if done.returncode or re.search(r"\d+ skipped", done.stdout):
            print(f"proofs: {name} failed or skipped a case, no record\n{done.stdout[-4000:]}", flush=True)
            return None
        with trace.open(errors="replace") as lines:
            paths, nvcc = what_is_open(lines)
    for made in (objects, sources_of):
        made.cache_clear()  # the test, and the one beside it, may have built more
    files, folders = reads(paths, entry.step)
    record = {
        "command": command_of(entry.command),
        "commit": run(["git", "rev-parse", "HEAD"]).strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "cases": cases_of(done.stdout),
        "seconds": round(seconds),
        "compilers": compilers(nvcc),
        "reads": sorted(path for path in files | folders if counts(name, path)),
    }
    print(f"proofs: {name} passed in {seconds:.0f} s, which depends on {len(record['reads'])} files and folders", flush=True)
    return {"key": key_of(record), **record}


def record_all(entries):
    if run(["git", "status", "--porcelain", "--", ".", ":!results/proofs"]):
        sys.exit("proofs: commit first; a record says of which commit it is")

    def one(name):
        if record := prove(name, entries[name]):
            RECORDS.mkdir(exist_ok=True)
            (RECORDS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        return bool(record)

    both = [name for name in entries if entries[name].alone]
    with ThreadPoolExecutor(2) as pool:
        passed = list(pool.map(one, [name for name in entries if name not in both]))
    return all(passed + [one(name) for name in both])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["due", "record", "check"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sass", action="store_true", help="make sass, a test of each step, instead of the tests with the label long")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--again", type=float, default=0.1, help="which share of the seconds of tests with a valid record runs again")
    arguments = parser.parse_intermixed_args()
    if not 0 <= arguments.again <= 1:
        sys.exit(f"proofs: --again is {arguments.again}; it must be a number from 0 to 1")
    entries = sass() if arguments.sass else tests()
    if unknown := sorted(set(arguments.names) - set(entries)):
        sys.exit(f"proofs: there is no long test {', '.join(unknown)}")
    if arguments.what == "due":
        print("\n".join(due(entries, arguments.seed, arguments.again)))
    elif arguments.what == "check":
        for name, entry in entries.items():
            print(f"{name}: {state_of(name, entry) or 'valid'}")
    else:
        for preset in ["gpu", "sim"] if arguments.sass else ["sim"]:
            subprocess.run([ROOT / "tools/build", preset], check=True)
        wanted = {name: entry for name, entry in entries.items() if (name in arguments.names if arguments.names else state_of(name, entry))}
        sys.exit(0 if record_all(wanted) else 1)


if __name__ == "__main__":
    main()

"""Records of long proofs: a long test that passed need not run again before a file changes that it read.

    proofs.py due [--sass] [--seed N]    names the tests that have no valid record, and a random tenth of the others (--again X): what CI runs
    proofs.py record [NAME…]             runs the tests without a valid record (or those named), and writes the records of those that pass
    proofs.py check                      says of each test whether its record is valid; if not, which file changed

A record, results/proofs/NAME.json, says what the test read while it ran: strace sees every file that the test, its programs and the
compilers that it starts open. A program of the build stands for all sources and headers from which ninja makes it. Of a copy of the
project that the test made, what it read there counts, and not what it copied. The record's key is a SHA-256 over
    reads      the contents of these files, the names in the folders that were listed, and the commands by which ninja makes the programs
    compiled   the code of the files that compilers alone read: not their comments, blank lines and indentation
and the compilers' versions, what installs and builds, the test's command and its environment. Commands are those of the last `make sim`.
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
ALWAYS = ["requirements.txt", "tools/bootstrap", "tools/build"]  # every test depends on them
GPU_BUILD = ["CMakeLists.txt", "CMakePresets.json", "cmake/FlashSteps.cmake", "cmake/architectures.cmake"]
CODE = (".h", ".cuh", ".cpp", ".cu")
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
EXITED = re.compile(r"^(\d+) +\+\+\+ ")
EXECUTED = re.compile(r'^(\d+) +execve\("(/[^"]+)", (\[.*?\])')
COMPILERS = {"cc1plus", "ccache"}  # who opens sources for g++ and nvcc
COPY = re.compile(r"/.*/FlashSteps/(?!build/)(.+)")  # a test's copy of the project has this name
# Where the compiler and the system's libraries and headers lie, ccache before the compiler, and Python's minor version do not matter.
ELSEWHERE = re.compile(r"-isystem \S+ |(?<![\w.])/(?:[^\s/]+/)+(?:ccache )?|(?<=python3)\.\d+")
# What may hold // or a quote and begins no comment or literal: raw strings, strings, characters, numbers, names. A line that goes on is no gap.
TOKEN = re.compile(
    rb"""
    (?:u8|[uUL])?R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \d(?:'?\w)* | [A-Za-z_]\w* | \\[ \t]*\n |
    (?P<comment>//(?:\\[ \t]*\n|[^\n])* | /\*.*?\*/) | (?P<gap>\s+)
    """,
    re.DOTALL | re.VERBOSE,
)


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


def ninja(tool, target, build):
    """What one of ninja's tools says of a target; nothing if ninja does not make it."""
    return subprocess.run(["ninja", "-C", build, "-t", tool, target], capture_output=True, text=True, check=False).stdout.splitlines()


@cache
def sources_of(target, build):
    """The project's files from which ninja makes a target of a build folder; none if it does not make it."""
    inputs = ninja("inputs", target, build)
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


def role_of(program, words):
    """What a program does with the files that it opens, where that is not to read them. git describe looks whether any file changed."""
    if program == "git":
        return "describes" if '"describe"' in words else "compares" if '"diff"' in words else "lists"
    return "compiles" if program in COMPILERS else None


def what_is_open(trace):
    """Of strace's lines: the paths that were opened or executed, relative to the project; those that compilers alone opened; and whether
    nvcc ran, or something looked at what it made."""
    opened, compiled, nvcc = Counter(), Counter(), False
    copies, does = set(), {}
    for line in whole(trace):
        if match := EXECUTED.match(line):
            process, path, words = match.groups()
            does[process] = role_of(os.path.basename(path), words)
            flags = ""
        elif match := OPENED.match(line):
            process, flags, path = match.groups()
        else:
            if match := EXITED.match(line):
                does.pop(match[1], None)  # another process may have this number next
            continue
        what = does.get(process)
        if what == "describes":
            continue
        found = compiled if what == "compiles" else opened
        nvcc |= path.endswith(("/nvcc", "/cuobjdump")) and os.path.exists(path)
        mine = inside(path := os.path.normpath(path))
        if mine is None:
            if match := COPY.match(path):
                if "O_CREAT" in flags:
                    copies.add(path)
                else:
                    found[match[1]] += 1
        elif what not in ("compares", "lists") or os.path.isfile(path) and mine != ".git/index":  # git diff asks for the files that it is told
            found[mine] += 1
        elif what == "lists":
            opened["all names"] += 1
    # Who copies a file opens it once. In a copy, names count where a folder is listed.
    for path in copies:
        opened[COPY.match(path)[1]] -= 1
    if not copies and opened["all names"]:
        opened[".git/index"] = 1
    opened = {path for path, times in opened.items() if times > 0} - {"all names"}
    return opened, set(compiled) - opened, nvcc


def counts(name, path):
    """Whether what a test opened matters to it."""
    return name != "browser_long" or IN_THE_BROWSER.match(path) is not None or path in SOURCES_IN_THE_BROWSER


def reads(paths, compiled=frozenset(), step=None):
    """Of the paths that a test opened: the project's files, the folders that were listed (these end with "/"), and what ninja makes in a
    build folder; beside them, the files from which that was made, and those that the test's compilers alone read. With a step, no other
    step's folder counts, but for what was built from it."""
    files, folders, programs, made = set(), set(), set(), compiled & tracked()
    for path in paths | compiled - made:
        path = re.sub(r"__pycache__/([^/.]+)\.cpython-\d+\.pyc$", r"\1.py", path)  # what Python made of it
        if path.startswith("build/"):
            preset, _, target = path.removeprefix("build/").partition("/")
            if preset in BUILDS and target not in ("", "build.ninja"):  # the commands in that count where one is used
                sources = sources_of(target, BUILDS[preset])
                made |= sources
                if sources or target == "compile_commands.json":
                    programs.add(path)
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
    folders |= {f"{os.path.dirname(path)}/" for path in made if step_of(path)}
    return files | folders | programs, made - files


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


def code_of(text):
    """C++ without comments, blank lines and indentation."""
    bare = TOKEN.sub(lambda match: b" " if match["comment"] else match[0], text)
    return TOKEN.sub(lambda match: (b"\n" if b"\n" in match[0] else b" ") if match["gap"] else match[0], bare).strip()


def how_made(path):
    """The commands by which ninja makes a file of a build folder, and the sources that CMake wrote for it. Of compile_commands.json: each set
    of flags in it."""
    _, preset, target = path.split("/", 2)
    build = BUILDS[preset]
    if preset == "gpu":  # CI asks before it configures this build
        lines = [digest_of(file) for file in GPU_BUILD]
    elif target == "compile_commands.json":
        lines = sorted({entry["command"].split(" -o ")[0] for entry in json.loads((build / target).read_text())})
    else:
        lines = sorted(ninja("commands", target, build))
        sources = [file for file in ninja("inputs", target, build) if file.startswith(f"{build}/") and file.endswith(CODE)]
        lines += [Path(file).read_text() for file in sources if not ninja("commands", file, build)]
    return ELSEWHERE.sub("", "\n".join(lines).replace(str(ROOT), "."))


def digest(content, code=False):
    return hashlib.sha256(code_of(content) if code else content).hexdigest()


@cache
def digest_of(path, code=False):
    """Of a file's content or of its code alone; of what a build makes, of how it does."""
    if path.startswith("build/"):
        return digest(how_made(path).encode())
    file = ROOT / path
    return digest(file.read_bytes(), code) if file.is_file() else "missing"


def names_in(folder):
    """The tracked names below a folder, one level deep; of "/", all tracked files."""
    if folder == "/":
        return sorted(tracked())
    return sorted({path.removeprefix(folder).split("/")[0] for path in tracked() if path.startswith(folder)})


def lines_of(record):
    """What the key is made of, a line each."""
    lines = [f"{path} {digest_of(path)}" for path in sorted({*record["reads"], *ALWAYS}) if not path.endswith("/")]
    lines += [f"{path} {digest_of(path, path.endswith(CODE))}" for path in sorted(record["compiled"])]
    lines += [f"{path} {' '.join(names_in(path))}" for path in sorted(record["reads"]) if path.endswith("/")]
    return lines + [f"{name} {version}" for name, version in compilers("nvcc" in record["compilers"]).items()] + [record["command"]]


def key_of(record):
    return hashlib.sha256("\n".join(lines_of(record)).encode()).hexdigest()


def command_of(entry):
    """With its environment, as it is wherever the project lies."""
    return " ".join([*(f"{name}={value}" for name, value in entry.environment.items()), *entry.command]).replace(f"{ROOT}/", "")


def state_of(name, entry):
    """Empty if the test's record is valid, else what is wrong with it."""
    file = RECORDS / f"{name}.json"
    if not file.exists():
        return "has no record"
    record = json.loads(file.read_text())
    if "compiled" not in record:
        return "has a record from before keys left comments out"
    if record["command"] != command_of(entry):
        return "its command changed"
    if key_of(record) == record["key"]:
        return ""
    changed = [path for path in record["reads"] if not path.endswith("/") and not path.startswith("build/") and not since(record["commit"], path)]
    changed += [path for path in record["compiled"] if not since(record["commit"], path, path.endswith(CODE))]
    return f"changed since {record['commit'][:10]}: {', '.join(changed[:3]) or 'names in a folder, the build or a compiler'}"


def since(commit, path, code=False):
    """Whether the file, or its code, is what it was then."""
    then = subprocess.run(["git", "show", f"{commit}:{path}"], cwd=ROOT, capture_output=True, check=False)
    return then.returncode == 0 and digest(then.stdout, code) == digest_of(path, code)


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
            *paths, nvcc = what_is_open(lines)
    for made in (objects, sources_of):
        made.cache_clear()  # the test, and the one beside it, may have built more
    read, compiled = (sorted(path for path in paths if counts(name, path)) for paths in reads(*paths, entry.step))
    record = {
        "command": command_of(entry),
        "commit": run(["git", "rev-parse", "HEAD"]).strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "cases": cases_of(done.stdout),
        "seconds": round(seconds),
        "compilers": compilers(nvcc),
        "reads": read,
        "compiled": compiled,
    }
    print(f"proofs: {name} passed in {seconds:.0f} s, which depends on {len(read) + len(compiled)} files and folders", flush=True)
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

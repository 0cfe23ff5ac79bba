"""The records of long proofs: what a test read, when a record no longer holds, and what CI runs."""

import json
import shutil
import sys

import pytest
from conftest import ROOT

from tools.measure import proofs
from tools.measure.proofs import Entry

PATHS = {  # a file of each kind that a test reads
    "a kernel": "steps/05_flash_v2/12_tuned.cuh",
    "a header": "common/device/shapes.h",
    "the simulator": "common/simt/engine.cpp",
    "the test": "tests/tools/test_parity.py",
    "a tool": "tools/measure/parity.py",
    "data": "tests/steps/05_flash_v2/shapes.py",
    "a measurement": "results/h200/parity.json",
}
RECORD = {
    "command": "program --long",
    "commit": "0" * 40,
    "cases": 3,
    "seconds": 60,
    "compilers": {"c++ id": "GNU"},
    "reads": sorted([*PATHS.values(), "steps/05_flash_v2/"]),
    "compiled": ["common/check/verdict.h"],
}
ENTRY = Entry(["program", "--long"], {}, 900, False, "05_flash_v2")


@pytest.fixture
def records(tmp_path, monkeypatch):
    """A folder of records: write(name, …changes)."""
    monkeypatch.setattr(proofs, "RECORDS", tmp_path)

    def write(name, **changes):
        record = {**RECORD, **changes}
        (tmp_path / f"{name}.json").write_text(json.dumps({"key": proofs.key_of(record), **record}))

    return write


# ---- what was read ----


def test_straces_lines_are_read():
    lines = [
        f'7 openat(AT_FDCWD</home/me>, "README.md", O_RDONLY|O_CLOEXEC) = 3<{ROOT}/README.md>',
        '8 openat(AT_FDCWD</home/me>, "shapes.h", O_RDONLY|O_CLOEXEC <unfinished ...>',
        f'8 <... openat resumed>) = 4<{ROOT}/common/device/shapes.h>',
        '7 openat(AT_FDCWD</home/me>, "gone.h", O_RDONLY) = -1 ENOENT (No such file or directory)',
        '9 openat(AT_FDCWD</home/me>, "elsewhere", O_RDONLY) = 5</usr/include/math.h>',
        f'9 execve("{ROOT}/build/sim/bin/05_flash_v2", ["05_flash_v2"], 0x7f /* 20 vars */) = 0',
    ]
    assert proofs.what_is_open(lines) == ({"README.md", "common/device/shapes.h", "build/sim/bin/05_flash_v2"}, set(), False)


def test_what_compilers_alone_open_is_known():
    def opens(process, path):
        return f'{process} openat(AT_FDCWD</home/me>, "x", O_RDONLY) = 3<{path}>'

    header, source, in_a_copy = "common/device/shapes.h", "common/check/verdict.cpp", "common/check/verdict.h"
    lines = [
        '7 execve("/usr/bin/python3", ["python3"], 0x7f /* 20 vars */) = 0',
        '8 execve("/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", ["cc1plus"], 0x7f /* 20 vars */) = 0',
        *(opens(8, path) for path in (f"{ROOT}/{header}", f"{ROOT}/{source}", f"/tmp/7/FlashSteps/{in_a_copy}")),
    ]
    assert proofs.what_is_open(lines) == (set(), {header, source, in_a_copy}, False)
    assert proofs.what_is_open([*lines, opens(7, f"{ROOT}/{header}")]) == ({header}, {source, in_a_copy}, False)
    assert proofs.what_is_open([*lines, "8 +++ exited with 0 +++", opens(8, f"{ROOT}/{header}")])[0] == {header}  # another process 8
    assert proofs.reads({source}, {header, source}) == ({source}, {header})


def copied(path, tree="/tmp/7/FlashSteps"):
    """strace's lines of a process that copies a file of ours."""
    return [
        f'7 openat(AT_FDCWD</home/me>, "{ROOT}/{path}", O_RDONLY|O_CLOEXEC) = 3<{ROOT}/{path}>',
        f'7 openat(AT_FDCWD</home/me>, "{tree}/{path}", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 4<{tree}/{path}>',
    ]


def test_what_is_only_copied_was_not_read_and_what_is_read_in_the_copy_was():
    page, header = "docs/index.md", "common/device/shapes.h"
    copies = [*copied(page), *copied(header)]
    assert proofs.what_is_open(copies)[0] == set()
    in_the_copy = f'8 openat(AT_FDCWD</tmp/7/FlashSteps/build/sim>, "x", O_RDONLY) = 3</tmp/7/FlashSteps/{header}>'
    assert proofs.what_is_open([*copies, in_the_copy])[0] == {header}
    assert proofs.what_is_open([*copies, copies[0]])[0] == {page}  # it was read beside
    assert proofs.what_is_open([*copies, copies[1]])[0] == set()  # written twice, read once
    built = '8 openat(AT_FDCWD</tmp>, "x", O_RDONLY) = 3</tmp/7/FlashSteps/build/sim/bin/05_flash_v2>'
    assert proofs.what_is_open([*copies, built])[0] == set()  # that was made there, of what was read there


def test_git_asks_for_all_names_if_it_lists_them_and_who_copies_them_has_them_from_the_copy():
    def git(words):
        return [
            f'9 execve("/usr/bin/git", ["git", {words}], 0x7f /* 20 vars */) = 0',
            f'9 openat(AT_FDCWD</home/me>, ".git/index", O_RDONLY|O_CLOEXEC) = 3<{ROOT}/.git/index>',
            f'9 openat(AT_FDCWD</home/me>, "docs/", O_RDONLY|O_DIRECTORY) = 4<{ROOT}/docs>',
            f'9 openat(AT_FDCWD</home/me>, "README.md", O_RDONLY) = 4<{ROOT}/README.md>',
        ]

    assert proofs.what_is_open(git('"-C", "x", "ls-files", "-z"'))[0] == {".git/index", "README.md"}
    assert proofs.what_is_open(git('"diff", "--quiet", "--", "README.md"'))[0] == {"README.md"}
    assert proofs.what_is_open(git('"describe", "--always", "--dirty"'))[0] == set()  # that differs at each commit
    assert proofs.what_is_open([*git('"ls-files"'), *copied("docs/index.md")])[0] == {"README.md"}


def test_of_sources_the_browser_depends_on_those_that_it_opens():
    opened = ["docs/index.md", "docs/", "docs/images/chip-light.svg", "tools/book/bookext.py", "tests/tools/page_checks.js", *proofs.SOURCES_IN_THE_BROWSER]
    assert all(proofs.counts("browser_long", path) for path in opened)
    assert proofs.SOURCES_IN_THE_BROWSER <= proofs.tracked() | {"steps/05_flash_v2/"}
    others = ["results/sim/speed.json", "steps/05_flash_v2/step.cu", "CHANGELOG.md", "tools/book/plots/chip.py", "results/digests/"]
    assert not any(proofs.counts("browser_long", path) for path in others)
    assert all(proofs.counts("05_flash_v2_long", path) for path in others)


def test_who_looks_at_machine_code_depends_on_nvcc(tmp_path):
    tool = tmp_path / "cuobjdump"
    tool.touch()
    assert proofs.what_is_open([f'9 execve("{tool}", ["cuobjdump"], 0x7f /* 20 vars */) = 0'])[2]
    assert not proofs.what_is_open([f'9 execve("{tmp_path}/gone/nvcc", ["nvcc"], 0x7f /* 20 vars */) = 0'])[2]


def test_a_program_stands_for_its_sources_and_headers():
    read, compiled = proofs.reads({"build/sim/bin/05_flash_v2"})
    assert compiled >= {
        "steps/05_flash_v2/step.cu",
        "steps/05_flash_v2/12_tuned.cuh",
        "common/simt/engine.cpp",
        "common/run/main.cpp",
        "common/reference/attention.h",
    }
    assert not any(path.startswith(("steps/06", "tests", "docs")) for path in compiled)
    assert read >= {"build/sim/bin/05_flash_v2", "steps/05_flash_v2/"}  # a file that is added there may belong to the program


def test_what_a_step_has_from_another_step_counts_only_if_it_was_built():
    opened = {"steps/06_backward/exercises/table.md", "steps", "steps/05_flash_v2/exercises", "tests/steps/06_backward"}
    opened &= proofs.tracked() | {"steps", "steps/05_flash_v2/exercises", "tests/steps/06_backward"}
    assert proofs.reads(opened, step="05_flash_v2") == ({"steps/05_flash_v2/exercises/"}, set())
    assert "steps/" in proofs.reads(opened)[0]
    assert "steps/05_flash_v2/12_tuned.cuh" not in proofs.reads({"build/sim/bin/01_naive_mha"}, step="01_naive_mha")[1]
    _, compiled = proofs.reads({"build/sim/bin/06_backward"}, step="06_backward")
    linked = {path for path in compiled if proofs.step_of(path) == "05_flash_v2"}
    assert linked  # step 06 links step 05's launches
    assert linked <= proofs.tracked()


def test_python_that_was_compiled_before_is_a_source_all_the_same():
    assert proofs.reads({"tools/measure/__pycache__/parity.cpython-311.pyc"})[0] == {"tools/measure/parity.py"}


def test_folders_in_which_python_looks_for_modules_do_not_count():
    assert proofs.reads({"tools/measure", "tests/tools", "tests", "data"}) == ({"data/"}, set())


def test_how_ninjas_own_file_is_made_does_not_count():
    assert proofs.reads({"build/sim/build.ninja"}) == (set(), set())


def test_gits_index_is_the_list_of_all_files():
    assert proofs.reads({".git/index"}) == ({"/"}, set())


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace: only who writes records needs it")
def test_a_test_is_watched_while_it_runs():
    script = "print(open('data/README.md').readline() and '1 passed')"
    record = proofs.prove("watched", Entry([sys.executable, "-c", script], {}, 60, False, None))
    assert record["reads"] == ["data/README.md"]
    assert record["cases"] == 1
    assert record["key"] == proofs.key_of(record)
    failing = Entry([sys.executable, "-c", "raise SystemExit(1)"], {}, 60, False, None)
    assert proofs.prove("failing", failing) is None


# ---- when a record holds ----


@pytest.mark.parametrize("kind", PATHS)
def test_one_byte_moves_the_key(kind, monkeypatch):
    before, of_file = proofs.key_of(RECORD), proofs.digest_of
    changed = PATHS[kind]
    monkeypatch.setattr(proofs, "digest_of", lambda path, *code: "changed" if path == changed else of_file(path, *code))
    assert proofs.key_of(RECORD) != before


@pytest.mark.parametrize("path", proofs.ALWAYS)
def test_so_does_the_build(path, monkeypatch):
    assert path in proofs.tracked()
    before, of_file = proofs.key_of(RECORD), proofs.digest_of
    monkeypatch.setattr(proofs, "digest_of", lambda other, *code: "changed" if other == path else of_file(other, *code))
    assert proofs.key_of(RECORD) != before


def test_so_do_a_new_file_a_compiler_and_the_command(monkeypatch):
    before, names = proofs.key_of(RECORD), proofs.names_in
    assert proofs.key_of({**RECORD, "command": "program"}) != before
    assert proofs.key_of({**RECORD, "compilers": {"c++ id": "GNU", "nvcc": "13.0"}}) != before  # nvcc counts where it ran
    with monkeypatch.context() as patch:
        patch.setattr(proofs, "names_in", lambda folder: [*names(folder), "new.cuh"])
        assert proofs.key_of(RECORD) != before
    with monkeypatch.context() as patch:
        patch.setattr(proofs, "compilers", lambda _: {"c++ id": "Clang"})
        assert proofs.key_of(RECORD) != before
    assert proofs.key_of({**RECORD, "seconds": 1, "commit": "f" * 40}) == before


def test_the_content_counts_not_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    digests = []
    for text in ("a", "b", "a"):
        (tmp_path / "file").write_text(text)
        digests.append(proofs.digest_of.__wrapped__("file"))
    assert digests[0] == digests[2] != digests[1]
    assert proofs.digest_of.__wrapped__("none") == "missing"


HEADER = """#pragma once
// what f is for
inline int f(int n) {

    return n / 2;  // half, rounded down
}
"""
FLAGS = "build a.o: compile a.cpp\n  flags = -O2\n"
RULES = "rule compile\n  command = /usr/bin/g++ $flags -isystem /usr/local/cuda/include -I/work -c $in -o $out\n"


@pytest.fixture
def key(tmp_path, monkeypatch):
    """key(file=text, …): the key where the test opened read.h, and a.o was made of a.cpp and made.h, when these files have another text."""
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    monkeypatch.setattr(proofs, "BUILDS", {"sim": tmp_path / "build/sim", "gpu": tmp_path / "build/gpu"})
    record = {**RECORD, "reads": ["read.h", "build/sim/a.o"], "compiled": ["made.h"]}

    def of(**changed):
        files = {"read.h": HEADER, "made.h": HEADER, "build/sim/build.ninja": RULES.replace("/work", str(tmp_path)) + FLAGS, "build/sim/a.cpp": "int a;"}
        for name, text in {**files, **changed}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        proofs.digest_of.cache_clear()
        return proofs.key_of(record)

    yield of
    proofs.digest_of.cache_clear()


@pytest.mark.parametrize(
    "changed",
    [
        HEADER.replace("// what f is for", "/* What f\n   is for,\n\n \"really\". */\n\n// and don't"),
        HEADER.replace("  // half, rounded down", ""),
        HEADER.replace("    return", "\t// of n\n  return /* below */"),
    ],
)
def test_comments_and_blank_lines_count_in_what_the_test_opened_and_not_in_what_was_compiled(key, changed):
    assert key(**{"made.h": changed}) == key()
    assert key(**{"read.h": changed}) != key()


def test_each_token_of_what_was_compiled_counts(key):
    for old, new in [("n / 2", "n / 3"), ("n / 2", "n // 2"), ("int n", "int m"), ("once\n", "once\\\n")]:
        assert key(**{"made.h": HEADER.replace(old, new)}) != key(), new


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('f("http://x", "\\"//", L"/* a */"); // b', 'f("http://x", "\\"//", L"/* a */");'),
        ("c = '\"'; // \"", "c = '\"';"),
        ("c = '\\''; /* ' */ d", "c = '\\''; d"),
        ("n = 1'000; // it's", "n = 1'000;"),
        ('R"(a // "b\n\n  c)" // d', 'R"(a // "b\n\n  c)"'),
        ('u8R"x(a)" // b)x" // c', 'u8R"x(a)" // b)x"'),
        ('fooR"(" // ("', 'fooR"("'),
        ("a // b \\\n c\nd", "a\nd"),
        ("#define A \\\n  1 // one\n\n\nint", "#define A \\\n 1\nint"),
        ("#define A \\\n\nint", "#define A \\\n\nint"),
        ("a/**/b /*/ c */ d", "a b d"),
        ('a /* " */ "  b"', 'a "  b"'),
    ],
)
def test_comments_are_told_from_what_looks_like_them(text, code):
    stripped = proofs.code_of(text.encode()).decode()
    assert stripped == code


def test_of_cmake_what_it_wrote_for_a_tests_programs_counts(key):
    ninja = RULES.replace("/work", str(proofs.ROOT)) + FLAGS
    assert key(**{"build/sim/build.ninja": ninja + FLAGS.replace("a.o", "another.o")}) == key()
    assert key(**{"build/sim/build.ninja": ninja.replace("/usr/local/cuda", "/opt").replace("/usr/bin/g++", "/opt/bin/ccache /opt/bin/g++")}) == key()
    assert key(**{"build/sim/build.ninja": ninja.replace("-O2", "-O1")}) != key()
    assert proofs.ELSEWHERE.sub("", "cd ./build && /usr/bin/python3.11 ./cmake/plain_cuda.py") == "cd ./build && python3 ./cmake/plain_cuda.py"
    assert key(**{"build/sim/build.ninja": ninja.replace("a.cpp", f"{proofs.ROOT}/build/sim/a.cpp")}) != key()


def test_so_do_sources_that_cmake_wrote_and_all_flags_for_who_reads_them():
    build = proofs.BUILDS["sim"]
    program, written = "build/sim/bin/05_flash_v2", build / "steps/this_step_05_flash_v2.cpp"
    made = proofs.how_made(program)
    assert written.read_text() in made
    assert str(ROOT) not in made
    assert len(proofs.how_made("build/sim/compile_commands.json").splitlines()) < 100
    assert proofs.reads({"build/sim/compile_commands.json"}) == ({"build/sim/compile_commands.json"}, set())


def test_what_nvcc_makes_depends_on_cmakes_files_since_ci_asks_before_it_configures():
    assert set(proofs.GPU_BUILD) <= proofs.tracked()
    assert proofs.how_made("build/gpu/bin/05_flash_v2").splitlines() == [proofs.digest_of(path) for path in proofs.GPU_BUILD]


def test_what_is_wrong_with_a_record_is_said(records, monkeypatch):
    assert proofs.state_of("tests", ENTRY) == "has no record"
    records("tests")
    assert proofs.state_of("tests", ENTRY) == ""
    assert proofs.state_of("tests", ENTRY._replace(command=["program"])) == "its command changed"
    assert proofs.state_of("tests", ENTRY._replace(environment={"A": "1"})) == "its command changed"
    records("tests", commit=proofs.run(["git", "rev-parse", "HEAD"]).strip())
    of_file = proofs.digest_of
    monkeypatch.setattr(proofs, "digest_of", lambda path, *code: "changed" if path == "common/device/shapes.h" else of_file(path, *code))
    assert "common/device/shapes.h" in proofs.state_of("tests", ENTRY)


def test_a_record_without_a_list_of_what_was_compiled_does_not_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(proofs, "RECORDS", tmp_path)
    old = {name: value for name, value in RECORD.items() if name != "compiled"}
    (tmp_path / "old.json").write_text(json.dumps({"key": "0", **old}))
    assert "from before" in proofs.state_of("old", ENTRY)
    assert proofs.due({"old": ENTRY}, 1) == ["old"]


# ---- what CI runs ----


def test_what_has_no_record_runs_and_a_tenth_of_the_rest(records, capsys):
    names = [f"test_{i}" for i in range(20)]
    entries = dict.fromkeys(["new", *names], ENTRY)
    for name in names:
        records(name)
    chosen = set()
    for seed in range(30):
        wanted = proofs.due(entries, seed)
        assert wanted == proofs.due(entries, seed)
        assert "new" in wanted
        assert len(wanted) == 3  # two of twenty
        chosen |= set(wanted)
    assert len(chosen) > 15
    said = capsys.readouterr().err
    assert "new has no record" in said
    assert "20 of 21 tests have a valid record" in said
    assert "--seed 7" in said


def test_with_records_alone_something_is_proved_again(records):
    records("only")
    assert proofs.due({"only": ENTRY}, 1) == ["only"]
    assert proofs.due({"only": ENTRY}, 1, again=0) == []


def test_what_is_proved_again_takes_a_tenth_of_the_seconds_on_average_and_may_be_any_test(records):
    seconds = {f"test_{i}": 10 * i for i in range(1, 31)} | {"long": 1000}  # which has more than a tenth of all
    for name, each in seconds.items():
        records(name, seconds=each)
    entries = dict.fromkeys(seconds, ENTRY)
    chosen = [proofs.due(entries, seed) for seed in range(400)]
    assert {name for names in chosen for name in names} == set(seconds)
    mean = sum(seconds[name] for names in chosen for name in names) / len(chosen)
    assert mean == pytest.approx(sum(seconds.values()) / 10, rel=0.1)


def test_every_record_is_a_tests():
    known = {**proofs.tests(), **proofs.sass()}
    for file in (ROOT / "results" / "proofs").glob("*.json"):
        record = json.loads(file.read_text())
        assert file.stem in known, f"{file.name}: there is no such test any more"
        assert record["reads"]
        assert record["seconds"] >= 0


@pytest.mark.parametrize(
    ("output", "cases"),
    [
        ("All tests passed (212 assertions in 1 test case)", 1),
        ("All tests passed (95 assertions in 12 test cases)", 12),
        ("....\n4 passed, 31 deselected in 3.2s", 4),
        ("1 failed, 3 passed in 1s", 3),
        ("nothing", None),
    ],
)
def test_cases_are_counted(output, cases):
    assert proofs.cases_of(output) == cases

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
    assert proofs.what_is_open(lines) == ({"README.md", "common/device/shapes.h", "build/sim/bin/05_flash_v2"}, False)


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
    assert proofs.what_is_open([f'9 execve("{tool}", ["cuobjdump"], 0x7f /* 20 vars */) = 0'])[1]
    assert not proofs.what_is_open([f'9 execve("{tmp_path}/gone/nvcc", ["nvcc"], 0x7f /* 20 vars */) = 0'])[1]


def test_a_program_stands_for_its_sources_and_headers():
    files, folders = proofs.reads({"build/sim/bin/05_flash_v2"})
    assert files >= {
        "steps/05_flash_v2/step.cu",
        "steps/05_flash_v2/12_tuned.cuh",
        "common/simt/engine.cpp",
        "common/run/main.cpp",
        "common/reference/attention.h",
    }
    assert not any(path.startswith(("steps/06", "tests", "docs")) for path in files)
    assert "steps/05_flash_v2/" in folders  # a file that is added there may belong to the program


def test_what_a_step_has_from_another_step_counts_only_if_it_was_built():
    opened = {"steps/06_backward/exercises/table.md", "steps", "steps/05_flash_v2/exercises", "tests/steps/06_backward"}
    opened &= proofs.tracked() | {"steps", "steps/05_flash_v2/exercises", "tests/steps/06_backward"}
    assert proofs.reads(opened, "05_flash_v2") == (set(), {"steps/05_flash_v2/exercises/"})
    assert "steps/" in proofs.reads(opened)[1]
    assert "steps/05_flash_v2/12_tuned.cuh" not in proofs.reads({"build/sim/bin/01_naive_mha"}, "01_naive_mha")[0]
    files, _ = proofs.reads({"build/sim/bin/06_backward"}, "06_backward")
    linked = {path for path in files if proofs.step_of(path) == "05_flash_v2"}
    assert linked  # step 06 links step 05's launches
    assert linked <= proofs.tracked()


def test_python_that_was_compiled_before_is_a_source_all_the_same():
    assert proofs.reads({"tools/measure/__pycache__/parity.cpython-311.pyc"})[0] == {"tools/measure/parity.py"}


def test_folders_in_which_python_looks_for_modules_do_not_count():
    assert proofs.reads({"tools/measure", "tests/tools", "tests", "data"}) == (set(), {"data/"})


def test_how_ninjas_own_file_is_made_does_not_count():
    assert proofs.reads({"build/sim/build.ninja"}) == (set(), set())


def test_gits_index_is_the_list_of_all_files():
    assert proofs.reads({".git/index"}) == (set(), {"/"})


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
    monkeypatch.setattr(proofs, "digest_of", lambda path: "changed" if path == changed else of_file(path))
    assert proofs.key_of(RECORD) != before


@pytest.mark.parametrize("path", proofs.ALWAYS)
def test_so_does_the_build(path, monkeypatch):
    assert path in proofs.tracked()
    before, of_file = proofs.key_of(RECORD), proofs.digest_of
    monkeypatch.setattr(proofs, "digest_of", lambda other: "changed" if other == path else of_file(other))
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


def test_what_is_wrong_with_a_record_is_said(records, monkeypatch):
    assert proofs.state_of("tests", ENTRY) == "has no record"
    records("tests")
    assert proofs.state_of("tests", ENTRY) == ""
    assert proofs.state_of("tests", ENTRY._replace(command=["program"])) == "its command changed"
    records("tests", commit=proofs.run(["git", "rev-parse", "HEAD"]).strip())
    of_file = proofs.digest_of
    monkeypatch.setattr(proofs, "digest_of", lambda path: "changed" if path == "common/device/shapes.h" else of_file(path))
    assert "common/device/shapes.h" in proofs.state_of("tests", ENTRY)


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

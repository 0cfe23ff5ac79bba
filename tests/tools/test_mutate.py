"""The mutation tool: what it finds in a text, what it refuses, what it makes of runs; and a few mutants, alive."""

import fcntl
import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from conftest import BIN, ROOT, cxx

from tools.book import tables
from tools.mutate import mutants, mutate, rebuild

STEPS = sorted(ROOT / "steps" / path.parent.name for path in ROOT.glob("tests/steps/*/mutants.json"))


def only(found):
    assert len(found) == 1, found
    return found[0]


# ---- what is code ----


@pytest.mark.parametrize(
    "text",
    [
        "// __syncthreads();\n",
        "// a line that goes on \\\n__syncthreads();\n",
        "/* one\n__syncthreads();\ntwo */\n",
        'f("__syncthreads();");\n',
        'f("\\"__syncthreads();");\n',
        'f(R"x(")__syncthreads();)x");\n',
        "using ptx::cp_async_wait_group;\n",
        "my__syncthreads();\n",
        "__syncthreads_and(p);\n",
    ],
)
def test_what_only_looks_like_a_call_is_left_alone(text):
    assert mutants.find_calls("a.cuh", text) == []


@pytest.mark.parametrize("before", ["'\"'; ", "1'000; ", "0xFF'FF; f(\"'\"); ", "/**/ ", 'R"(")"; ', "// '\n"])
def test_a_call_after_what_looks_like_the_beginning_of_a_literal_is_found(before):
    text = before + "__syncthreads(); // '\n"
    assert only(mutants.find_calls("a.cuh", text)).apply(text) == before + "; // '\n"


def test_blanked_text_keeps_every_place():
    text = 'a /* b\n c */ "d" + // e\nf'
    blanked = mutants.code_only(text)
    assert len(blanked) == len(text)
    assert {place: blanked[place] for place in range(len(text)) if not blanked[place].isspace()} == {0: "a", 17: "+", 24: "f"}
    assert blanked.count("\n") == 2


# ---- remove ----


@pytest.mark.parametrize(
    ("text", "name", "left"),
    [
        ("{\n  __syncthreads();\n}", "2 remove __syncthreads()", "{\n  ;\n}"),
        ("if (x) __syncwarp(mask & (1 << 3)); else y;", "1 remove __syncwarp(mask & (1 << 3))", "if (x) ; else y;"),
        ("odd = __syncthreads_or(odd | f(x));", "1 remove __syncthreads_or(odd | f(x))", "odd = (odd | f(x));"),
        ("else __syncwarp();", "1 remove __syncwarp()", "else ;"),
        ("a;\n__syncwarp(\n    mask);\nb;", "2 remove __syncwarp( mask)", "a;\n\n;\nb;"),  # lines keep their numbers
        ("::__syncthreads ( ) ;", "1 remove ::__syncthreads ( )", " ;"),
        ("device::ptx::cp_async_wait_all();", "1 remove device::ptx::cp_async_wait_all()", ";"),
        ("if (i < n) ptx::red_add_f32(&sums[i], x);", "1 remove ptx::red_add_f32(&sums[i], x)", "if (i < n) ;"),
    ],
)
def test_a_removed_call_leaves_an_empty_statement(text, name, left):
    mutant = only(mutants.find_calls("a.cuh", text))
    assert mutant.id == f"a.cuh:{name}"
    assert mutant.apply(text) == left


def test_a_new_kind_of_barrier_is_one_entry_of_the_table():
    text = "smem.full[stage % 2].wait(phase);\nqueue->wait(0);\nptx::mbarrier_wait(&bar[i], phase);"
    found = mutants.find_calls("a.cuh", text, {"wait": False, "mbarrier_wait": False})
    names = ["smem.full[stage % 2].wait(phase)", "queue->wait(0)", "ptx::mbarrier_wait(&bar[i], phase)"]
    assert [mutant.before for mutant in found] == names
    assert [mutant.apply(text).splitlines()[n] for n, mutant in enumerate(found)] == [";"] * 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("int n = __syncthreads();", r"a\.cuh:1: .* no statement"),
        ("x;\nreturn __syncwarp();", r"a\.cuh:2: .* no statement"),
        ("f(__syncthreads(), 1);", "no statement"),
        ("#define WAIT __syncthreads()\n", "no statement"),
        ("void __syncwarp(int mask) {}", "no statement"),
        ("ptx::cp_async_wait_group<1 < n>();", r"a\.cuh, line 1: nothing closes this <"),
        ("__syncthreads(;", r"nothing closes this \("),
        ("ptx::cp_async_wait_group();", "no count"),
    ],
)
def test_a_call_that_cannot_be_changed_is_refused_and_never_skipped(text, reason):
    with pytest.raises(mutants.MutationError, match=reason):
        mutants.find_calls("a.cuh", text)


# ---- weaken ----


@pytest.mark.parametrize(
    ("call", "weaker"),
    [
        ("cp_async_wait_group<0>()", "cp_async_wait_group<0 + 1>()"),
        ("ptx::cp_async_wait_group<stages>()", "ptx::cp_async_wait_group<stages + 1>()"),
        ("ptx::cp_async_wait_group<stages - 2>()", "ptx::cp_async_wait_group<(stages - 2) + 1>()"),
        ("ptx::cp_async_wait_group<(a > b) ? 1 : 0>()", "ptx::cp_async_wait_group<((a > b) ? 1 : 0) + 1>()"),
        ("ptx::cp_async_wait_group<least<a, T<b>>() - 1>()", "ptx::cp_async_wait_group<(least<a, T<b>>() - 1) + 1>()"),
        ("ptx::cp_async_wait_group<f(x->y)[1] << 1>()", "ptx::cp_async_wait_group<(f(x->y)[1] << 1) + 1>()"),
        ("cp_async_wait_group< /* > */ 1 >()", "cp_async_wait_group<(/* > */ 1) + 1>()"),
        ("cp_async_wait_group(2)", "cp_async_wait_group(2 + 1)"),
        ("cp_async_wait_group(stages - (tile + 1 < tiles ? 2 : 1))", "cp_async_wait_group((stages - (tile + 1 < tiles ? 2 : 1)) + 1)"),
        ("cp_async_wait_group(\n  n)", "cp_async_wait_group(n + 1)"),
    ],
)
def test_a_wait_is_removed_or_lets_one_more_copy_be_on_its_way(call, weaker):
    text = f"// {call};\n{call};\n"
    removed, weakened = mutants.find_calls("a.cuh", text)
    assert removed.what.startswith("remove ") and removed.apply(text).replace("\n", "") == f"// {call};;".replace("\n", "")
    assert weakened.what.startswith("weaken ") and weakened.apply(text).split(";")[1].strip() == weaker
    assert {removed.line, weakened.line} == {2 + call.count("\n")}


# ---- shift ----


@pytest.mark.parametrize(
    ("mark", "text", "more", "less"),
    [
        ("partial[[i]] = 0", "s.partial[i] = 0;", "s.partial[(i + 1)] = 0;", "s.partial[(i - 1)] = 0;"),
        ("partial[[i + live]]", "partial[i + live];", "partial[((i + live) + 1)];", "partial[((i + live) - 1)];"),
        ("row(b, [[h / g]], j)[t]", "row(b, h / g, j)[t];", "row(b, ((h / g) + 1), j)[t];", "row(b, ((h / g) - 1), j)[t];"),
        ("row(i)[[t]]", "row(i)[t];", "row(i)[(t + 1)];", "row(i)[(t - 1)];"),
        ("a[[b[c[0]]]]", "a[b[c[0]]];", "a[(b[c[0]] + 1)];", "a[(b[c[0]] - 1)];"),
        ("a[1][[b[2]]]", "a[1][b[2]];", "a[1][((b[2]) + 1)];", "a[1][((b[2]) - 1)];"),
        ("j < [[shape.dim]];", "j < shape.dim;", "j < (shape.dim + 1);", "j < (shape.dim - 1);"),
        ("f([[i]], i)", "f(i, i);", "f((i + 1), i);", "f((i - 1), i);"),
    ],
)
def test_a_marked_index_is_shifted_both_ways(mark, text, more, less):
    plus, minus = mutants.find_marked("a.cuh", text, mark)
    bare = lambda code: code.replace("(", "").replace(")", "")
    assert bare(plus.apply(text)) == bare(more)
    assert bare(minus.apply(text)) == bare(less)
    assert plus.id == f"a.cuh:1 shift +1 {mark}"


def test_a_source_that_changed_meanwhile_is_refused():
    more, _ = mutants.find_marked("a.cuh", "a[i];", "a[[i]]")
    with pytest.raises(mutants.MutationError, match="a.cuh has changed since"):
        more.apply("/**/ a[i];")


def test_a_shifted_index_stays_one_operand():
    text = "x[i / n * 4]"
    assert mutants.find_marked("a.cuh", text, "i / [[n]] *")[0].apply(text) == "x[i / (n + 1) * 4]"
    assert mutants.find_marked("a.cuh", text, "[[i / n]] *")[1].apply(text) == "x[((i / n) - 1) * 4]"


def test_a_text_that_stands_there_more_than_once_says_so():
    text = "a[i];\n// a[i]\na[i];\n"
    found = mutants.find_marked("a.cuh", text, "a[[i]]", occurrences=2)
    assert [mutant.line for mutant in found] == [1, 1, 3, 3]  # not in the comment
    for occurrences in (1, 3):
        with pytest.raises(mutants.MutationError, match=rf"a\.cuh: “a\[i\]” .* stands there 2 times, not {occurrences}"):
            mutants.find_marked("a.cuh", text, "a[[i]]", occurrences)


@pytest.mark.parametrize(
    ("swap", "text", "swapped"),
    [
        ("{[[a]], [[b]]}", "{a, b}", "{b, a}"),
        ("{[[b[q % 2]]], [[b[q % 2 + 1]]]};", "x = {b[q % 2], b[q % 2 + 1]};", "x = {b[q % 2 + 1], b[q % 2]};"),
        ("s[[2 * i]], t[[j]]", "f(s[2 * i], t[j])", "f(s[j], t[2 * i])"),
        ("[[lane / 16]] * 8 + [[lane]] % 2", "lane / 16 * 8 + lane % 2", "lane * 8 + lane / 16 % 2"),
    ],
)
def test_two_marked_parts_change_places(swap, text, swapped):
    mutant = only(mutants.find_swapped("a.cuh", text, swap))
    assert mutant.apply(text) == swapped
    assert mutant.id == f"a.cuh:1 swap {swap}"
    entry = {"marks": [{"swap": swap, "occurrences": 2}]}
    assert [mutant.line for mutant in mutants.find_in_file("a.cuh", f"{text}\n{text}", entry)] == [1, 2]


@pytest.mark.parametrize("swap", ["{[[a]], b}", "{[[a]], [[b]], [[c]]}", "{[[a]], [[b}"])
def test_a_swap_marks_exactly_two_places(swap):
    with pytest.raises(mutants.MutationError, match="exactly 2 places"):
        mutants.find_swapped("a.cuh", "{a, b}", swap)


@pytest.mark.parametrize("mark", ["b[[i]]", "a[[j]]", "a [[i]]"])
def test_a_stale_mark_is_refused_by_name(mark):
    with pytest.raises(mutants.MutationError, match="stands there 0 times") as error:
        mutants.find_in_file("a.cuh", "a[i]; // b[i]", {"marks": [mark]})
    assert mark in str(error.value)


@pytest.mark.parametrize("mark", ["a[i]", "a[[i]] + a[[i]]", "a[[]]", "a[[i]", "a[[b[i]]"])
def test_a_mark_marks_exactly_one_index(mark):
    with pytest.raises(mutants.MutationError, match="marks nothing|exactly one"):
        mutants.read_mark(mark)


# ---- names and reasons ----


def test_names_differ_and_do_not_depend_on_the_order_of_marks():
    text = "x[i] = x[i];\n__syncwarp(); __syncwarp();\n"
    marks = ["x[[i]] =", "= x[[i]]"]
    found = mutants.find_in_file("a.cuh", text, {"marks": marks})
    assert [mutant.id for mutant in found][-2:] == ["a.cuh:2 remove __syncwarp()", "a.cuh:2 remove __syncwarp(), no. 2 of the line"]
    assert len({mutant.id for mutant in found}) == 6
    assert found == mutants.find_in_file("a.cuh", text, {"marks": marks[::-1]})


def test_an_equivalent_mutant_is_named_with_or_without_its_line():
    text = "__syncwarp();\n__syncwarp();\n"
    every = mutants.find_in_file("a.cuh", text, {"equivalent": {"remove __syncwarp()": "one warp"}})
    assert [mutant.equivalent for mutant in every] == ["one warp", "one warp"]
    one = mutants.find_in_file("a.cuh", text, {"equivalent": {":2 remove __syncwarp()": "the last"}})
    assert [mutant.equivalent for mutant in one] == [None, "the last"]
    with pytest.raises(mutants.MutationError, match="no mutant is called “:3 remove __syncwarp\\(\\)”"):
        mutants.find_in_file("a.cuh", text, {"equivalent": {":3 remove __syncwarp()": "gone"}})


@pytest.fixture
def step(tmp_path):
    """A step's folder with two sources and marks that fit."""
    folder = tmp_path / "steps" / "07_step"
    folder.mkdir(parents=True)
    marks_of(folder).parent.mkdir(parents=True)
    (folder / "1_a.cuh").write_text("a[i];\n__syncthreads();\n")
    (folder / "host.h").write_text("n / 4;\n")
    write_marks(folder, files={"1_a.cuh": {"marks": ["a[[i]]"]}, "host.h": {"shapes": ["small"], "marks": ["n / [[4]]"]}})
    return folder


def marks_of(folder):
    return folder.parents[1] / "tests" / "steps" / folder.name / "mutants.json"


def write_marks(folder, **changes):
    shapes = {"default": [], "small": ["--seq-q", "3"]}
    marks_of(folder).write_text(json.dumps({"shapes": shapes, "files": {"1_a.cuh": {}}} | changes))


def test_a_step_has_the_mutants_of_all_its_sources_each_with_its_shapes(step):
    found, shapes = mutants.find(step)
    assert shapes == {"default": [], "small": ["--seq-q", "3"]}
    assert [(mutant.id, mutant.shapes) for mutant in found] == [
        ("1_a.cuh:1 shift +1 a[[i]]", ("default", "small")),
        ("1_a.cuh:1 shift -1 a[[i]]", ("default", "small")),
        ("1_a.cuh:2 remove __syncthreads()", ("default", "small")),
        ("host.h:1 shift +1 n / [[4]]", ("small",)),
        ("host.h:1 shift -1 n / [[4]]", ("small",)),
    ]


def test_what_a_step_shares_with_later_ones_is_its_own_too_but_no_other_shared_file(step):
    device = step.parents[1] / "common" / "device"
    for name in ("step/a.cuh", "other/b.cuh", "c.h"):
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text("a[i];\n__syncthreads();\n")
    marked = {"shapes": ["small"], "marks": ["a[[i]]"]}
    files = {"1_a.cuh": {}, "common/device/step/a.cuh": marked, "common/device/c.h": marked}
    write_marks(step, files=files)
    found = [mutant.id for mutant in mutants.find(step)[0] if "/" in mutant.file]
    shifts = [f"shift {sign}1 a[[i]]" for sign in "+-"]
    assert found == [*(f"common/device/step/a.cuh:1 {shift}" for shift in shifts), "common/device/step/a.cuh:2 remove __syncthreads()",
                     *(f"common/device/c.h:1 {shift}" for shift in shifts)]  # fmt: skip
    del files["common/device/step/a.cuh"]
    write_marks(step, files=files)
    with pytest.raises(mutants.MutationError, match="says nothing of common/device/step/a.cuh"):
        mutants.find(step)


def test_a_mark_may_have_shapes_of_its_own(step):
    write_marks(step, files={"1_a.cuh": {"shapes": ["default"], "marks": [{"mark": "a[[i]]", "shapes": ["small"]}]}})
    found = {mutant.what: mutant.shapes for mutant in mutants.find(step)[0] if mutant.file == "1_a.cuh"}
    assert found == {"shift +1 a[[i]]": ("small",), "shift -1 a[[i]]": ("small",), "remove __syncthreads()": ("default",)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"files": {"1_a.cuh": {"marks": [{"mark": "a[[i]]", "shapes": ["large"]}]}}}, "unknown: large"),
        ({"files": {}}, "says nothing of 1_a.cuh"),
        ({"files": {"1_a.cuh": {}, "2_b.cuh": {}}}, "2_b.cuh, which does not exist"),
        ({"files": {"1_a.cuh": {"shapes": ["large"]}}}, "unknown: large"),
        ({"files": {"1_a.cuh": {"mark": []}}}, "unknown: mark"),
        ({"files": {"1_a.cuh": {"marks": [{"mark": "a[[i]]", "times": 2}]}}}, "this one is .*times"),
        ({"files": {"1_a.cuh": {"marks": [{"occurrences": 2}]}}}, "this one is .*occurrences"),
        ({"files": {"1_a.cuh": {"marks": [{"mark": "a[[i]]", "swap": "[[a]] [[i]]"}]}}}, "this one is .*swap"),
        ({"shapes": ["default"]}, "cannot be read"),
        ({"files": None}, "cannot be read"),
    ],
)
def test_a_mutants_json_that_does_not_fit_is_refused(step, changes, reason):
    write_marks(step, **changes)
    with pytest.raises(mutants.MutationError, match=reason):
        mutants.find(step)


def test_a_mutants_json_that_is_missing_or_no_json_is_refused(step):
    marks_of(step).write_text("{")
    with pytest.raises(mutants.MutationError, match="cannot be read"):
        mutants.find(step)
    marks_of(step).unlink()
    with pytest.raises(mutants.MutationError, match="07_step has no mutants.json"):
        mutants.find(step)


# ---- what is compiled ----


def test_what_ninja_knows_of_an_object_or_does_not():
    text = "a.o: #deps 2, deps mtime 17 (VALID)\n    /a/a.cu\n    b c.h\n\nb.o: #deps 1, deps mtime 17 (STALE)\n    b.cu\n\nc.o: deps not found\n"
    assert rebuild.read_deps(text) == {"a.o": ["/a/a.cu", "b c.h"], "b.o": None, "c.o": None}


SMALL = {  # a step of two sources, and a test that reads one of its headers; each program's exit status says what it was made of
    "common/c.h": "constexpr int c = 1;",
    "steps/07_step/1_a.cuh": '#include "common/c.h"\nconstexpr int a = c;',
    "steps/07_step/2_b.cuh": "constexpr int b = 2;",
    "steps/07_step/step.cu": '#include "steps/07_step/1_a.cuh"\nint step() { return a; }',
    "steps/07_step/other.sm_90a.cu": '#include "steps/07_step/2_b.cuh"\nint other() { return b; }',
    "common/main.cpp": "int step(), other();\nint main() { return 10 * step() + other(); }",
    "tests/test.cpp": '#include "steps/07_step/2_b.cuh"\nint step(), other();\nint main() { return 100 * b + 10 * step() + other(); }',
}
RULES = """rule compile
  command = CXX -MD -MF $out.d -I.. -o $out -c -xc++ $in
  depfile = $out.d
  deps = gcc
rule link
  command = CXX $in -o $out
build bin/07_step: link step.cu.o other.sm_90a.cu.o main.cpp.o
build tests/test_07_step: link test.cpp.o step.cu.o other.sm_90a.cu.o
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """(its build, a tree with a copy of the step)."""
    build = tmp_path / "build"
    build.mkdir()
    for name, text in SMALL.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    sources = [tmp_path / name for name in SMALL if not name.endswith("h")]
    compile_them = "".join(f"build {source.name}.o: compile {source}\n" for source in sources)
    (build / "build.ninja").write_text(RULES.replace("CXX", cxx()) + compile_them)
    commands = [{"file": str(source), "command": f"{cxx()} -I.. -o {source.name}.o -c -xc++ {source}"} for source in sources]
    (build / "compile_commands.json").write_text(json.dumps(commands))
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    tree = tmp_path / "tree"
    mutate.copy_step("07_step", tree)
    return build, tree


def made(builder, tree, changed):
    """(the exit status of the program that it builds, the objects that it compiled for that)."""
    program, error = builder(tree, changed)
    assert error is None
    return subprocess.run([program], check=False).returncode, sorted(path.name for path in tree.glob("*.o"))


def test_what_does_not_read_the_changed_file_is_taken_from_the_build(small):
    build, tree = small
    (tree / "steps" / "07_step" / "1_a.cuh").write_text("constexpr int a = 3;\n")
    assert made(mutate.Builder(build, "07_step"), tree, {"1_a.cuh"}) == (32, ["step.cu.o"])
    assert made(mutate.Builder(build, "07_step", "tests/test_07_step"), tree, {"1_a.cuh"}) == (232, ["step.cu.o"])


def test_a_test_that_reads_the_changed_file_is_compiled_too(small):
    build, tree = small
    (tree / "steps" / "07_step" / "2_b.cuh").write_text("constexpr int b = 1;\n")
    assert made(mutate.Builder(build, "07_step"), tree, {"2_b.cuh"}) == (11, ["other.sm_90a.cu.o"])
    assert made(mutate.Builder(build, "07_step", "tests/test_07_step"), tree, {"2_b.cuh"}) == (111, ["other.sm_90a.cu.o", "test.cpp.o"])


def test_a_shared_header_is_taken_from_the_tree_by_all_that_reads_it(small):
    build, tree = small
    text = (mutate.ROOT / "common" / "c.h").read_text()
    mutant = mutants.Mutant("common/c.h", 1, "shift", text.index("1"), text.index("1") + 1, "1", "4")
    mutate.shutil.rmtree(tree / "steps")
    mutate.copy_step("07_step", tree, mutant)
    assert made(mutate.Builder(build, "07_step"), tree, {"common/c.h"}) == (42, ["step.cu.o"])


def test_without_a_word_on_what_changed_all_that_reads_the_step_is_compiled(small):
    build, tree = small
    assert made(mutate.Builder(build, "07_step"), tree, None) == (12, ["other.sm_90a.cu.o", "step.cu.o"])


def test_a_source_of_which_ninja_knows_nothing_is_compiled_every_time(small, monkeypatch):
    build, tree = small
    known = mutate.Builder.read_files
    unknown = lambda self: known(self) | {mutate.ROOT / "common" / "main.cpp": None}
    monkeypatch.setattr(mutate.Builder, "read_files", unknown)
    assert made(mutate.Builder(build, "07_step"), tree, {"1_a.cuh"}) == (12, ["main.cpp.o", "step.cu.o"])


def test_of_a_source_of_two_programs_the_right_object_is_replaced(small):
    build, tree = small
    source = next(mutate.ROOT.glob("steps/07_step/step.cu"))
    commands = json.loads((build / "compile_commands.json").read_text())
    commands.insert(0, {"file": str(source), "command": f"{cxx()} -I.. -o elsewhere.o -c -xc++ {source}"})
    (build / "compile_commands.json").write_text(json.dumps(commands))
    (tree / "steps" / "07_step" / "1_a.cuh").write_text("constexpr int a = 3;\n")
    assert made(mutate.Builder(build, "07_step"), tree, {"1_a.cuh"}) == (32, ["step.cu.o"])


def test_the_compiler_is_called_without_the_program_that_starts_it(small):
    build, tree = small
    commands = (build / "compile_commands.json").read_text()
    (build / "compile_commands.json").write_text(commands.replace('"command": "', '"command": "/nowhere/ccache '))
    assert made(mutate.Builder(build, "07_step"), tree, None) == (12, ["other.sm_90a.cu.o", "step.cu.o"])


def test_only_one_script_at_a_time_builds_in_a_folder(tmp_path):
    with open(tmp_path / "one_at_a_time.lock", "w") as other:
        with rebuild.alone_in(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_last_flags_win(small):
    build, tree = small
    (tree / "steps" / "07_step" / "1_a.cuh").write_text("constexpr int a = A;\n")
    assert made(mutate.Builder(build, "07_step", last=("-DA=2", "-UA", "-DA=5")), tree, {"1_a.cuh"}) == (52, ["step.cu.o"])


def test_what_the_compiler_says_names_no_folder_of_the_tool(small):
    build, tree = small
    (tree / "steps" / "07_step" / "1_a.cuh").write_text("constexpr int a = ;\n")
    program, error = mutate.Builder(build, "07_step")(tree, {"1_a.cuh"})
    assert program is None and error.startswith("steps/07_step/1_a.cuh:1:")


# ---- what runs say ----

RACE = """race: write after read of Smem::partial[0], with nothing that orders them
  read at steps/07_step/1_a.cuh:44 by block (5, 0, 0), warp 0, lane 14 (thread (14, 0, 0))
  written at steps/07_step/1_a.cuh:38 by block (5, 0, 0), warp 0, lane 0 (thread (0, 0, 0))
  at steps/07_step/1_a.cuh:38 in kernel step::kernel
  replay: --sim-seed 1"""
OUTSIDE = "out-of-bounds read: …\n  by block (0, 0, 0), warp 0, lane 0 (thread (0, 0, 0))\n  at steps/07_step/1_a.cuh:7 in kernel k"


def report(*findings, reason=None):
    found = [{"kind": text.split(":")[0], "text": text} for text in findings]
    return {"results": [{"findings": found, "verdict": {"pass": reason is None, "reason": reason}}]}


def test_a_report_says_what_complained_and_what_came_first():
    assert mutate.complaints(report()) == ([], "")
    assert mutate.complaints(report(RACE, OUTSIDE, RACE)) == (["race", "out-of-bounds read"], RACE)
    assert mutate.complaints(report(RACE, reason="O: row 3")) == (["race", "wrong result"], RACE)
    assert mutate.complaints(report(reason="O: row 3")) == (["wrong result"], "O: row 3")


def test_a_race_has_two_lines_and_anything_else_one():
    assert mutate.places(RACE) == ["steps/07_step/1_a.cuh:44", "steps/07_step/1_a.cuh:38"]
    assert mutate.places(OUTSIDE) == ["steps/07_step/1_a.cuh:7"]
    called = ", called at steps/07_step/2_b.cuh:9, called at steps/07_step/2_b.cuh:20"
    in_helper = RACE.replace("cuh:44", "cuh:44" + called).replace("cuh:38", "cuh:38" + called)
    assert mutate.places(in_helper) == mutate.places(RACE)
    assert mutate.places("O: row (batch 0, head 3, query 120): error 2.3 where 5.9e-06 is allowed") == []


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("exit 0", []),
        ("exit 3", ["refused launch"]),
        ("kill -SEGV $$", ["crash (SIGSEGV)"]),
        ("while :; do :; done", ["hang"]),
    ],
)
def test_a_run_that_ends_badly_is_caught_too(tmp_path, script, kinds):
    program = tmp_path / "program"
    quiet = json.dumps(report())
    program.write_text(f"#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\necho '{quiet}' > $1\n{script}\n")
    program.chmod(0o755)
    done = mutate.run(program, "default", [], 1, 1, tmp_path / "report.json")
    assert done.kinds == kinds


@pytest.mark.parametrize(
    ("script", "kinds"),
    [("exit 0", []), ("exit 3", ["failed test"]), ("kill -SEGV $$", ["crash (SIGSEGV)"])],
)  # fmt: skip
def test_a_test_of_the_step_may_notice_too(tmp_path, script, kinds):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'one\\, \\[two\\] --abort' ] || exit 9\n{script}\n")
    program.chmod(0o755)
    assert mutate.run(program, "a test", ["--test", "one, [two]"], 1, 5, tmp_path / "report.json").kinds == kinds


def test_of_the_whole_quick_tier_the_first_test_that_failed_has_a_name(tmp_path):
    line = "-" * 79
    report = f"{line}\\na name that goes on\\nin the next line\\n{line}\\n/a/test.cpp:7\\n....\\n\\nFAILED:\\n"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = '--abort' ] || exit 9\nprintf '%b' '{report}'\nexit 3\n")
    program.chmod(0o755)
    (shape, arguments), = mutate.QUICK_TIER.items()
    done = mutate.run(program, shape, arguments, 1, 5, tmp_path / "report.json")
    assert (done.kinds, done.text) == (["failed test"], "a name that goes on in the next line: failed")


def test_a_test_that_is_not_there_is_an_error(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho No tests ran\n")
    program.chmod(0o755)
    with pytest.raises(mutate.UsageError, match="has no test “one”"):
        mutate.run(program, "a test", ["--test", "one"], 1, 5, tmp_path / "report.json")


def mutant(equivalent=None):
    return mutants.Mutant("1_a.cuh", 2, "remove __syncthreads()", 0, 1, "a", "b", ("default",), equivalent)


def test_a_mutant_is_summed_up_over_its_runs():
    quiet = mutate.Run("default", 1, [])
    raced = mutate.Run("default", 2, ["race", "wrong result"], RACE, mutate.places(RACE))
    result = mutate.summarise(mutant(), [quiet, raced, raced])
    assert (result["caught"], result["runs"], result["by"]) == (2, 3, {"race": 2, "wrong result": 2})
    assert result["at"] == {"default": 2}
    assert (result["first"]["by"], result["first"]["seed"], result["first"]["lines"]) == ("race", 2, mutate.places(RACE))
    assert mutate.complaint(result) is None
    assert "2 of 3     race 2, wrong result 2  steps/07_step/1_a.cuh:44 and" in mutate.as_text([result])


def test_runs_with_right_values_are_those_where_the_simulator_alone_spoke():
    kinds = [["race"], ["race", "wrong result"], ["wrong result"], []]
    runs = [mutate.Run("default", 1, one) for one in kinds] + [mutate.Run("default", 1, ["hang"], ended=False)]
    assert mutate.summarise(mutant(), runs)["right_values"] == 1


@pytest.mark.parametrize(
    ("kinds", "reason", "complaint", "status"),
    [
        (["race"], None, None, 0),
        ([], "one warp", None, 0),
        ([], None, "was not caught", 1),
        (["race"], "one warp", "was caught, although", 1),
    ],
)
def test_what_is_neither_caught_nor_explained_or_both_is_a_failure(monkeypatch, capsys, kinds, reason, complaint, status):
    class Laboratory:
        def __init__(self, *arguments):
            pass

        def baseline(self, mutants, jobs):
            pass

        def __call__(self, mutant):
            return [mutate.Run("default", 1, kinds)]

    monkeypatch.setattr(mutate, "Laboratory", Laboratory)
    monkeypatch.setattr(mutate, "find", lambda folder: ([mutant(reason), mutant(reason)], {"default": []}))
    assert mutate.mutate(mutate.parse_arguments(["--step", "01", "--sample", "1"])) == status
    assert (complaint or "1 mutant: ") in "".join(capsys.readouterr())


def test_results_come_one_by_one_and_what_is_there_is_not_run_again(monkeypatch, tmp_path):
    found = [replace(mutant(), line=line) for line in (2, 3)]
    out, ran = tmp_path / "results" / "out.json", []
    there = lambda: [result["id"] for result in json.loads(out.read_text())["mutants"]]

    class Laboratory:
        def __init__(self, *arguments):
            pass

        def baseline(self, mutants, jobs):
            pass

        def __call__(self, mutant):
            ran.append(mutant.id)
            if ran == [found[0].id, found[1].id]:  # the run ends from outside, once the first one's result is there
                while not out.exists():
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return [mutate.Run("default", seed, ["race"]) for seed in mutate.SEEDS]

    monkeypatch.setattr(mutate, "Laboratory", Laboratory)
    monkeypatch.setattr(mutate, "find", lambda folder: (found, {"default": []}))
    arguments = mutate.parse_arguments(["--step", "01", "--json", str(out), "--missing", "--jobs", "1"])
    with pytest.raises(KeyboardInterrupt):
        mutate.mutate(arguments)
    assert there() == [found[0].id]
    assert mutate.mutate(arguments) == 0
    assert there() == [one.id for one in found]
    assert mutate.mutate(arguments) == 0
    assert ran == [found[0].id, found[1].id, found[1].id]
    assert [path.name for path in out.parent.iterdir()] == ["out.json"]


def test_a_sample_depends_on_its_seed_alone():
    all_of_them = [mutants.Mutant("a", line, "x", 0, 0, "", "") for line in range(50)]
    names = lambda seed: [mutant.id for mutant in mutate.choose(all_of_them, sample=5, seed=seed)]
    assert names(1) == names(1) != names(2)
    assert names(1) == sorted(names(1), key=lambda name: int(name.split(":")[1].split()[0]))


def document(*results, shapes=None):
    shapes = {"default": []} if shapes is None else shapes
    return {"step": "07_step", "seeds": list(mutate.SEEDS), "shapes": shapes, "mutants": list(results)}


def test_a_part_of_the_results_can_be_renewed_as_long_as_the_rest_fits():
    first = mutant()
    second = mutants.Mutant("1_a.cuh", 3, "remove __syncwarp()", 5, 6, "a", "b", ("default",))
    runs = lambda kind: [mutate.Run("default", seed, [kind]) for seed in mutate.SEEDS]
    old = [mutate.summarise(one, runs("race")) for one in (first, second)]
    new = mutate.summarise(second, runs("hang"))
    assert mutate.merged(document(new), document(*old), [first, second]) == [old[0], new]
    assert mutate.merged(document(*old), None, [first, second]) == old
    explained = mutate.merged(document(new), document(*old), [replace(first, equivalent="a reason"), second])
    assert explained == [old[0] | {"equivalent": "a reason"}, new]
    elsewhere = {"default": [], "other": ["--seq-q", "3"]}
    assert mutate.merged(document(new, shapes=elsewhere), document(*old), [first, second]) == [old[0], new]
    other_runs = old[0] | {"runs": 6}
    for older in (None, document(*old, shapes={}), document(*old, shapes={"default": ["--dim", "3"]}), document(old[1]),
                  document(other_runs, old[1])):  # fmt: skip
        with pytest.raises(mutate.UsageError, match="missing: 1_a.cuh:2 remove"):
            mutate.merged(document(new), older, [first, second])
    with pytest.raises(mutate.UsageError, match="missing: 1_a.cuh:2 remove"):
        mutate.merged(document(new), document(*old), [replace(first, after="c"), second])


def test_results_are_written_one_mutant_a_line():
    results = [mutate.summarise(mutant(), [mutate.Run("default", 1, [])])] * 2
    text = mutate.as_json(document(*results))
    assert json.loads(text) == document(*results)
    assert text.count('{"id": ') == text.count("\n  {") == 2


# ---- the committed results ----


@pytest.mark.parametrize("folder", STEPS, ids=lambda folder: folder.name)
def test_the_committed_results_are_of_todays_mutants_and_all_are_caught_or_explained(folder):
    committed = json.loads((ROOT / "results" / "mutants" / f"{folder.name}.json").read_text())
    differences = mutate.outdated(committed, *mutants.find(folder))
    assert differences == [], f"run make mutate STEP={folder.name[:2]} UPDATE=1"
    assert [result["id"] for result in committed["mutants"] if mutate.complaint(result)] == []


SAMPLE = 20  # of each step: make mutate STEP=01 TIER=quick SAMPLE=20
TIER = ROOT / "results" / "mutants" / "quick_tier.json"


def test_the_quick_tier_alone_caught_the_sample_of_every_step():
    steps = json.loads(TIER.read_text())["steps"]
    assert sorted(steps) == [folder.name for folder in STEPS]
    for folder in STEPS:
        sample = steps[folder.name]["mutants"]
        there_are = sum(mutant.equivalent is None for mutant in mutants.find(folder)[0])
        assert len({mutant["id"] for mutant in sample}) == len(sample) == min(SAMPLE, there_are), folder.name
        assert [mutant["id"] for mutant in sample if not mutant["caught_by"]] == []


def test_results_of_one_step_leave_those_of_the_others_in_the_quick_tiers_file():
    caught = mutate.summarise(mutant(), [mutate.Run("quick tier", 1, ["failed test"], "a test: failed", ended=False)])
    survived = mutate.summarise(mutant(), [mutate.Run("quick tier", 1, [])])
    older = json.loads(mutate.recorded(None, "07_step", 1, [caught]))
    both = mutate.recorded(older, "06_step", 2, [survived, caught])
    brief = {"id": caught["id"], "before": "a", "after": "b", "caught_by": "failed test: a test"}
    unnoticed = brief | {"caught_by": None}
    assert json.loads(both) == {"steps": {"06_step": {"seed": 2, "mutants": [unnoticed, brief]}, "07_step": {"seed": 1, "mutants": [brief]}}}
    assert both.count('\n   {"id": ') == 3  # one a line


def test_the_committed_results_name_no_machine():
    for file in (ROOT / "results" / "mutants").glob("*.json"):
        assert str(ROOT) not in file.read_text() and "/tmp" not in file.read_text()


# ---- the book's tables ----


def test_the_tables_of_the_book_come_from_the_results(tmp_path):
    seen = [
        ("remove __syncthreads()", [["race"], ["race", "wrong result"], []], None),
        ("shift +1 a[[i | 1]]", [["wrong result"]], None),
        ("shift -1 a[[i | 1]]", [[]], "nobody looks"),
        ("shift +1 b[[i]]", [["hang"]], None),
        ("shift -1 b[[i]]", [["out-of-bounds read"]], None),
        ("swap {[[a]], [[b]]}", [["failed test"]], None),
    ]
    results = []
    for line, (what, runs, reason) in enumerate(seen, 7):
        ended = runs[0] not in (["hang"], ["failed test"])
        runs = [mutate.Run("default", seed, kinds, RACE, mutate.places(RACE), ended) for seed, kinds in enumerate(runs)]
        results.append(mutate.summarise(mutants.Mutant("1_a.cuh", line, what, 0, 0, "", "", ("default",), reason), runs))
    results[2]["line"], results[4]["line"] = results[1]["line"], results[3]["line"]
    (tmp_path / "results" / "mutants").mkdir(parents=True)
    shapes = {"default": [], "small": ["--seq-q", "3"]}
    (tmp_path / "results" / "mutants" / "07_step.json").write_text(mutate.as_json(document(*results, shapes=shapes)))
    rows = {name: tables.make(tmp_path, name, ["07_step"]).splitlines()[2:] for name in tables.TABLES if name.startswith("mutant")}
    assert sorted(rows["mutants"][:-1]) == [
        "| a test of the step alone | 0 | 1 | 0 |",
        "| neither: it hung, crashed or was refused | 0 | 0 | 1 |",
        "| nobody can: it is equivalent | 0 | 0 | 1 |",
        "| the checker alone | 0 | 0 | 1 |",
        "| the simulator alone, by an access that is not allowed | 0 | 0 | 1 |",
        "| the simulator and the checker | 1 | 0 | 0 |",
    ]
    assert rows["mutants"][-1] == "| all | 1 | 1 | 4 |"
    assert rows["mutant-calls"] == [
        "| 1_a.cuh:7 | `remove __syncthreads()` | race, wrong result | 2 of 3 | 1 | 1_a.cuh:44 and 1_a.cuh:38 |",
        "| 1_a.cuh:12 | `swap {[[a]], [[b]]}` | failed test | 1 of 1 | 0 | 1_a.cuh:44 and 1_a.cuh:38 |",
    ]
    assert rows["mutant-shifts"] == [
        "| 1_a.cuh:8 | `a[[i \\| 1]]` | wrong result | equivalent |",
        "| 1_a.cuh:10 | `b[[i]]` | hang | out-of-bounds read |",
    ]
    assert rows["mutants-equivalent"] == ["| 1_a.cuh:8 | `shift -1 a[[i \\| 1]]` | nobody looks |"]
    assert rows["mutant-shapes"] == ["| default |  | 5 | 5 |", "| small | `--seq-q 3` | 0 | 0 |"]


# ---- the command line ----


def command(*arguments):
    words = [sys.executable, ROOT / "tools" / "mutate" / "mutate.py", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_list_names_the_mutants_and_only_chooses_among_them():
    names = command("--step", "01", "--list").stdout.splitlines()
    assert len(names) == len(set(names)) == len(mutants.find(ROOT / "steps" / "01_naive_mha")[0])
    barriers = command("--step", "01", "--list", "--only", "remove __syncthreads()").stdout.splitlines()
    assert barriers == [name for name in names if name.endswith("remove __syncthreads()")]
    assert len(barriers) == 3


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (["--step", "99"], "there is no step 99; there are: "),
        (["--step", "01", "--only", "nowhere"], "no mutant's name holds “nowhere”"),
        (["--step", "01", "--sample", "0"], "'0' is not a whole number of at least 1"),
        (["--step", "01", "--sample", "2", "--update"], "--update goes neither"),
        (["--step", "01", "--missing"], "--missing goes with --update or with --json"),
        (["--step", "01", "--tier", "quick", "--update"], "--tier does not go with --update"),
        (["--step", "01", "--build", "nowhere"], "nowhere is no finished build"),
        (["--step", "01", "--frobnicate"], "unrecognized arguments"),
        ([], "--step"),
    ],
)
def test_bad_usage_is_refused_with_status_2(arguments, saying):
    done = command(*arguments)
    assert done.returncode == 2
    assert saying in done.stderr
    assert "Traceback" not in done.stderr


def test_a_barrier_is_removed_in_a_copy_and_caught(tmp_path):
    if not (BIN / "01_naive_mha").exists():
        pytest.skip(f"{BIN}/01_naive_mha is not built")
    mutated = mutants.find(ROOT / "steps" / "01_naive_mha")[0]
    barrier = next(m.id for m in mutated if m.what == "remove __syncthreads()")
    before = {path: path.read_bytes() for path in (ROOT / "steps" / "01_naive_mha").iterdir() if path.is_file()}
    out, keep = tmp_path / "out.json", tmp_path / "keep"
    done = command("--step", "01", "--build", BIN.parent, "--only", barrier, "--json", out, "--keep", keep)
    assert done.returncode == 0, done.stdout + done.stderr
    result = only(json.loads(out.read_text())["mutants"])
    assert result["id"] == barrier
    assert result["caught"] == result["runs"] == result["by"]["race"] > 0
    assert result["first"]["by"] == "race"
    assert [place.rpartition(":")[0] for place in result["first"]["lines"]] == ["steps/01_naive_mha/05_block_softmax.cuh"] * 2
    assert before == {path: path.read_bytes() for path in before}
    kept = only(list(keep.glob("05_block_softmax*"))) / "steps" / "01_naive_mha" / "05_block_softmax.cuh"
    assert kept.read_text().count("__syncthreads();") == 2


WHOLE_LIST = "every variant is right over the whole shape list, in fp16 and bf16 by turns"


@pytest.mark.long
@pytest.mark.parametrize("what", ["b_frag", "lane % 16", "acc"], ids=lambda what: f"02_tiled_gemm-{what}")
def test_swapped_registers_of_a_fragment_fail_a_named_test(tmp_path, what):
    if not (BIN / "02_tiled_gemm").exists():
        pytest.skip(f"{BIN}/02_tiled_gemm is not built")
    found = mutants.find(ROOT / "steps" / "02_tiled_gemm")[0]
    swaps = [mutant for mutant in found if mutant.file in ("04_tensor_cores.cuh", "load_store.cuh") and mutant.what.startswith("swap ")]
    swap = next(mutant for mutant in swaps if what in mutant.what)
    mutate.copy_step("02_tiled_gemm", tmp_path, swap)
    program, error = mutate.Builder(BIN.parent, "02_tiled_gemm", "tests/test_02_tiled_gemm")(tmp_path, {swap.file})
    assert error is None
    done = subprocess.run([program, WHOLE_LIST.replace(",", "\\,")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "variant tensor_cores, " in done.stdout  # the first one whose fragments are swapped; those before it pass
    assert "1 failed" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("folder", [ROOT / "steps" / name for name in ("02_tiled_gemm", "04_flash_v1")], ids=lambda folder: folder.name)
def test_the_quick_tier_alone_catches_a_mutant(folder, tmp_path):
    """One of the committed sample, of two steps whose tests are short: they run twice, without the mutant and with it."""
    if not (BIN / folder.name).exists():
        pytest.skip(f"{BIN}/{folder.name} is not built")
    there = {mutant.id for mutant in mutants.find(folder)[0]}
    sample = [mutant["id"] for mutant in json.loads(TIER.read_text())["steps"][folder.name]["mutants"] if mutant["id"] in there]
    chosen = min(sample)  # of the first kernel file
    out = tmp_path / "out.json"
    done = command("--step", folder.name[:2], "--tier", "quick", "--build", BIN.parent, "--only", chosen, "--json", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert only([result for result in json.loads(out.read_text())["mutants"] if result["id"] == chosen])["caught"] == 1

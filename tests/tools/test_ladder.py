"""tools/measure/ladder.py: what it counts, each rule of a ladder broken once, and the ladders of our steps."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

from tools.measure import ladder

# ---- lines of code ----


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("int a;  // b;\n\n/* c;\n d; */ int e;\n", ["int a ;", "int e ;"]),
        ("int a; // b; \\\nc;\nint d;", ["int a ;", "int d ;"]),  # the comment goes on behind the backslash
        ('auto a = "// b; \\" /* c;"; int d;', ['auto a = "// b; \\" /* c;" ;', "int d ;"]),
        ('auto a = R"x(// b;\n"; )" })x"; int c;', ['auto a = R"x(// b;\n"; )" })x" ;', "int c ;"]),
        ("char a = '\"', b = '\\''; int c = 65'536;  // d", ["char a = '\"' , b = '\\'' ;", "int c = 65'536 ;"]),
        ("int a /* = 1; */ = 2;\nfloat b = 1e-3f * 0x1p-2;", ["int a = 2 ;", "float b = 1e-3f * 0x1p-2 ;"]),
        ('asm("mov "\n    "r0;" : : "r"(a));', ['asm ( "mov r0;" : : "r" ( a ) ) ;']),
        ("#define F(x) \\\n  g(x); \\\n  h(x)\nint a;", ["# define F ( x ) g ( x ) ; h ( x )", "int a ;"]),
        ("#pragma unroll  // why\nfor (int i = 0; i < 4; ++i) f(i);", ["# pragma unroll", "for ( int i = 0 ; i < 4 ; ++ i ) f ( i ) ;"]),
        ("for (;;) for (auto a : b) c();", ["for ( ; ; )", "for ( auto a : b ) c ( ) ;"]),
        ("if (a) return b;\nelse { c(); }", ["if ( a ) return b ;", "else {", "c ( ) ;", "}"]),
        ("if (a) { b(); } else { c(); }", ["if ( a ) {", "b ( ) ;", "} else {", "c ( ) ;", "}"]),
        ("do { a(); } while (b);\nwhile (c) { d(); } while (e) f();", ["do {", "a ( ) ;", "} while ( b ) ;", "while ( c ) {", "d ( ) ;", "}", "while ( e ) f ( ) ;"]),
        ("template <class T, template <class, int> class U> void f(T a) { g(T{}); }",
         ["template < class T , template < class , int > class U >", "void f ( T a ) {", "g ( T { } ) ;", "}"]),
        ("const auto f = [&] { return A{1, 2}; };", ["const auto f = [ & ] {", "return A { 1 , 2 } ;", "} ;"]),
        ("g([&](auto i) -> int { h(i); }, 1);", ["g ( [ & ] ( auto i ) -> int {", "h ( i ) ;", "} , 1 ) ;"]),
        ("float a[2][2] = {{1, 2}, {3, 4}}, b[4]{};", ["float a [ 2 ] [ 2 ] = { { 1 , 2 } , { 3 , 4 } } , b [ 4 ] { } ;"]),
        ("struct alignas(16) A : B { int a; C c{}; };", ["struct alignas ( 16 ) A : B {", "int a ;", "C c { } ;", "} ;"]),
        ("namespace a::b {\ninline constexpr int c{1};\n}", ["namespace a :: b {", "inline constexpr int c { 1 } ;", "}"]),
    ],
)  # fmt: skip
def test_what_a_line_is(text, lines):
    assert list(ladder.code_lines(text)) == lines


BEFORE = "void f(int a, int b) {\n  g(a);\n  for (int i = 0; i < a; ++i) h(a, b);\n}\n"


@pytest.mark.parametrize(
    ("after", "added"),
    [
        (BEFORE, 0),
        ("void f(int a,\n       int b)\n{\n  g(a);  // why\n\n  for (int i = 0; i < a; ++i)\n    h(a,\n      b);\n}", 0),
        (BEFORE.replace("g(a);", "g(b);"), 1),
        (BEFORE.replace("g(a);", ""), 0),
        (BEFORE.replace("g(a);", "if (a) {\n g(a); }"), 2),
        (BEFORE.replace("int b", "int c").replace("(a, b)", "(a, c)"), 2),  # a new name counts wherever it is used
    ],
)
def test_what_an_added_line_is(after, added):
    assert ladder.added(ladder.code_lines(BEFORE), ladder.code_lines(after)) == added


STYLES = [
    "{BasedOnStyle: Google, ColumnLimit: 50, SortIncludes: false, Standard: c++20}",
    "{BasedOnStyle: LLVM, ColumnLimit: 400, BreakBeforeBraces: Allman, AlwaysBreakTemplateDeclarations: No, SortIncludes: false, FixNamespaceComments: false}",
]


@pytest.mark.parametrize("style", STYLES)
def test_the_layout_of_our_kernels_does_not_matter(style):
    program = Path(sys.executable).with_name("clang-format")
    if not program.exists():
        pytest.skip("no clang-format: make lint installs it")
    kernels = [path for folder in ladder.ladders() for path in ladder.numbered(folder)]
    assert kernels
    for path in kernels:
        text = path.read_text()
        other = subprocess.run([program, "--style", style], input=text, capture_output=True, text=True, check=True).stdout
        assert other != text
        assert ladder.code_lines(other) == ladder.code_lines(text), path


# ---- the rules of a ladder ----

STEP_CU = 'const std::vector variants = {variant("plain", "…"), variant("tiled", "…"), variant("tuned", "…"), variant("edges", "…")};  // "gone"\n'


def kernel(lines, *head):
    return "".join(f"// {line}\n" for line in head) + "//\n// Why.\n#pragma once\n\n" + "".join(f"int a{n};\n" for n in range(lines))


@pytest.fixture
def step(tmp_path):
    """A step with a ladder in which nothing is wrong."""
    folder = tmp_path / "steps" / "09_x"
    folder.mkdir(parents=True)
    (folder / "step.cu").write_text(STEP_CU)
    (folder / "helper.cuh").write_text("int helper;\n")
    (folder / "01_plain.cuh").write_text(kernel(100, "09_x, plain: an idea."))
    (folder / "02_tiled.cuh").write_text(kernel(160, "09_x, tiled: an idea that", "needs two lines.", "Predecessor: 01_plain.cuh"))
    (folder / "03_helped.cuh").write_text(kernel(170, "09_x, helped: no variant.", "Predecessor: 02_tiled.cuh (tried: slower)"))
    (folder / "10_tuned.cuh").write_text(kernel(220, "09_x, tuned: an idea.", "Predecessor: 02_tiled.cuh"))
    (folder / "11_edges.cuh").write_text(kernel(400, "09_x, edges: any size.", "Predecessor: 10_tuned.cuh (option: any size)"))
    return folder


def test_a_ladder_that_keeps_the_rules(step):
    assert ladder.problems_of(step) == []
    assert ladder.ladders(step.parents[1]) == [step]
    assert [(rung.variant, rung.note) for rung in ladder.rungs_of(step)] == [
        ("plain", None), ("tiled", None), ("helped", "tried"), ("tuned", None), ("edges", "option")]  # fmt: skip
    assert ladder.rungs_of(step)[1].idea == "an idea that needs two lines."
    assert [rung.variant for rung in ladder.variant_rungs(step)] == ["plain", "tiled", None, "tuned", "edges"]
    assert [line.split() for line in ladder.as_text(step).splitlines()[2:]] == [
        ["01_plain.cuh", "-", "101", "-"],
        ["02_tiled.cuh", "01_plain.cuh", "161", "60"],
        ["03_helped.cuh", "02_tiled.cuh", "171", "10", "tried"],
        ["10_tuned.cuh", "02_tiled.cuh", "221", "60"],
        ["11_edges.cuh", "10_tuned.cuh", "401", "180", "option"],
    ]


def test_code_of_a_rung_that_lies_in_common_device_is_counted_with_it(step):
    before = {rung.name: (len(rung.lines), ladder.added_lines(rung)) for rung in ladder.rungs_of(step)}
    device = step.parents[1] / "common" / "device" / "x"
    device.mkdir(parents=True)
    moved, kept = (step / "02_tiled.cuh").read_text().split("int a157;\n")
    (step / "02_tiled.cuh").write_text(moved.replace("#pragma once\n", '#pragma once\n#include "common/device/x/part.cuh"\n') + kept)
    (device / "part.cuh").write_text("// Of 09_x/02_tiled.cuh: a part.\n#pragma once\n#include <cmath>\nnamespace x {\nint a157;\n\n"
                                     "// Of 09_x/11_edges.cuh: more.\nint more;\n\n// Not of a rung.\nint again;\n}  // namespace x\n")  # fmt: skip
    (device / "other.cuh").write_text("// For all.\nint c;\n\n// Of 09_x/11_edges.cuh: the most.\nint most;\n\nint d;\n")
    after = {rung.name: (len(rung.lines), ladder.added_lines(rung)) for rung in ladder.rungs_of(step)}
    assert after["edges"] == tuple(n + 2 for n in before["edges"])
    assert after["tiled"] == tuple(n + 1 for n in before["tiled"])  # "again" is of the whole file, part.cuh
    assert after["plain"] == before["plain"]
    assert {"int most ;", "int more ;"} < set(ladder.rungs_of(step)[-1].lines) and "int c ;" not in ladder.rungs_of(step)[-1].lines


def test_a_predecessor_may_be_a_rung_of_an_earlier_step(step):
    earlier = step.with_name("08_y")
    earlier.mkdir()
    (earlier / "07_last.cuh").write_text(kernel(90, "08_y, last: an idea."))
    first = step / "01_plain.cuh"
    for named, problems in (
        ("08_y/07_last.cuh", []),
        ("08_y/06_gone.cuh", ["01_plain.cuh: its predecessor 08_y/06_gone.cuh is no numbered file of an earlier step"]),
        ("09_x/02_tiled.cuh", ["01_plain.cuh: its predecessor 09_x/02_tiled.cuh is no numbered file of an earlier step"]),
    ):
        first.write_text(kernel(100, "09_x, plain: an idea.", f"Predecessor: {named}"))
        assert ladder.problems_of(step) == problems
    first.write_text(kernel(100, "09_x, plain: an idea.", "Predecessor: 08_y/07_last.cuh"))
    assert ladder.added_lines(ladder.rungs_of(step)[0]) == 10


def test_numbers_of_one_digit_are_in_order_too(step):
    for path in ladder.numbered(step)[:3]:
        text = path.read_text().replace("02_tiled", "2_tiled").replace("01_plain", "1_plain")
        path.with_name(path.name.lstrip("0")).write_text(text)
        path.unlink()
    (step / "10_tuned.cuh").write_text((step / "10_tuned.cuh").read_text().replace("02_tiled", "2_tiled"))
    assert ladder.problems_of(step) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("02_tiled", "int a0;", "int more, b;\nint a0;", "adds 61 lines to 01_plain.cuh, more than 60"),
        ("03_helped", "int a0;", "int b;\n" * 51 + "int a0;", "adds 61 lines"),  # that a rung lost does not exempt it
        ("11_edges", " (option: any size)", "", "adds 180 lines"),
        ("02_tiled", "01_plain.cuh", "01_gone.cuh", "its predecessor 01_gone.cuh is no numbered file of 09_x"),
        ("02_tiled", "01_plain.cuh", "helper.cuh", "its predecessor helper.cuh is no numbered file of 09_x"),
        ("02_tiled", "01_plain.cuh", "10_tuned.cuh", "its predecessor 10_tuned.cuh does not come before it"),
        ("02_tiled", "01_plain.cuh", "02_tiled.cuh", "its predecessor 02_tiled.cuh does not come before it"),
        ("02_tiled", "// Predecessor: 01_plain.cuh\n", "", "only the first file has no predecessor"),
        ("02_tiled", "// Predecessor: 01_plain.cuh\n", "// Predecessor: 01_plain.cuh\n" * 2, "must be one line"),
        ("02_tiled", "// Predecessor: 01_plain.cuh\n", "// Predecessor: 01_plain.cuh, and more\n", "must be one line"),
        ("02_tiled", "// Predecessor: 01_plain.cuh\n", "// Predecessor: 01_plain.cuh\n// More.\n", "the last of the first paragraph"),
        ("02_tiled", "01_plain.cuh", "01_plain.cuh (better: why)", "(better: …) is neither of option, tried"),
        ("02_tiled", "// 09_x, tiled: an", "// Step 09, file 2: an", "the first line must be"),
        ("02_tiled", "// 09_x, tiled: an", "\n// 09_x, tiled: an", "the first line must be"),
        ("02_tiled", "// 09_x", "// 08_x", "the header names the step 08_x"),
        ("02_tiled", ", tiled:", ", plain:", "the header names the variant plain, but the file bears the name of another one"),
        ("02_tiled", ", tiled:", ", gone:", "gone is neither a variant of step.cu nor the name of the file"),
        ("03_helped", ", helped:", ", gone:", "gone is neither a variant of step.cu nor the name of the file"),
    ],
)
def test_a_broken_rule_is_noticed(step, name, old, new, problem):
    path = step / f"{name}.cuh"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    found = ladder.problems_of(step)
    assert any(text.startswith(f"{name}.cuh: ") and problem in text for text in found), found


def test_a_number_that_is_given_twice_is_noticed(step):
    shutil.copy(step / "02_tiled.cuh", step / "02_helped.cuh")
    assert "02_helped.cuh: 02_tiled.cuh has the same number" in ladder.problems_of(step)


@pytest.mark.parametrize("broken", [False, True])
def test_the_command_prints_the_tables_and_fails_where_a_rule_is_broken(step, broken, monkeypatch, capsys):
    if broken:
        (step / "10_tuned.cuh").write_text(kernel(221, "09_x, tuned: an idea.", "Predecessor: 02_tiled.cuh"))
    monkeypatch.setattr(ladder, "ladders", lambda: [step])
    monkeypatch.setattr(sys, "argv", ["ladder.py", "09"])
    with pytest.raises(SystemExit) as end:
        ladder.main()
    assert end.value.code == int(broken)
    printed = capsys.readouterr()
    assert "11_edges.cuh" in printed.out
    assert ("09_x/10_tuned.cuh: adds 61 lines" in printed.err) == broken


def test_the_files_to_open_are_what_a_kernel_includes_but_for_the_machine(step, monkeypatch, capsys):
    root = step.parents[1]
    for name in ("common/device/a.cuh", "common/device/b.cuh", "common/simt/engine.h", "common/runtime/launch.h"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("int x;\n")
    (root / "common/device/a.cuh").write_text('#include "common/device/b.cuh"\n#include "common/simt/engine.h"\n#include "common/device/a.cuh"\n')
    (step / "01_plain.cuh").write_text('#include <cmath>\n#include "common/device/a.cuh"\n#include "common/runtime/launch.h"\n')
    assert ladder.files_to_open(step / "01_plain.cuh", root) == {"steps/09_x/01_plain.cuh": 3, "common/device/a.cuh": 3, "common/device/b.cuh": 1}
    monkeypatch.setattr(ladder, "ladders", lambda: [step])
    monkeypatch.setattr(sys, "argv", ["ladder.py", "--files"])
    ladder.main()
    assert "01_plain.cuh: 3 files, 7 lines\n     3  steps/09_x/01_plain.cuh\n     3  common/device/a.cuh\n     1  common/device/b.cuh\n" in capsys.readouterr().out


# ---- our ladders ----


def test_the_toy_step_is_a_ladder_to_be_copied():
    folder = ROOT / "tests" / "tools" / "toy_step" / "steps" / "99_toy"
    assert [rung.variant for rung in ladder.rungs_of(folder)] == ["row_per_thread", "hopper"]
    assert ladder.problems_of(folder) == []


@pytest.mark.parametrize("folder", ladder.ladders(), ids=lambda folder: folder.name)
def test_every_rung_holds_one_idea(folder, capsys):
    with capsys.disabled():  # for ctest -V
        print(f"\n{folder.name}: added lines of code, at most {ladder.MOST}\n\n{ladder.as_text(folder)}\n")
    assert len(ladder.numbered(folder)) > 1
    assert ladder.problems_of(folder) == []

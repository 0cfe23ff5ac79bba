"""A variant as one file: it holds nothing of the project's machinery, nvcc compiles it without a warning, and its own check tells right
from wrong. Without a GPU, four files run on the simulator: their device half is then the project's own headers, and
tests/tools/single_file/cuda_runtime.h stands in for CUDA's calls on the host.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import BIN, ROOT

from tools.learn import declarations, single
from tools.mutate.rebuild import Rebuild

NVCC = shutil.which("nvcc") or next((str(path) for path in sorted(Path("/usr/local").glob("cuda*/bin/nvcc"))), None)
STAND_IN = Path(__file__).with_name("single_file")
STEPS = single.steps_of(ROOT)
VARIANTS = [(step, name) for step in STEPS for name in single.Step(ROOT, step).variants]
# One of each family: its flags for a small run, and a change of its kernels by which their results are too large by a twentieth. Of masks
# of blocks, the change takes the neighbouring block's bit.
WRONG_BIT = ("key_block % 32 & 1 ? otherwise", "(key_block ^ 1) % 32 & 1 ? otherwise")
SPARSE = ["--heads", "4", "--kv-heads", "2", "--seq-q", "150", "--seq-k", "290", "--block-k", "64"]
ON_THE_SIMULATOR = {
    ("01", "block_softmax"): (["--heads", "2", "--seq-q", "40", "--dim", "24", "--causal", "1"], (" = expf(", " = 1.05f * expf(")),
    ("02", "tensor_cores"): (["--m", "40", "--n", "70", "--k", "72"], ("packed<T>(", "packed<T>(1.05f * ")),
    ("03", "tuned"): (["--rows", "9", "--cols", "300", "--dtype", "fp16"], ("from_float<T>(", "from_float<T>(1.05f * ")),
    ("07", "two_loops"): ([*SPARSE, "--pattern", "random:0.5,sink:1+local:1,band:2"], WRONG_BIT),
    ("06", "transposed"): (["--heads", "4", "--kv-heads", "2", "--seq-q", "70", "--seq-k", "90", "--causal", "1"], ("exponentiate(s, &rows.lse2[row + part], scale_log2)", "exponentiate(s, &rows.lse2[row + part], 1.05f * scale_log2)")),
}


def write(*words, status=0):
    done = subprocess.run([sys.executable, ROOT / "tools/learn/single.py", *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_lists_the_variants_that_the_programs_list():
    assert {step[:2] for step, _ in VARIANTS} >= {"01", "02", "03", "04", "05", "06", "07"}
    for step in {step for step, _ in VARIANTS}:
        if (BIN / step).exists():
            passes = [[], ["--backward"]] if len(single.Step(ROOT, step).types) > 1 else [[]]
            listed = [subprocess.run([BIN / step, "--list", *flag], capture_output=True, text=True, check=True).stdout for flag in passes]
            assert [name for s, name in VARIANTS if s == step] == re.findall(r"^[* ] (\w+): ", "".join(listed), re.MULTILINE)
    assert write("--list").split() == [word for variant in VARIANTS for word in variant]


@pytest.mark.parametrize("step, name", VARIANTS)
def test_a_file_holds_one_variant_and_nothing_of_the_project(step, name):
    text, out, _ = single.single(ROOT, step.split("_")[0], name)
    assert out == ROOT / "build" / "single" / f"{step[:2]}_{name}.cu"
    assert text.startswith(f"// {step}, {name}: ")
    assert "SPDX-License-Identifier: Apache-2.0" in text
    assert "__global__" in text
    assert len(re.findall(r"^int main\(", text, re.MULTILINE)) == 1
    assert re.findall(r'#include "|#if|\b(?:run|problem|simt)::|FLASHSTEPS|\[/?doc: |[Ss]imulat|hook|`make ', text) == []
    # What is declared is used: by its name, once more, in code. Of an enum that may be one of its numbers.
    source = declarations.parse(text, "single")
    words = Counter(token.text for token in declarations.code_of(text))
    used = lambda d: [words[name] > 1 for name in d.names]
    declared = [d for d in source.declarations if d.kind in ("function", "class", "variable")]
    unused = [name for d in declared if not (any(used(d)) if d.code.startswith("enum") else all(used(d))) for name in d.names]
    assert set(unused) <= {"main", "operator+"}


def test_bad_requests_are_refused_by_name():
    assert "there is no step 77; there are: 01_naive_mha" in write("77", "tuned", status=2)
    assert "there is no step 00; there are: 01_naive_mha" in write("00", "add", status=2)
    assert "05_flash_v2 has no variant fast; it has: " in write("05", "fast", status=2)
    assert "which step and which variant?" in write(status=2)
    done = subprocess.run(["make", "single", "STEP=05"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "which step and which variant?" in done.stderr


def test_make_writes_the_file_and_prints_the_line_that_builds_it(tmp_path):
    out = tmp_path / "mine.cu"
    done = subprocess.run(["make", "single", "STEP=01", "VARIANT=block_softmax", f"OUT={out}"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"nvcc -std=c++20 -O2 -arch=sm_80 {out} -o {tmp_path / 'mine'}" in done.stdout
    assert out.read_text().startswith("// 01_naive_mha, block_softmax: ")
    assert re.search(r"^// Build: nvcc -std=c\+\+20 -O2 -arch=sm_80 mine\.cu -o mine\b", out.read_text(), re.MULTILINE)


# ---- the table of variants, and C++ as the tool reads it ----


def step_with(tmp_path, table, more=""):
    """A step whose step.cu has this table."""
    folder = tmp_path / "steps" / "98_test"
    folder.mkdir(parents=True)
    (folder / "step.cu").write_text(f"namespace {{\n{more}\nconst std::vector<run::GemmVariant> variants = {{{table}}};\n}}  // namespace\n")
    return single.Step(tmp_path, "98_test")


def test_entries_of_the_table_are_evaluated_through_the_functions_that_make_them(tmp_path):
    step = step_with(
        tmp_path,
        '{.name = "a", .idea = "one", .launch = launch_a}, made<3, 1, 2>("b", "t" "wo", f<1, 2>), padded<Tile<64>>()',
        """GemmVariant variant(std::string name, std::string idea, std::function<void(const GemmLaunch&)> launch) {
             return {.name = std::move(name), .idea = std::move(idea), .launch = std::move(launch)};
           }
           template <int n, int... more>
           GemmVariant made(std::string name, std::string idea, Arrays (*f)(const Gemm&)) {
             const auto scratch = pair(f, n);
             return {.name = std::move(name), .idea = std::move(idea), .scratch = scratch, .launch = launch_b<n, more...>};
           }
           template <class T, class U = Other>
           GemmVariant padded() { return variant("c", "three", launch_c<T, U>); }""",
    )
    assert [step.variants[name].values["launch"].strip() for name in "abc"] == ["launch_a", "launch_b<3, 1, 2>", "launch_c<Tile<64>, Other>"]
    assert step.variants["b"].values["scratch"] == "pair(f<1, 2>, 3)"
    assert single.literal(step.variants["b"].values["idea"]) == "two"


def test_a_step_may_have_a_table_for_each_pass_and_choose_what_a_variant_has(tmp_path):
    step = step_with(
        tmp_path,
        "rung<Needs::one>(), rung<Needs::two>()",
        """template <Needs needs> GemmVariant rung() {
             return {.name = "a", .idea = "one", .scratch = needs == Needs::one ? nullptr : arrays_of<needs>, .launch = launch<needs>};
           }
           const std::vector<run::SoftmaxVariant> others = {{.name = "b", .launch = launch_b}};""",
    )
    assert [(name, variant.family) for name, variant in step.variants.items()] == [("b", "softmax"), ("a", "gemm")]
    assert step.variants["a"].values["scratch"] == "arrays_of<Needs::two>"
    assert single.chosen("Needs::one == Needs::one ? nullptr : more") == "nullptr"
    assert single.chosen("a ? b : c") == "a ? b : c"


@pytest.mark.parametrize("needed, arch", [("", "sm_80"), (".compute_capability = 90,", "sm_90"), (".compute_capability = run::only(90),", "sm_90a")])
def test_the_line_that_builds_a_file_names_the_architecture_that_its_variant_needs(tmp_path, needed, arch):
    step = step_with(tmp_path, f'{{.name = "a", .idea = "one", {needed} .launch = launch_a}}')
    assert f" -arch={arch} " in single.build_line(step.variants["a"], "a.cu")


def test_headers_that_do_not_include_each_other_may_mean_different_things_by_one_name(tmp_path):
    folder = tmp_path / "steps" / "98_test"
    folder.mkdir(parents=True)
    files = {"a.h": "constexpr int size = 1;", "b.h": "constexpr int size = 2;", "c.h": '#include "steps/98_test/a.h"\nint use() { return size; }'}
    for name, text in files.items():
        (folder / name).write_text(text)
    sources = [declarations.parse(text, f"steps/98_test/{name}") for name, text in files.items()]
    selection = single.Selection(sources)
    selection.need({(None, "use")}, (), "steps/98_test/c.h")
    assert [d.path for d in selection.chosen.values()] == ["steps/98_test/c.h", "steps/98_test/a.h"]


def test_an_entry_that_is_not_understood_is_named(tmp_path):
    with pytest.raises(single.UsageError, match="this entry of the table of variants is not understood: somewhere::else_"):
        step_with(tmp_path, 'somewhere::else_("a")')


def test_declarations_are_found_with_their_comments_names_and_uses():
    source = declarations.parse(
        declarations.preprocessed(
            """// The header.
#pragma once
#include <cmath>
#include "a.h"
namespace n {
#if defined(FLASHSTEPS_SIM)
using simt::load;
#else
template <class T>
__device__ T load(const T* p) { return *p; }
#endif

// ---- a section ----

constexpr int a = 1, b = 1'000;  // behind it
// Above it.
struct alignas(8) S : Base<a> {
  int x = b;
};
template <class T, class U = S>
__global__ void __launch_bounds__(a, 2) kernel(const U& u, T t) {
  int local = u.x;
  if (local < a && t > b) other(local);
}
inline S operator+(S p, S q) { return p; }
enum E { red, green };
void (*pointer)(int) = nullptr;
}  // namespace n
"""
        ),
        "test",
    )
    assert (source.header, source.system, source.includes) == ("// The header.", ["cmath"], ["a.h"])
    by = {tuple(sorted(d.names)): d for d in source.declarations}
    assert set(by) == {("load",), ("a", "b"), ("S",), ("kernel",), ("operator+",), ("E", "green", "red"), ("pointer",)}
    assert by["a", "b"].text == "constexpr int a = 1, b = 1'000;  // behind it"
    assert by["a", "b"].section == "// ---- a section ----"
    assert by["S",].text.startswith("// Above it.\nstruct")
    assert by["kernel",].is_kernel
    assert {name for _, name in by["kernel",].uses} >= {"S", "a", "b", "other"}
    assert not {name for _, name in by["kernel",].uses} & {"local", "x", "u"}
    assert all(d.namespaces == ("n",) for d in source.declarations)
    assert by["kernel",].lead == "// Above it.\n"  # no empty line is between


def test_sentences_about_the_rest_of_the_project_are_left_out():
    text = "// One block fits. In the simulator, the launch of an H200. Then\n// nothing.\nint x = p.backend == \"sim\" ? 66 : p.multiprocessors;  // as the simulator\n"
    assert single.plain(text) == "// One block fits. Then nothing.\nint x = p.multiprocessors;\n"


# ---- on the simulator ----


@pytest.fixture(scope="module")
def compiler():
    """Compiles and links as the build does a program of one file of kernels."""
    if not (BIN.parent / "compile_commands.json").exists() or "sim" not in BIN.parent.name:
        pytest.skip("only with a build of the simulator")
    return Rebuild(BIN.parent, ROOT / "tests" / "programs" / "fragments.cu", "tests/fragments")


def simulated(compiler, folder, step, name, change=None, root=ROOT):
    """The program of a variant's file, run on the simulator."""
    text, _, _ = single.single(root, step, name, device_includes=True)
    text, launches = re.subn(r"^  kernel<<<(.*?)>>>\(", r"  launch_on_simulator(kernel, \1, ", text, flags=re.MULTILINE)
    assert launches == 1
    if change:
        assert change[0] in text
        text = text.replace(*change)
    source = folder / f"{step}_{name}{'_broken' * bool(change)}.cu"
    source.write_text(text)
    compiled, program = source.with_suffix(".o"), source.with_suffix("")
    assert compiler.compile(source, compiled, "-I", str(STAND_IN)) is None
    assert compiler.link(compiled, program) is None
    return lambda *flags: subprocess.run([program, *flags], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def programs(compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda variant: simulated(compiler, folder, *variant), ON_THE_SIMULATOR))
    return dict(zip(ON_THE_SIMULATOR, made))


@pytest.mark.parametrize("variant", ON_THE_SIMULATOR, ids="_".join)
def test_the_program_of_a_file_passes_its_own_check(programs, variant):
    flags, _ = ON_THE_SIMULATOR[variant]
    for seed in ("1", "2"):
        done = programs[variant](*flags, "--seed", seed, "--repeat", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"largest error \d.*allowed(.|\n)*\ntime: .* ms(.|\n)*\nPASS\n$", done.stdout)


def test_a_bad_command_line_is_refused(programs):
    for variant, flags, reason in (
        (("01", "block_softmax"), ["--dim", "0"], "--dim is '0'; it must be a whole number from 1 to 2^24"),
        (("01", "block_softmax"), ["--dim", "300"], "--dim is at most 256 for this kernel"),
        (("01", "block_softmax"), ["--heads", "3", "--kv-heads", "2"], "--heads must be a multiple of --kv-heads"),
        (("01", "block_softmax"), ["--window", "5"], "this kernel has no window"),
        (("01", "block_softmax"), ["--dtype", "fp16"], "--dtype is 'fp16'; this kernel takes fp32"),
        (("02", "tensor_cores"), ["--k", "12"], "--k is 12; this kernel takes multiples of 8 up to 2147483647"),
        (("02", "tensor_cores"), ["--k"], "--k needs a value"),
        (("03", "tuned"), ["--columns", "8"], "'--columns' is no flag; flags and defaults: --rows 16384 --cols 4096"),
        (("03", "tuned"), ["--rows", "1e3"], "--rows is '1e3'; it must be a whole number"),
        (("07", "two_loops"), ["--block-q", "64"], "this kernel has no blocks of 64 queries"),
        (("07", "two_loops"), ["--block-k", "32"], "this kernel has no blocks of 32 keys"),
        (("07", "two_loops"), ["--pattern", "sink:1t+local:2t"], "this kernel has no heads that stream by token"),
        (("07", "two_loops"), ["--pattern", "dense,random:2"], "--pattern has 'random:2', which is none of dense, random:P"),
        (("07", "two_loops"), ["--pattern", "sink:1t+local:2"], "--pattern has 'sink:1t+local:2', which is none of"),
    ):
        done = programs[variant](*flags)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in done.stderr


def of_its_step(variant):
    """A test's name has its step's: each step has a ctest entry for its long tests."""
    return "-".join([next(step for step in STEPS if step.startswith(variant[0])), variant[1]])


@pytest.mark.parametrize("variant", [pytest.param(v, marks=[] if v[0] == "02" else pytest.mark.long) for v in ON_THE_SIMULATOR], ids=of_its_step)
def test_the_check_of_a_file_rejects_a_broken_kernel(compiler, tmp_path, variant):
    flags, change = ON_THE_SIMULATOR[variant]
    done = simulated(compiler, tmp_path, *variant, change)(*flags, "--repeat", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.endswith("FAIL\n")


def test_a_file_may_have_a_dependent_launch(compiler, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(ROOT / "steps/01_naive_mha", root / "steps/01_naive_mha")
    for name in ("common", "tools", "CITATION.cff"):
        (root / name).symlink_to(ROOT / name)
    for name, old, new in (
        ("step.cu", ".shared_bytes = sizeof(SoftmaxSmem)}", ".shared_bytes = sizeof(SoftmaxSmem), .dependent = true}"),
        ("05_block_softmax.cuh", "#pragma once\n", '#pragma once\n#include "common/device/ptx/griddepcontrol.cuh"\n'),
        ("05_block_softmax.cuh", "device::shared_storage<SoftmaxSmem>();\n", "device::shared_storage<SoftmaxSmem>();\n  ptx::griddepcontrol_wait();\n"),
    ):
        source = root / "steps/01_naive_mha" / name
        assert source.read_text().count(old) == 1
        source.write_text(source.read_text().replace(old, new))
    flags, _ = ON_THE_SIMULATOR["01", "block_softmax"]
    right = simulated(compiler, tmp_path, "01", "block_softmax", None, root)(*flags, "--repeat", "1")
    assert right.returncode == 0, right.stdout + right.stderr
    without_wait = ("  ptx::griddepcontrol_wait();\n", "")
    wrong = simulated(compiler, tmp_path, "01", "block_softmax", without_wait, root)(*flags, "--repeat", "1")
    assert wrong.returncode == 3
    assert "no griddepcontrol.wait comes before this access" in wrong.stderr


@pytest.mark.long
@pytest.mark.parametrize("variant", [("05", "tuned")], ids=of_its_step)
def test_the_file_that_the_readme_names_runs_on_the_simulator(compiler, tmp_path, variant):
    tuned = simulated(compiler, tmp_path, *variant)
    for flags in (["--seq-q", "130", "--seq-k", "70"], ["--dtype", "bf16", "--dim", "32", "--causal", "1", "--seq-q", "70"], ["--window", "40", "--kv-heads", "1", "--seq-q", "100"]):
        done = tuned("--heads", "2", *flags, "--repeat", "1")
        assert done.returncode == 0, done.stdout + done.stderr
    other_dim = tuned("--dim", "48")
    assert other_dim.returncode == 2
    assert "this file holds tuned alone; this shape needs the variant any_dim" in other_dim.stderr


@pytest.mark.long
@pytest.mark.parametrize("variant", [("07", "balanced"), ("07", "backward")], ids=of_its_step)
def test_masks_of_blocks_are_judged_in_both_passes(compiler, tmp_path, variant):
    patterns = ["random:0.5,sink:3t+local:70t,sink:1+local:1,dense", "band:1", "random:0"]
    for change, status in ((None, 0), (WRONG_BIT, 1)):
        program = simulated(compiler, tmp_path, *variant, change)
        for pattern in patterns[: 1 if change else None]:
            for dim in ("64", "96"):
                done = program(*SPARSE, "--causal", "1", "--dim", dim, "--pattern", pattern, "--repeat", "1")
                assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("variant", [("08", "cluster"), ("08", "tuned"), ("08", "experts")], ids=of_its_step)
def test_products_with_few_tokens_are_judged(compiler, tmp_path, variant):
    for change, status in ((None, 0), (("return activate(activation, sum);", "return activate(activation, 1.05f * sum);"), 1)):
        done = simulated(compiler, tmp_path, *variant, change)("--m", "5", "--n", "70", "--k", "520", "--activation", "2", "--repeat", "1")
        assert done.returncode == status, done.stdout + done.stderr


# ---- with nvcc ----


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_nvcc_compiles_every_file_without_a_warning(tmp_path, step):
    if NVCC is None:
        pytest.skip("there is no nvcc on the path or in /usr/local/cuda*")
    names = [name for other, name in VARIANTS if other == step]
    for name in names:
        source = tmp_path / f"{step[:2]}_{name}.cu"
        line = write(step[:2], name, "--out", source).splitlines()[-1].split()
        # Without optimisation and for PTX only, in a tenth of the time: the same kernels are compiled to the end by `make gpu`. The host's
        # half, too, only of a step's last variant: the main() of the others is the same.
        flags = [flag for flag in line[1:-3] if flag != "-O2" and not flag.startswith("-arch=")]
        (target,) = (flag.removeprefix("-arch=sm_") for flag in line if flag.startswith("-arch="))
        quick = ["-G", f"-gencode=arch=compute_{target},code=compute_{target}"]
        command = [NVCC, *flags, *quick, "-Xcompiler=-Wall,-Wextra", "-c" if name == names[-1] else "-ptx", source, "-o", source.with_suffix(".o")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "warning" not in done.stderr, f"{source.name}: {done.stdout}{done.stderr}"

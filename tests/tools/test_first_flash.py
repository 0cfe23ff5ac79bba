"""The flash kernel that page 05 begins with, on the simulator: right results, a report when a barrier is missing, and a check that tells right
from wrong. Copies of the file with a change are compiled by the build's own command.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import BIN, ROOT

from tests.tools.test_plain_cuda import plain_cuda
from tools.mutate.rebuild import Rebuild

SOURCE = ROOT / "steps" / "05_flash_v2" / "first_flash" / "first_flash.cu"
TEXT = SOURCE.read_text()
BARRIER = "__syncthreads();"
pytestmark = pytest.mark.parametrize("step", ["05_flash_v2"])  # its ctest entry runs what has its name

# What a kernel may get wrong: each is a change of the source that the program's own check must reject.
WRONG = {
    "acc is not rescaled": ("acc[n][i] *= factor;", ";"),
    "the maximum of one lane": ("m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, other))", ";"),
    "another head's values": ("V += size_t(blockIdx.y) * keys * d;", ""),
    "LSE in base 2": ("log2f(l[r])) / log2e", "log2f(l[r]))"),
}
# Inputs beyond the usual ones: SCORES=large: ±10,000 and more. SCORES=infinite: -∞ for all keys of the first tile. SCORES=nan: a NaN in one
# query of head 1, and in one key of head 0.
INPUTS = [
    ("const std::vector<half> q = random_numbers(of_queries, 2, 1)", "const std::string scores = getenv(\"SCORES\"); std::vector<half> q = random_numbers(of_queries, scores == \"large\" ? 100 : 2, 1)"),
    ("random_numbers(of_keys, 2, 2)", "random_numbers(of_keys, scores == \"large\" ? 100 : 2, 2)"),
    ("  half *Q, *K", """
  if (scores == "infinite") {
    for (size_t i = 0; i < rows; ++i) q[i * d] = __float2half(1);
    for (int h = 0; h < heads; ++h)
      for (int j = 0; j < Bc; ++j) k[(size_t(h) * keys + j) * d] = __float2half(-INFINITY);
  }
  if (scores == "nan") q[(queries + 5) * d + 7] = k[9 * d + 3] = __float2half(NAN);
  half *Q, *K"""),
    ("#include <random>", "#include <random>\n#include <string>"),
]  # fmt: skip


def run(program, *arguments, **environment):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment, timeout=120)


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A function: the programs of the source with changes, given as {name: [(old, new), …]}."""
    folder, unit = tmp_path_factory.mktemp("changed"), Rebuild(BIN.parent, BIN.parent / "steps" / "first_flash.cu", "bin/first_flash")

    def made(name, changes):
        text = TEXT
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        source, compiled, program = (folder / f"{name}{suffix}" for suffix in (".cu", ".o", ""))
        source.write_text(f'#include "{plain_cuda.HEADER}"\n{plain_cuda.rewrite(text, SOURCE)}')
        assert unit.compile(source, compiled) is None
        assert unit.link(compiled, program) is None
        return program

    def all_made(programs):
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(programs, pool.map(made, map(str, range(len(programs))), programs.values())))

    return all_made


@pytest.mark.parametrize("sizes", [(), (1, 64, 64), (2, 64, 320), (1, 192, 64), (9, 64, 128)])
def test_it_is_right_for_whole_tiles(step, sizes):
    done = run(BIN / "first_flash", *sizes)
    assert (done.returncode, done.stderr) == (0, "")
    heads, queries, keys = sizes or (2, 128, 192)
    rows = heads * queries
    assert done.stdout.startswith(f"{heads} heads, {queries} queries, {keys} keys: {rows} of {rows} rows checked, 0 wrong, ")


@pytest.mark.parametrize("seed", [2, 3, 99])
def test_it_is_right_in_every_order_of_its_threads(step, seed):
    done = run(BIN / "first_flash", 2, 128, 128, SIM_SEED=str(seed))
    assert (done.returncode, done.stderr) == (0, "")


def test_it_says_how_long_a_launch_takes(step):
    done = run(BIN / "first_flash", 1, 64, 64, 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"[0-9.]+ ms for a launch: [0-9.]+ TFLOP/s\n1 heads", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1, 100, 64), "QUERIES is '100'; it must be a whole number from 64 to 10000000, and a multiple of 64"),
        ((1, 64, 65), "KEYS is '65'; it must be a whole number"),
        ((1, 64, 0), "KEYS is '0'; it must be a whole number"),
        ((1, 64, "64x"), "KEYS is '64x'; it must be a whole number"),
        (("", 64, 64), "HEADS is ''; it must be a whole number from 1 to 10000000\n"),
        ((65_536, 64, 64), "HEADS must be at most 65535, and HEADS x QUERIES"),
        ((65_535, 192, 64), "and HEADS x KEYS at most 10000000"),
        ((1, 64, 64, 0), "LAUNCHES is '0'; it must be a whole number from 1"),
        ((1, 64), "usage: "),
    ],
)
def test_it_refuses_what_it_cannot_do(step, arguments, said):
    done = run(BIN / "first_flash", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_it_is_one_file_that_names_the_line_which_builds_it(step):
    includes = [text for text in TEXT.splitlines() if text.startswith("#include")]
    assert includes and all(text.startswith("#include <") for text in includes)
    assert f"//     nvcc -O3 -std=c++17 -arch=sm_80 -o {SOURCE.stem} {SOURCE.name}\n" in TEXT


def test_the_kernel_has_the_lines_that_its_header_says(step):
    body = TEXT[TEXT.index("  // [doc: flash_queries]") : TEXT.index("  // [/doc: flash_values]")].splitlines()
    lines = [line for line in body if line.strip() and not line.strip().startswith("//")]
    assert f"one kernel of {round(len(lines), -1)} lines" in TEXT.splitlines()[0] and len(lines) <= 60


def test_each_barrier_is_needed_and_the_simulator_says_so(step, changed):
    before, after = [match.start() for match in re.finditer(re.escape(BARRIER), TEXT)]
    without = lambda place: [(TEXT, TEXT[:place] + TEXT[place + len(BARRIER) :])]
    programs = changed({"overwritten": without(before), "read too early": without(after)})
    number = lambda text: TEXT[: TEXT.index(text)].count("\n") + 1
    for name, kind in (("overwritten", "race: write after read"), ("read too early", "race: read after write")):
        done = run(programs[name], 1, 64, 128)
        assert done.returncode == 1
        for tile in ("k_tile", "v_tile"):
            assert re.search(rf"simulator: {kind} of flash::{tile}\[", done.stderr), done.stderr
        assert f"{SOURCE.relative_to(ROOT)}:{number('*reinterpret_cast<uint4*>(to)')}, called at " in done.stderr, done.stderr


def test_its_check_rejects_wrong_kernels(step, changed):
    programs = changed({name: [change] for name, change in WRONG.items()})
    for name, program in programs.items():
        done = run(program)
        assert (done.returncode, done.stderr) == (1, ""), name
        assert re.search(r" [1-9]\d* wrong", done.stdout), name


def test_scores_may_be_large_or_infinite_and_a_nan_stays_where_it_belongs(step, changed):
    programs = changed({"kernel": INPUTS, "m begins at -infinity": [*INPUTS, ("{-FLT_MAX, -FLT_MAX}", "{-INFINITY, -INFINITY}")]})
    for scores, name, wrong in (
        ("large", "kernel", 0),
        ("infinite", "kernel", 0),
        ("infinite", "m begins at -infinity", 256),
        ("nan", "kernel", 128 + 1),  # all queries of head 0 see the key; the check finds that a NaN is no number
    ):
        done = run(programs[name], 2, 128, 192, SCORES=scores)
        assert (done.returncode, done.stderr) == (min(wrong, 1), "")
        assert f": 256 of 256 rows checked, {wrong} wrong" in done.stdout, (scores, name, done.stdout)

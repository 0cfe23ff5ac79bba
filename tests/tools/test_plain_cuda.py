"""Plain CUDA in the simulator: what becomes of a file (cmake/plain_cuda.py), what runs, what is noticed, and the first step itself."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.measure import deleted_barrier

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "cmake" / "plain_cuda.py"
FIRST = ROOT / "steps" / "00_first_kernel" / "first_kernel.cu"
FAULTS = "tests/programs/plain_cuda.cu"

specification = importlib.util.spec_from_file_location("plain_cuda", SCRIPT)
plain_cuda = importlib.util.module_from_spec(specification)
sys.modules["plain_cuda"] = plain_cuda
specification.loader.exec_module(plain_cuda)


# ---- the text ----

MMA = """asm volatile(
  "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
  : "+f"(c[0]), "+f"(c[1]), "+f"(c[f(2, 3)]), "+f"(d)
  : "r"(a), "r"(a), "r"(a), "r"(a), "r"(b[0]), "r"(b[1]));"""

@pytest.mark.parametrize("file", [FIRST, ROOT / FAULTS, ROOT / "steps" / "05_flash_v2" / "first_flash" / "first_flash.cu"])
def test_lines_keep_their_numbers(file):
    before = file.read_text().splitlines()
    after = plain_cuda.rewrite(file.read_text(), "a.cu").splitlines()[1:]
    assert len(after) == len(before)
    in_asm = False
    for old, new in zip(before, after, strict=True):
        in_asm = in_asm or "asm volatile(" in old
        if not in_asm and not any(word in old for word in ("<<<", "__shared__", "__global__", "cuda")):
            assert new == old
        in_asm = in_asm and not old.endswith(");")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k<<<g, b>>>(x);", "plain::launch(k, plain::configured(0, g, b))(x);"),
        ("k<float>\n  <<<dim3(1,\n 2), b, 0, s>>>(x);", "plain::launch(k<float>, plain::configured(0, dim3(1,\n 2), b, 0, s))\n(x);"),
        ('puts("k<<<1, 1>>>()");  // k<<<1, 1>>>()', 'puts("k<<<1, 1>>>()");  // k<<<1, 1>>>()'),
        ("cudaMalloc(&values, 4);", 'plain::cudaMalloc("values", &values, 4);'),
        ("cudaMalloc((void**)&values, 4);", 'plain::cudaMalloc("values", (void**)&values, 4);'),
        ("cudaFree(values); int cudaFreedom;", "plain::cudaFree(values); int cudaFreedom;"),
        (MMA, "plain::mma_m16n8k16(c[0], c[1], c[f(2, 3)], d, a, a, a, a, b[0], b[1])\n\n\n;"),
        (MMA.replace(" volatile", "").replace(", %5", ',"  \n"%5\\n'), "plain::mma_m16n8k16(c[0], c[1], c[f(2, 3)], d, a, a, a, a, b[0], b[1])\n\n\n\n;"),
    ],
)
def test_what_is_no_cpp_becomes_a_call(text, wanted):
    kernel = "template <class T> __global__ void k(T* x) { x[0] = 1; }\n"
    assert plain_cuda.rewrite(kernel + text, "a.cu").split("\n", 2)[2] == wanted


def test_shared_variables_are_members_of_a_struct_that_bears_the_kernels_name():
    text = "__global__ void k(int* x) {\n  __shared__ alignas(16) float a[4][threads];\n  __shared__ int b;\n  extern __shared__ unsigned c[];\n}\nk<<<1, 2>>>(x);"
    assert plain_cuda.rewrite(text, "a.cu").splitlines()[1:] == [
        "struct k { alignas(16) float a[4][threads]; int b; }; __global__ void k(int* x) {",
        "  auto& a = plain::shared<struct k>().a;",
        "  auto& b = plain::shared<struct k>().b;",
        "  unsigned* const c = plain::dynamic_shared<unsigned, struct k>();",
        "}",
        "plain::launch(k, plain::configured(sizeof(struct k), 1, 2))(x);",
    ]


KERNEL = "__global__ void k(int* x) {{\n{}\n}}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("int n;\ncudaMallocManaged(&x, 4);", "2: cudaMallocManaged is none of the calls that the simulator has for plain CUDA: cudaDevice"),
        ("cudaEventElapsedTime(&ms, a, b);", "1: cudaEventElapsedTime is none of"),
        ("\n__constant__ float c;", "2: __constant__: the simulator has no constant memory for plain CUDA"),
        (KERNEL.format('asm("nop;");'), "2: asm: of inline PTX the simulator has for plain CUDA: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0"),
        (KERNEL.format('__asm__ ("nop;" ::);'), "2: asm: of inline PTX"),
        (KERNEL.format(MMA.replace("%2, %3}, {%4", "%3, %2}, {%4")), "2: asm: of inline PTX"),
        (KERNEL.format(MMA.replace("f16.f32", "bf16.f32")), "2: asm: of inline PTX"),
        (KERNEL.format(MMA.replace('"+f"(d)', '"=f"(d)')), "2: asm: of inline PTX"),
        (KERNEL.format(MMA.replace(', "r"(b[1])', "")), "2: asm: of inline PTX"),
        (KERNEL.format(MMA.replace("(b[1])", '(b[1]) : "memory"')), "2: asm: of inline PTX"),
        (KERNEL.format("x[0] = std::max(x[1], 2);"), "2: std::max is a function of the host, and k is a kernel: use fmaxf"),
        (KERNEL.format("x[0] = std::hypot<float>(1, 2);"), "2: std::hypot is a function of the host, and k is a kernel: use hypotf"),
        (KERNEL.format("constexpr int n = 4; __shared__ int a[2][n];"), "2: the size of a needs n, which k declares: declare it before the kernel"),
        (KERNEL.format("__shared__ int a, b;"), "2: __shared__ int a, b: one variable a declaration"),
        (KERNEL.format("__shared__ int a = 1;"), "2: __shared__ int a = 1: one variable"),
        (KERNEL.format("extern __shared__ int a[4];"), "2: a kernel has one extern __shared__ array"),
        (KERNEL.format("extern __shared__ int a[]; extern __shared__ int b[];"), "2: a kernel has one extern"),
        ("__device__ void f() { __shared__ int a; }", "1: __shared__ stands outside a kernel"),
        ("template <int n> __global__ void k() { __shared__ int a[n]; }", "1: k is a template with __shared__ variables"),
        ("f<<<1, 1>>>();", "1: f is launched, but it is no kernel of this file"),
        (KERNEL.format("") + "\nk<<<1, 1(x);", "4: this <<< has no >>>"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name_with_its_line(text, reason, tmp_path):
    (tmp_path / "a.cu").write_text(text)
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "out.cu", tmp_path / "a.cu"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"a.cu:{reason}" in done.stderr
    assert not (tmp_path / "out.cu").exists()


# ---- programs ----


def run(program, *arguments, **environment):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment, timeout=60)


def faulty(name, **environment):
    return run(ROOT / "build" / "sim" / "tests" / "plain_cuda_faults", name, **environment)


def test_a_right_program_runs():
    done = faulty("right")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "126 0\n63 0\n0 0\ncudaSuccess\n"


def test_inline_ptx_multiplies_wherever_its_sums_lie():
    done = faulty("products")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "51504948 51504948\n")


def line(text):
    """Of the faulty programs' source, by a text that stands there once."""
    (number,) = [number for number, code in enumerate((ROOT / FAULTS).read_text().splitlines(), 1) if text in code]
    return number


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no barrier", ["race", "reversed_without_a_barrier::copy["]),
        ("products of half a warp", ["mma.m16n8k16.f16", f"{FAULTS}:{line('asm volatile')}"]),
        ("too far", ["out-of-bounds write", f"{FAULTS}:{line('if (i <= n)')}", "numbers"]),
        ("too little shared memory", ["out-of-bounds", "past the end of shared memory"]),
        ("host reads", [f"{FAULTS}:{line('n.device[3]')}: host code reads", "numbers", "which is device memory"]),
        ("host pointer", ["wild write", "which is neither device memory nor shared memory"]),
        ("never written", ["uninitialised read: this copy reads 'numbers'", "byte 252 of the copy was never written"]),
        ("never waited for", ["the program ended, and nothing had waited for it"]),
    ],
)
def test_a_fault_is_told_and_the_exit_status_is_1(name, said):
    done = faulty(name)
    assert done.returncode == 1
    for text in said:
        assert text in done.stderr


def test_a_finding_names_what_replays_it():
    assert "replay: SIM_SEED=7" in faulty("no barrier", SIM_SEED="7").stderr
    for seed in ("x", "", "-1", "1.5", "18446744073709551616"):
        refused = faulty("right", SIM_SEED=seed)
        assert refused.returncode == 2 and "it must be a number from 0 to 2^64 - 1" in refused.stderr
    assert faulty("right", SIM_SEED="18446744073709551615").returncode == 0


def test_counters_that_cannot_be_written_are_told(tmp_path):
    done = faulty("right", SIM_COUNTERS=str(tmp_path / "no" / "counters.json"))
    assert done.returncode == 1 and "counters.json: it cannot be written" in done.stderr


def test_nothing_is_done_before_somebody_waits():
    done = faulty("no wait")
    assert (done.returncode, done.stdout) == (0, "0 0\n7 70\n")


def test_streams_wait_for_the_default_stream_and_not_for_each_other():
    done = faulty("streams")
    assert (done.returncode, done.stdout) == (0, "2 65\n3 66\n")


def test_errors_are_cudas():
    done = faulty("errors")
    assert done.stdout.splitlines() == [
        "cudaErrorInvalidConfiguration: invalid configuration argument",
        "cudaErrorInvalidConfiguration: invalid configuration argument",
        "cudaSuccess: no error",
        "cudaErrorInvalidConfiguration: invalid configuration argument",
        "cudaErrorInvalidValue: invalid argument",
        "cudaErrorInvalidValue: invalid argument",
        "cudaErrorInvalidValue: invalid argument",
        "cudaErrorInvalidMemcpyDirection: invalid copy direction for memcpy",
        "cudaErrorInvalidValue: invalid argument",
        "cudaSuccess: no error",
        "cudaErrorInvalidValue: invalid argument",
        "cudaSuccess: no error",
        "cudaErrorInvalidResourceHandle: invalid resource handle",
        "cudaErrorMemoryAllocation: out of memory",
    ]
    assert "the destination of this copy is no device memory, as cudaMemcpyHostToDevice says" in done.stderr
    assert "256 bytes are more than 'numbers' has from the destination on, which is 252" in done.stderr
    assert "this is not the start of device memory" in done.stderr


# ---- the first step: its ctest entry runs what has its name ----

of_the_step = pytest.mark.parametrize("step", ["00_first_kernel"])


@of_the_step
@pytest.mark.parametrize("arguments", [(), (1,), (257, 1, 1), (1000, 3, 255), (5, 2, 257)])
def test_the_first_step_is_right(step, arguments):
    done = run(ROOT / "build" / "sim" / "bin" / step, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(", 0 wrong\n") == 2
    assert "ms for a launch and its kernel" in done.stdout


@of_the_step
@pytest.mark.parametrize("arguments", [(0,), ("x",), ("",), (100_000_001,), (1, 2), (1, -2, 3), (1, 2, 3, 4), (1, 100_000_000, 2)])
def test_the_first_step_refuses_what_it_cannot_do(step, arguments):
    done = run(ROOT / "build" / "sim" / "bin" / step, *arguments)
    assert done.returncode == 2
    assert re.search("must be a number|must be at most|usage", done.stderr)


@of_the_step
def test_the_first_step_includes_nothing_of_ours(step):
    includes = [text for text in FIRST.read_text().splitlines() if text.startswith("#include")]
    assert includes and all(text.startswith("#include <") for text in includes)


@of_the_step
def test_without_its_barrier_the_first_step_is_wrong_and_the_simulator_says_what_is_committed(step, tmp_path):
    status, stdout, stderr = deleted_barrier.run(tmp_path)
    assert status == 1 and "row_sum:  1 rows of 1000, 1 wrong\n" in stdout
    reports = deleted_barrier.reports(stderr)
    assert "".join(reports) == deleted_barrier.OUT.read_text()
    (said, *_) = reports
    assert said.startswith("simulator: race: read after write of row_sum::partial[")
    for text in ("partial[thread] = mine", "partial[thread] += "):
        assert f"{deleted_barrier.SOURCE}:{number_of(text)} " in said


def number_of(text):
    """The line of the first step where a text stands for the first time."""
    return next(number for number, code in enumerate(FIRST.read_text().splitlines(), 1) if text in code)


@of_the_step
def test_the_readme_says_how_to_delete_that_barrier(step, tmp_path):
    delete, build_and_run = deleted_barrier.commands()
    readme = (ROOT / "README.md").read_text()
    assert delete in readme and build_and_run in readme and f"git checkout {deleted_barrier.SOURCE}" in readme
    copy = tmp_path / deleted_barrier.SOURCE
    copy.parent.mkdir(parents=True)
    copy.write_text(FIRST.read_text())
    subprocess.run(delete, shell=True, cwd=tmp_path, check=True)
    assert copy.read_text() == deleted_barrier.without_it(FIRST.read_text())
    assert copy.read_text() != FIRST.read_text() and "row_sum" in FIRST.read_text()[: deleted_barrier.place(FIRST.read_text())]

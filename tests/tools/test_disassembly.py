"""tools/machine_code/disassembly.py: its checks pass on our kernels, and fail where they must."""

import argparse
import collections
import copy
import dataclasses
import functools
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BIN, ROOT

from tools.machine_code import (
    code_listing,
    hooks,
    rungs,
    sass,
    sass_code,
    sass_plan,
    x86_code,
)
from tools.machine_code import disassembly as tool
from tools.measure import shapes
from tools.mutate.rebuild import compiler_words

BUILD = BIN.parent

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86-64 machine code")


def disassembly(*args):
    command = [sys.executable, ROOT / "tools" / "machine_code" / "disassembly.py", *args]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def step_command():
    """How the sim build compiles the first step: the words, without the source and the output."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if entry["file"].endswith("steps/01_naive_mha/step.cu"):
            words = compiler_words(entry["command"])
            return [word for word in words if word not in ("-c", "-o") and not word.endswith((".cu", ".cu.o"))]
    return pytest.fail("the sim build does not compile step 01")


def compiled(command, folder, text):
    """The code of a source text, compiled as the kernels are."""
    source = folder / "kernels.cu"
    source.write_text(text)
    subprocess.run([*command, "-w", "-c", source, "-o", folder / "kernels.o"], cwd=BUILD, check=True)
    return x86_code.Code(folder / "kernels.o")


# ---- hooks: our kernels ----


def no_access_escapes(*objects):
    done = disassembly("hooks", *objects, "--build", BUILD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 accesses escape" in done.stdout


def test_no_access_of_some_kernels_escapes():
    """One step's of scalar kernels, one's on tensor cores; the others' take minutes."""
    steps = ("01_naive_mha", "04_flash_v1")
    objects = [path for source, path in x86_code.kernel_objects(BUILD) if source.endswith("step.cu") and Path(source).parent.name in steps]
    assert len(objects) == len(steps)
    no_access_escapes(*objects)


code_of = functools.cache(x86_code.Code)
STEPS = sorted(path.name for path in ROOT.glob("steps/[0-9][0-9]_*"))


@pytest.mark.long
@pytest.mark.parametrize("step", [*STEPS, "no step"])
def test_no_access_of_our_kernels_escapes(step, monkeypatch, capsys):
    """A step's own kernels, and those of its exercises and tests; the exercises are not always built."""
    of_step = lambda source: next((name for name in STEPS if name in source), "no step")
    objects = [path for source, path in x86_code.kernel_objects(BUILD) if of_step(source) == step and path.is_file()]
    monkeypatch.setattr(tool, "Code", code_of)
    status = tool.check_hooks(argparse.Namespace(objects=objects, build=BUILD))
    assert objects and status == 0, capsys.readouterr().out


KERNEL = r"^__global__ void (?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?(\w+)\("


def declared_in(files):
    """{kernel: the file that declares it}."""
    return {name: str(file.relative_to(ROOT)) for file in files for name in re.findall(KERNEL, file.read_text(), re.MULTILINE)}


SHARED = declared_in((ROOT / "common" / "device").rglob("*.cuh"))


@pytest.mark.long
@pytest.mark.parametrize("step", [step for step in STEPS if (ROOT / "steps" / step / "step.cu").exists()])
def test_every_kernel_of_a_step_is_checked(step):
    folder = ROOT / "steps" / step
    declared = declared_in(folder.glob("*.cuh"))
    objects = [path for source, path in x86_code.kernel_objects(BUILD) if Path(source).parent == folder]
    kernels = {code_listing.base_name(kernel.name): kernel for path in objects for kernel in code_of(path).kernels().values()}
    assert set(declared) <= set(kernels) <= set(declared) | set(SHARED)
    for name, kernel in kernels.items():
        file = kernel.instructions[0].place.split(":")[0]
        assert file in declared.values() if name in declared else file == SHARED[name]


def test_every_kernel_that_steps_share_is_in_the_code_of_one():
    objects = [path for source, path in x86_code.kernel_objects(BUILD) if (Path(source).parent / "step.cu").exists()]
    symbols = [line.split(maxsplit=2)[2] for line in code_listing.output_of("nm", "--demangle", "--defined-only", *objects).splitlines() if line.count(" ") > 1]
    names = {code_listing.base_name(code_listing.function_name(symbol)) for symbol in symbols}
    assert set(SHARED) <= names



def test_the_kernel_that_escapes_on_purpose_is_found():
    objects = [path for source, path in x86_code.kernel_objects(BUILD) if source.endswith("faulty_kernels.cu")]
    _, _, escapes = hooks.escapes_of(x86_code.Code(objects[0]))
    assert [code_listing.base_name(escape.kernel) for escape in escapes] == ["unseen_write"]


# ---- hooks: kernels that escape, and some that do not ----

ESCAPES = """
#include <cstring>
#include "common/device/dialect.h"
#include "common/device/dialect.h"

struct Row { float x[8]; };
#define HELPER [[gnu::noinline, gnu::visibility("hidden")]]  // called, and by nobody outside: as in an executable, where the libraries are built, too
HELPER float4 twice(float4 v) { return make_float4(v.x + v.x, v.y, v.z, v.w); }
HELPER float sum(Row row) { return row.x[0] + row.x[7]; }
HELPER Row row_of(float x) { Row r; for (int i = 0; i < 8; ++i) r.x[i] = x + i; return r; }
HELPER Row row_behind(float x) { return row_of(x + 1); }

__global__ void half_read(const __half* q, float* o) { o[threadIdx.x] = float(q[threadIdx.x]); }              // reads 2 bytes
__global__ void half_write(const float* q, __half* o) { o[threadIdx.x] = __float2half(q[threadIdx.x]); }      // writes 2 bytes
__global__ void float4_copy(const float4* q, float4* o) { o[threadIdx.x] = twice(o[threadIdx.x]); }           // reads 8 bytes
__global__ void row_argument(const Row* q, float* o) { o[threadIdx.x] = sum(q[threadIdx.x]); }                // reads 16 bytes
__global__ void row_result(const float* q, Row* o) { o[threadIdx.x] = row_of(q[0]); }                         // gets its address
__global__ void row_passed_on(const float* q, Row* o) { o[threadIdx.x] = row_behind(q[0]); }                  // gets its address
__global__ void copied(const float* q, float* o, int n) { std::memcpy(o, q, n); }                             // memcpy()
__global__ void cleared(float* o, int n) { std::memset(o, 0, n); }                                            // memset()
__global__ void foreign_atomic(int* o) { __atomic_fetch_add(o, 1, __ATOMIC_RELAXED); }                        // an atomic
__global__ void through_pointer(float* o, float (*f)(float)) { o[0] = f(1.0f); }                              // cannot follow
__global__ void sine(float* o) { sincosf(1.0f, &o[0], &o[1]); }                                               // sincosf()

__global__ void plain(const float* q, float* o) { o[threadIdx.x] = q[threadIdx.x] + 1.0f; }
__global__ void loops(const float* q, float* o, int n) {
  float local[8] = {};
  for (int i = threadIdx.x; i < n; i += 32) local[i % 8] += q[i] * expf(q[n - i]);
  for (int i = 0; i < 8; ++i) o[i] += local[i];
}
struct Parts { float (*s)[4]; float (*states)[2]; };
[[gnu::noinline]] void fold(const Parts* parts) {  // addresses that differ by a constant, round by round of two loops
  float(*s)[4] = parts->s, (*states)[2] = parts->states;
  for (int r = 0; r < 2; ++r) {
    float largest = -1;
    for (int p = 0; p < 16; ++p) largest = fmaxf(largest, fmaxf(s[p][2 * r], s[p][2 * r + 1]));
    const float factor = expf(states[r][0] - largest);
    float l = states[r][1] * factor;
    for (int p = 0; p < 16; ++p) {
      for (int e = 0; e < 2; ++e) l += s[p][2 * r + e] = expf(s[p][2 * r + e]);
    }
    states[r][0] = largest;
    states[r][1] = l;
    for (int p = 0; p < 16; ++p) {
      for (int e = 0; e < 2; ++e) s[p][2 * r + e] *= factor;
    }
  }
}
__global__ void nested_loops(const Parts* parts) { fold(parts); }
__global__ void whole(const float4* q, float4* o) { float4 v = q[threadIdx.x]; v.y = v.x + v.w; o[threadIdx.x] = v; }
__global__ void by_name(const __half* q, const float4* p, __half* o) {
  const float4 v = device::load(&p[threadIdx.x]);
  device::store(&o[threadIdx.x], __float2half(v.y + __half2float(device::load(&q[threadIdx.x]))));
}
__global__ void row_on_stack(const float* q, float* o) { const Row row = row_behind(q[0]); o[threadIdx.x] = sum(row); }
__global__ void atomics(int* o) { atomicAdd(o, 1); atomicCAS(o + 1, 2, 3); }
__global__ void choices(int n, float* o) {
  switch (n) { case 0: o[1] = 1; break; case 1: o[2] = o[3]; break; case 2: o[3] = 4; break; case 3: o[9] = 1; break; case 4: o[7] = o[8]; }
}
"""
BAD = dict(re.findall(r"^__global__ void (\w+).*// (.*)$", ESCAPES, re.MULTILINE))
GOOD = sorted(set(re.findall(r"^__global__ void (\w+)", ESCAPES, re.MULTILINE)) - set(BAD))


@pytest.fixture(scope="session")
def fixture_code(step_command, tmp_path_factory):
    return compiled(step_command, tmp_path_factory.mktemp("hooks"), ESCAPES)


@pytest.fixture(scope="session")
def fixture_escapes(fixture_code):
    return hooks.escapes_of(fixture_code)[2]


@pytest.mark.parametrize("kernel", BAD)
def test_an_escape_is_found_at_its_line(fixture_escapes, kernel):
    found = [escape for escape in fixture_escapes if escape.kernel == kernel]
    assert any(BAD[kernel] in escape.what for escape in found), found
    line = 1 + [f"void {kernel}(" in text for text in ESCAPES.splitlines()].index(True)
    assert {escape.place.rpartition(":")[2] for escape in found} == {str(line)}


@pytest.mark.parametrize("kernel", GOOD)
def test_a_kernel_whose_accesses_are_all_reported_is_left_alone(fixture_escapes, kernel):
    assert not [escape for escape in fixture_escapes if escape.kernel == kernel]


@pytest.mark.parametrize("kernel", ["plain", "loops", "fold", "whole", "choices"])
def test_a_hook_that_is_missing_is_missed(fixture_code, kernel):
    function = next(f for f in fixture_code.functions.values() if f.name == kernel)
    needed = [i for i, _ in hooks.Follower(function).reported]
    assert len(needed) >= 2
    for hook in needed:
        silent = dataclasses.replace(hook, opcode="nop", operands=(), symbol=None)
        without = x86_code.Function(function.symbol, kernel, function.section, [silent if i is hook else i for i in function.instructions])
        follower = hooks.Follower(without)
        assert follower.escapes or follower.through_arguments, hook


@pytest.mark.parametrize(("step", "escapes"), [("0x10", 0), ("0x8", 1), ("rax", 1)])
def test_what_a_loop_moves_alike_stays_one_address(step, escapes):
    """One register is reported, and another one accessed: they start equal, and stay so only if they move by the same step."""
    lines = ["mov rbx, QWORD PTR [rdi]", "mov r12, rbx", "mov rdi, r12", "call __tsan_read4", "mov eax, DWORD PTR [rbx]", "add rbx, 0x10",
             f"add r12, {step}", "cmp rbx, rsi", "jne 2", "ret"]  # fmt: skip
    code = []
    for address, line in enumerate(lines):
        opcode, _, rest = line.partition(" ")
        symbol, target = (rest, None) if opcode == "call" else (None, int(rest) if opcode == "jne" else None)
        code.append(x86_code.Instruction(address, opcode, tuple(rest.split(", ")), (), line, symbol, target=target))
    assert len(hooks.Follower(x86_code.Function("f", "f", ".text", code)).escapes) == escapes


def test_an_access_that_is_reported_twice_is_found(step_command, tmp_path):
    text = """
        #include "common/device/dialect.h"
        struct Odd {
          float x;
          [[gnu::noinline]] Odd(const Odd& other) : x(other.x) {}
        };
        namespace simt {
        template <> [[gnu::noinline, gnu::no_sanitize_thread]] Odd load(const Odd* address) {
          report_access(address, sizeof(Odd), false, __builtin_return_address(0));
          return *address;
        }
        }  // namespace simt
        __global__ void kernel(const Odd* q, float* o) { o[0] = simt::load(q).x; }
    """
    escapes = hooks.escapes_of(compiled(step_command, tmp_path, text))[2]
    assert any("may report it again" in escape.what for escape in escapes), escapes


def test_the_command_names_line_instruction_and_remedy(fixture_code):
    done = disassembly("hooks", fixture_code.path)
    assert done.returncode == 1, done.stderr
    assert re.search(r"kernels\.cu:\d+: half_read reads 2 bytes\n    movzx .*WORD PTR .*\n    use device::load\(&…\)\n", done.stdout)


def test_without_a_build_the_command_says_so(tmp_path):
    for command in (("hooks", "--build", tmp_path), ("sass", "--build", tmp_path)):
        done = disassembly(*command)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1 and "run make" in done.stderr
    with pytest.raises(code_listing.Missing, match="no-such-tool"):
        code_listing.find_tool("no-such-tool")


# ---- places ----


def test_a_checkout_behind_a_symbolic_link_names_its_sources_by_their_real_place(tmp_path):
    """As CMake configures it there: the simulator, the line tables and the tools must mean the same file by the same name."""
    link, build = tmp_path / "linked", tmp_path / "build"
    link.symlink_to(ROOT)
    subprocess.run(["cmake", "-S", link, "-B", build, "-G", "Ninja", "-DFLASHSTEPS_BACKEND=sim", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"],
                   env={**os.environ, "PWD": str(tmp_path)}, cwd=tmp_path, capture_output=True, check=True)  # fmt: skip
    entries = json.loads((build / "compile_commands.json").read_text())
    (command,) = [shlex.split(entry["command"]) for entry in entries if entry["file"].endswith("common/simt/symbols.cpp")]
    (source,) = [word for word in command if word.endswith("symbols.cpp")]
    assert source.startswith(str(link)), "CMake resolved the link: nothing is tested here"
    words = [tmp_path / "symbols.o" if before == "-o" else word for before, word in zip(["", *command], command)]
    subprocess.run(words, cwd=build, check=True)
    listing = subprocess.run(["objdump", "-d", "-l", tmp_path / "symbols.o"], capture_output=True, text=True, check=True).stdout
    assert f"{ROOT}/common/simt/symbols.cpp:" in listing and str(link) not in listing
    assert str(link).encode() not in (tmp_path / "symbols.o").read_bytes()  # __FILE__, from which the simulator knows the root
    assert code_listing.from_root(f"{link}/common/simt/symbols.cpp") == "common/simt/symbols.cpp"  # nvcc's lines keep the link


# ---- loops ----


def test_nested_loops():
    graph = {"a": ["b"], "b": ["c"], "c": ["c", "d"], "d": ["b", "e"], "e": []}
    assert code_listing.loops_of(graph) == {"a": (), "b": ("b",), "c": ("b", "c"), "d": ("b",), "e": ()}


# ---- sass: reading ----

LISTING = """
	.section	.text._Z4fourPKfPf,"ax",@progbits
	.sectionflags	@"SHF_BARRIERS=1"
        .other          _Z4fourPKfPf,@"STO_CUDA_ENTRY STV_DEFAULT"
_Z4fourPKfPf:
.text._Z4fourPKfPf:
	//## File "{root}/steps/09_x/1.cuh", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
	//## File "{root}/common/device/dialect.h", line 20 inlined at "{root}/steps/09_x/1.cuh", line 8
	//## File "{root}/steps/09_x/1.cuh", line 8
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 LDS.U16 R6, [R0] ;
	//## File "{root}/steps/09_x/1.cuh", line 9
        /*0030*/                   FFMA R4, R4, R5, R6 ;
        /*0040*/               @P1 BRA `(.L_x_1) ;
	//## File "{root}/steps/09_x/1.cuh", line 10
        /*0050*/                   CALL.REL.NOINC `($__internal_0_$slow) ;
        /*0060*/                   STG.E.64 desc[UR4][R2.64], R4 ;
        /*0070*/                   STL [R1], R4 ;
        /*0080*/                   EXIT ;
$__internal_0_$slow:
        /*0090*/                   MUFU.RCP R4, R5 ;
        /*00a0*/                   RET.REL.NODEC R6 `(_Z4fourPKfPf) ;
.L_x_2:
        /*00b0*/                   BRA `(.L_x_2);
	.section	.text._Z6helperv,"ax",@progbits
_Z6helperv:
        /*0000*/                   RET.ABS.NODEC R20 0x0 ;
"""


def test_a_helpers_lines_are_known_under_the_callers_name():
    right = '\t//## File "{root}/common/device/dialect.h", line 22 inlined at "{root}/common/device/dialect.h", line 35\n'
    frame = '\t//## File "{root}/%s", line 35 inlined at "{root}/steps/09_x/1.cuh", line 8\n'
    kernel = '\t//## File "{root}/steps/09_x/1.cuh", line 8\n        /*0000*/  LDG.E.128 R4, desc[UR4][R2.64] ;\n'
    header = '\t.section\t.text._Z4fourPKfPf,"ax",@progbits\n        .other          _Z4fourPKfPf,@"STO_CUDA_ENTRY STV_DEFAULT"\n_Z4fourPKfPf:\n'
    misnamed = right.replace("common/device/dialect.h", "steps/09_x/1.cuh") + frame % "steps/09_x/1.cuh"
    for lines in (right + frame % "common/device/dialect.h" + kernel, misnamed + kernel):
        text = header + right + frame % "common/device/dialect.h" + kernel + lines
        ((_, four),) = sass_code.read_listing(text.replace("{root}", str(ROOT))).items()
        assert {i.place for i in four.instructions} == {"steps/09_x/1.cuh:8"}


def test_a_listing_is_read():
    kernels = sass_code.read_listing(LISTING.replace("{root}", str(ROOT)))
    assert [kernel.name for kernel in kernels.values()] == ["four"]
    (kernel,) = kernels.values()
    accesses = [(a.opcode, a.space, a.op, a.bytes, a.place, a.loop is not None) for a in kernel.accesses]
    assert accesses == [
        ("LDG.E.128.CONSTANT", "global", "load", 16, "steps/09_x/1.cuh:8", True),
        ("LDS.U16", "shared", "load", 2, "steps/09_x/1.cuh:8", True),
        ("STG.E.64", "global", "store", 8, "steps/09_x/1.cuh:10", False),
        ("STL", "local", "store", 4, "steps/09_x/1.cuh:10", False),
    ]
    assert kernel.counts["MUFU"] == kernel.counts["FFMA"] == 1


# ---- sass: comparing ----


def kernel_with(*instructions):
    """A kernel of these instructions, each with its line and those that call its function; those that begin with "loop " form one loop in
    the middle."""
    kernel = sass_code.Kernel("k")
    for text in instructions:
        in_loop = text.startswith("loop ")
        if in_loop and "L" not in kernel.labels:
            kernel.labels["L"] = len(kernel.instructions)
        opcode, place, *callers = (word if n == 0 else f"f.cuh:{word}" for n, word in enumerate(text.removeprefix("loop ").split()))
        kernel.instructions.append(sass_code.Instruction(opcode, False, place, [], tuple(callers)))
    if "L" in kernel.labels:
        last = max(n for n, text in enumerate(instructions) if text.startswith("loop "))
        kernel.instructions.insert(last + 1, sass_code.Instruction("BRA", True, "f.cuh:0", ["L"]))
    return kernel


def counters(*lines, exact=("global", "shared"), estimate=()):
    """A report of one launch of 4 warps. Lines: (line, space, op, bytes, sites, requests)."""
    metrics = {space: [f"l1tex_mem_{space}_op_ld.sum", f"l1tex_mem_{space}_op_st.sum"] for space in ("global", "shared")}
    metrics["shared"] += ["l1tex_mem_shared_op_ldsm.sum", "smsp__sass_inst_executed_op_shared_stsm.sum"]
    metrics["global"].append("smsp__sass_inst_executed_op_global_red.sum")
    metrics["global"].append("l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum")
    launch = {
        "kernel": "k", "grid": [2, 1, 1], "block": [64, 1, 1],
        "exact": {metric: 0 for space in exact for metric in metrics[space]},
        "estimate": {metric: {"value": 0, "reason": "because"} for space in estimate for metric in metrics[space]},
        "lines": [{"where": f"f.cuh:{line}", "space": space, "op": op, "bytes": size, "sites": sites, "requests": requests}
                  for line, space, op, size, sites, requests in lines],
    }  # fmt: skip
    return sass.counted_kernels([{"results": [{"counters": [launch]}]}])["k"]


def differences(kernel, counted, beside=None):
    return [row.difference for row in sass.compare("k", kernel, counted, beside or {}) if row.difference]


LOAD = (5, "global", "load", 4, 1, 8)


def test_what_agrees():
    assert not differences(kernel_with("LDG.E 5", "LDG.E 5"), counters(LOAD))  # unrolled
    assert not differences(kernel_with("loop LDG.E 5"), counters((5, "global", "load", 4, 1, 1000)))
    both = counters(LOAD, (5, "shared", "store", 4, 1, 8))
    assert not differences(kernel_with("loop LDG.E 5", "loop STS 5", "loop LDL 6"), both)  # a spill is no access of the source


@pytest.mark.parametrize(
    "instructions, lines, why",
    [
        (["loop LDG.E.128 5"], [LOAD], "4 bytes in the source, 16 bytes in the machine code"),
        (["loop LDG.E 5"], [(5, "global", "load", 4, 2, 8)], "2 accesses in the source, 1 in the machine code"),
        (["loop LDG.E 5", "LDG.E 6"], [LOAD], "no such access here"),
        (["FFMA 5"], [LOAD], "the machine code has no such access"),
        (["loop LD.E 5"], [LOAD], "cannot tell the space"),
        (["LDG.E 5"], [LOAD], "8 requests by 4 warps"),
    ],
)
def test_what_differs(instructions, lines, why):
    assert any(why in difference for difference in differences(kernel_with(*instructions), counters(*lines)))


def test_copies_and_matrices_are_accesses_of_their_own():
    lines = [(5, "global", "cp.async.cg", 16, 1, 4), (6, "shared", "ldmatrix", 16, 1, 4)]
    assert not differences(kernel_with("LDGSTS.E.BYPASS.LTC128B.128 5", "LDSM.16.M88.4 6"), counters(*lines))
    found = differences(kernel_with("LDGSTS.E.128 5", "LDSM.16.M88.2 6"), counters(*lines))
    assert len(found) == 3  # one past L1 is missing, one through L1 is not in the source
    assert "16 bytes in the source, 8 bytes in the machine code" in found[2]


def test_matrices_are_stored_by_an_access_of_their_own():
    lines = [(5, "shared", "stmatrix", 16, 1, 4)]
    assert not differences(kernel_with("STSM.16.M88.4 5"), counters(*lines))
    assert not differences(kernel_with("STSM.16.MT88.4 5"), counters(*lines))
    assert "16 bytes in the source, 8 bytes in the machine code" in differences(kernel_with("STSM.16.M88.2 5"), counters(*lines))[0]
    assert len(differences(kernel_with("STS.128 5"), counters(*lines))) == 2  # an ordinary store is another one


@pytest.mark.parametrize(("opcode", "width"), [("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", 4), ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", 4),
                                               ("REDG.E.ADD.F32x2.FTZ.RN.STRONG.GPU", 8), ("REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU", 16),
                                               ("REDG.E.ADD.F64.RN.STRONG.GPU", 8), ("REDG.E.ADD.64.STRONG.GPU", 8)])  # fmt: skip
def test_reductions_have_the_width_of_their_vector(opcode, width):
    assert not differences(kernel_with(f"{opcode} 5"), counters((5, "global", "red", width, 1, 4)))
    assert "the machine code has no such access" in differences(kernel_with("STG.E.128 6"), counters((5, "global", "red", width, 1, 4)))[0]


def test_an_atomic_that_the_simulator_does_not_count_is_no_difference_unless_the_kernel_has_reductions_that_it_counts():
    assert not differences(kernel_with("loop LDG.E 5", "REDG.E.ADD.STRONG.GPU 6"), counters(LOAD))
    both = kernel_with("REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU 5", "REDG.E.ADD.STRONG.GPU 6")
    assert "no such access here" in differences(both, counters((5, "global", "red", 16, 1, 4)))[0]


def test_accesses_with_the_name_of_another_line():
    lines = [(5, "global", "store", 4, 1, 4), (6, "global", "store", 2, 1, 4)]
    assert not differences(kernel_with("STG.E 5", "STG.E.U16 5"), counters(*lines))
    assert not differences(kernel_with("STG.E 6", "STG.E.U16 5"), counters(*lines))
    assert len(differences(kernel_with("STG.E 5", "STG.E 6"), counters(*lines))) == 1  # no store of 2 bytes
    assert len(differences(kernel_with("STG.E 5", "STG.E.64 6"), counters(*lines))) == 1
    called = ["STG.E 5 9", "STG.E.U16 6 9"]
    assert not differences(kernel_with(*called, "STG.E 9"), counters(*lines))
    assert "no such access here" in differences(kernel_with(*called, "STG.E 8"), counters(*lines))[0]
    (row,) = [row for row in sass.compare("k", kernel_with(*called, "STG.E 9"), counters(*lines), {}) if row.elsewhere]
    assert (row.place, row.machine) == ("f.cuh:5", "2 STG.E")


def test_accesses_with_the_name_of_the_loop_that_they_stand_in(tmp_path, monkeypatch):
    monkeypatch.setattr(sass, "ROOT", tmp_path)
    (tmp_path / "f.cuh").write_text("\n  for (int i = 0; i < 4; ++i) {\n    int j = i;\n    use(j);\n\nload_v()")
    lines = [(6, "global", "load", 4, 1, 4)]
    assert not differences(kernel_with("LDG.E 6", "LDG.E 2"), counters(*lines))
    assert "no such access here" in differences(kernel_with("LDG.E 6", "LDG.E 3"), counters(*lines))[0]


def test_an_ldmatrix_with_the_name_of_a_line_that_has_none():
    line = (6, "shared", "ldmatrix", 16, 1, 4)
    assert not differences(kernel_with("LDSM.16.MT88.4 6", "LDSM.16.MT88.4 3"), counters(line))
    assert "no such access here" in differences(kernel_with("LDSM.16.MT88.4 6", "LDSM.16.MT88.2 3"), counters(line))[0]
    assert "no such access here" in differences(kernel_with("LDSM.16.MT88.4 3"), counters())[0]


def test_of_two_neighbouring_lines_nvcc_may_name_one_for_what_both_do_in_a_loop():
    lines = [(5, "global", "cp.async.cg", 16, 1, 1000), (6, "global", "cp.async.cg", 16, 1, 1000)]
    copy = "LDGSTS.E.BYPASS.LTC128B.128"
    assert not differences(kernel_with(f"{copy} 5", f"{copy} 6", f"loop {copy} 5", f"loop {copy} 5"), counters(*lines))
    assert differences(kernel_with(f"{copy} 5", f"{copy} 6"), counters(*lines))


def test_a_line_that_loads_fragments_may_bear_the_name_of_its_neighbour_in_the_file():
    lines = [(5, "shared", "ldmatrix", 16, 2, 4), (9, "shared", "ldmatrix", 16, 2, 4)]
    load = "LDSM.16.M88.4"
    assert not differences(kernel_with(f"{load} 5", f"{load} 9", f"{load} 9", f"{load} 9"), counters(*lines))
    assert "2 accesses in the source, 1 in the machine code" in differences(kernel_with(f"{load} 5", f"{load} 9", f"{load} 9"), counters(*lines))[0]


def test_a_copy_before_the_loops_may_bear_the_name_of_another_in_the_file():
    lines = [(5, "global", "cp.async.cg", 16, 2, 1000), (9, "global", "cp.async.cg", 16, 2, 1000)]
    copy = "LDGSTS.E.BYPASS.LTC128B.128"
    assert not differences(kernel_with(f"{copy} 5", f"{copy} 5", f"loop {copy} 5", f"loop {copy} 9"), counters(*lines))
    found = differences(kernel_with(f"{copy} 5", f"loop {copy} 5", f"loop {copy} 5", f"loop {copy} 9"), counters(*lines))
    assert not found  # one stands before the loops
    found = differences(kernel_with(f"loop {copy} 5", f"loop {copy} 5", f"loop {copy} 5", f"loop {copy} 9"), counters(*lines))
    assert "2 accesses in the source, 1 in the machine code" in found[0]


def test_accesses_with_the_name_of_another_file():
    lines = [(5, "global", "load", 4, 2, 8)]

    def found(opcode, line, *more):
        kernel = kernel_with("LDG.E 5", f"{opcode} 0")
        kernel.instructions[1] = dataclasses.replace(kernel.instructions[1], place=f"other.cuh:{line}")
        return differences(kernel, counters(*lines, *more))

    assert not found("LDG.E", 5)  # f.cuh:5 is meant: the source has no load on other.cuh:5
    assert len(found("LDG.E", 6)) == 2  # another number: nothing there in the source, and f.cuh:5 lacks one
    assert len(found("LDG.E.128", 5)) == 2  # the source has no such width
    assert len(found("STG.E", 5)) == 2  # nor a store


def test_neighbouring_lines_of_which_one_is_named_for_both():
    line_of = lambda line, sites=1: (line, "global", "cp.async.cg", 16, sites, 4)
    both = ["LDGSTS.E.BYPASS.128 5"] * 2
    assert not differences(kernel_with(*both), counters(line_of(5), line_of(6)))
    assert len(differences(kernel_with(both[0]), counters(line_of(5), line_of(6)))) == 1  # one access for two
    assert len(differences(kernel_with(*both), counters(line_of(5), line_of(7)))) == 1  # no neighbours
    assert len(differences(kernel_with(*both), counters(line_of(5), line_of(6, 2)))) == 1  # not the same accesses


def test_loads_that_stay_in_registers():
    two_for_one = {("f.cuh:5", "load"): sass.Beside(2, 1, {"f.cuh:5"}, True)}
    counted = counters((5, "global", "load", 4, 2, 1000))
    assert not differences(kernel_with("loop LDG.E 5", "loop LDG.E 5", "loop FFMA 5"), counted, two_for_one)
    moved_out = kernel_with("LDG.E 5", "loop LDG.E 5", "loop FFMA 5")
    assert "2 for 1 multiplications in the source, 1 for 1 in the machine code" in differences(moved_out, counted, two_for_one)[0]
    both = counters((5, "global", "load", 4, 1, 1000), (5, "shared", "load", 4, 1, 1000))
    assert not differences(kernel_with("loop LDG.E 5", "loop LDS 5", "loop FFMA 5"), both, two_for_one)
    tile = kernel_with(*["loop LDG.E 5"] * 4, *["loop FFMA 5"] * 8)
    at_least = {("f.cuh:5", "load"): sass.Beside(1, 1, {"f.cuh:5"}, False)}
    assert "1 for 1 multiplications in the source, 4 for 8" in differences(tile, counted, at_least)[0]


def test_what_the_step_declares():
    exact, wide = kernel_with("loop LDG.E 5"), kernel_with("loop LDG.E.128 5")
    unrolled = kernel_with("loop LDG.E 5", "loop LDG.E 5")

    def problems(kernel, counted):
        return sass.problems_of("k", sass.compare("k", kernel, counted, {}), counted)

    assert not problems(exact, counters(LOAD))
    assert "k: global loads are called exact, but f.cuh:5 is not" in problems(wide, counters(LOAD))[0]
    declared = counters(LOAD, exact=["shared"], estimate=["global"])
    assert [p for p in problems(wide, declared) if "loads" in p] == []
    assert any("global loads are declared as estimates, but the machine code bears them out. Declared was: because" in p for p in problems(exact, declared))
    assert [p for p in problems(unrolled, declared) if "loads" in p] == []  # lanes may part there
    polls = kernel_with("loop LDG.E.STRONG.SYS 5")
    assert [p for p in problems(polls, declared) if "loads" in p] == []  # until another thread has written
    store = counters((5, "global", "store", 4, 1, 1000), exact=["shared"], estimate=["global"])
    assert any("global stores are declared" in p for p in problems(kernel_with("loop STG.E.STRONG.SYS 5"), store))  # nobody waits with a store


# ---- sass: the plan of a step ----

# A loop with an inner loop that was unrolled, and the remainder before it.
TENSOR = """
	.section	.text._Z4gemmv,"ax",@progbits
        .other          _Z4gemmv,@"STO_CUDA_ENTRY STV_DEFAULT"
_Z4gemmv:
.L_x_1:
	//## File "{root}/steps/09_x/1.cuh", line 5
        /*0000*/              @P0 BRA `(.L_x_2) ;
	//## File "{root}/steps/09_x/1.cuh", line 6
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_2:
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/                   LDG.E.128 R8, desc[UR4][R2.64] ;
        /*0040*/              @P1 BRA `(.L_x_2) ;
	//## File "{root}/steps/09_x/1.cuh", line 7
        /*0050*/                   LDSM.16.M88.4 R12, [R0] ;
        /*0060*/             @!PT LDS RZ, [RZ] ;
        /*0070*/                   HMMA.16816.F32 R16, R12, R4, R16 ;
        /*0080*/                   HMMA.16816.F32 R20, R12, R8, R20 ;
        /*0090*/              @P2 BRA `(.L_x_1) ;
        /*00a0*/                   EXIT ;
"""
PLAN = {"types": ["__half"], "kernels": {"gemm<T, Tile<64>>": {"registers": 128, "loops": [{"HMMA": 2, "LDSM": 1, "LDG": 2, "rounds": 2}]}}}


@pytest.fixture
def gemm():
    (kernel,) = sass_code.read_listing(TENSOR.replace("{root}", str(ROOT))).values()
    kernel.name, kernel.registers = "ns::gemm<__half, ns::Tile<64> >", 128
    return kernel


def test_a_round_counts_the_inner_loop_without_its_remainder(gemm):
    assert gemm.tensor_loops == [{"HMMA": 2, "LDSM": 1, "LDG": 2, "NOP": 1, "BRA": 3}]
    assert list(sass_plan.loop_rows(PLAN, [gemm])) == [["gemm<__half, Tile<64>>", 4, 2, 4, 8, "3.50"]]
    assert gemm.counts["LDS"] == 0 and not [access for access in gemm.accesses if access.opcode == "LDS"]  # it never happens


def test_an_inner_loop_with_mma_has_its_own_entry():
    """As a loop that seldom runs, for NaNs: on the lines of the hot one, which must not be taken for what remains of it."""
    mma = """
	//## File "{root}/steps/09_x/1.cuh", line 7
        /*0000*/                   LDSM.16.M88.4 R12, [R0] ;
        /*0010*/                   HMMA.16816.F32 R16, R12, R4, R16 ;
"""
    begin, end = TENSOR.partition(".L_x_1:")[0], "        /*0050*/                   EXIT ;\n"
    seldom = f"{mma}        /*0040*/              @P1 BRA `(.L_x_2) ;\n"
    text = f"{begin}.L_x_1:{mma}{mma}        /*0020*/              @P0 BRA `(.L_x_3) ;\n.L_x_2:{seldom}"
    text += f".L_x_3:\n        /*0050*/              @P2 BRA `(.L_x_1) ;\n{end}"
    (kernel,) = sass_code.read_listing(text.replace("{root}", str(ROOT))).values()
    assert kernel.tensor_loops == [{"LDSM": 2, "HMMA": 2, "BRA": 2}, {"LDSM": 1, "HMMA": 1, "BRA": 1}]


def test_a_plan_that_is_kept(gemm):
    assert sass_plan.problems_of(PLAN, [gemm]) == []


@pytest.mark.parametrize("opcode", ["HMMA", "LDSM", "LDG", "LDGSTS"])
def test_a_wrong_count_is_rejected(gemm, opcode):
    plan = copy.deepcopy(PLAN)
    (loop,) = plan["kernels"]["gemm<T, Tile<64>>"]["loops"]
    there, loop[opcode] = loop.get(opcode, 0), 3
    assert sass_plan.problems_of(plan, [gemm]) == [f"gemm<__half, Tile<64>>: loop 1, one round: 3 {opcode} planned, {there} there"]


def test_copies_that_are_not_planned_are_rejected(gemm):
    gemm.instructions[3].opcode = "LDGSTS.E.BYPASS.128"
    found = sass_plan.problems_of(PLAN, [gemm])
    assert [text.partition("round: ")[2] for text in found] == ["0 LDGSTS planned, 1 there", "2 LDG planned, 1 there"]


@pytest.mark.parametrize("stack, opcode, there", [(8, "NOP", "8 bytes of stack, 0 LDL, 0 STL"), (0, "STL.64", "0 bytes of stack, 0 LDL, 1 STL")])
def test_a_spill_is_rejected(gemm, stack, opcode, there):
    gemm.stack = stack
    gemm.instructions.append(sass_code.Instruction(opcode, False, "steps/09_x/1.cuh:8", []))
    (problem,) = sass_plan.problems_of(PLAN, [gemm])
    assert problem.endswith(there)


def test_too_many_registers_and_another_number_of_loops_are_rejected(gemm):
    gemm.registers = 129
    assert "at most 128 registers are planned, 129 are there" in sass_plan.problems_of(PLAN, [gemm])[0]
    gemm.registers = 100
    scalar = {"types": ["__half"], "kernels": {"gemm<T, Tile<64>>": {"registers": 128}}}
    assert sass_plan.problems_of(scalar, [gemm]) == ["gemm<__half, Tile<64>>: loops with HMMA: 0 planned, 1 there"]
    scalar["kernels"]["gemm<T, Tile<64>>"]["any_loops"] = True
    assert sass_plan.problems_of(scalar, [gemm]) == []


def test_a_kernel_that_is_only_planned_is_rejected(gemm):
    other_type = PLAN | {"types": ["__half", "__nv_bfloat16"]}
    assert sass_plan.problems_of(other_type, [gemm]) == ["gemm<__nv_bfloat16, Tile<64>>: planned, but there is no such kernel"]
    gemm.name = "ns::gemm<__half, ns::Tile<32> >"
    assert sass_plan.problems_of(PLAN, [gemm]) == ["gemm<__half, Tile<64>>: planned, but there is no such kernel"]


def test_a_kernel_may_be_planned_for_one_architecture_alone(gemm):
    plan = PLAN | {"kernels": {name: entry | {"arch": "sm_90"} for name, entry in PLAN["kernels"].items()}}
    gemm.registers = 129
    assert len(sass_plan.problems_of(plan, [gemm], "sm_90")) == 1
    assert sass_plan.problems_of(plan, [], "sm_90") == ["gemm<__half, Tile<64>>: planned, but there is no such kernel"]
    assert sass_plan.problems_of(plan, [], "sm_80") == []


@pytest.mark.parametrize("plan", [{}, PLAN | {"kernels": {}}])
@pytest.mark.parametrize("stack, opcode", [(0, None), (8, None), (0, "STL.64"), (0, "LDL")])
def test_a_kernel_without_an_entry_may_do_anything_but_spill(gemm, plan, stack, opcode):
    gemm.registers, gemm.stack = 255, stack
    if opcode:
        gemm.instructions.append(sass_code.Instruction(opcode, False, "steps/09_x/1.cuh:8", []))
    found = sass_plan.problems_of(plan, [gemm])
    assert bool(found) == bool(stack or opcode)
    assert all(text.startswith("gemm<__half, Tile<64>>: has no entry in the step's plan.json, and spills") for text in found)
    assert not sass_plan.is_planned(plan, gemm) and sass_plan.is_planned(PLAN, gemm)


@pytest.mark.parametrize("planned, stack, status", [(True, 0, 0), (True, 8, 1), (False, 0, 0), (False, 8, 1)])
def test_the_command_fails_where_a_kernel_spills(gemm, planned, stack, status, tmp_path, monkeypatch, capsys):
    gemm.stack = stack
    assert sass_of(gemm, PLAN if planned else {}, tmp_path, monkeypatch) == status
    assert (f"{stack} bytes of stack" in capsys.readouterr().out.splitlines()[-1]) == bool(status)


def sass_of(gemm, plan, tmp_path, monkeypatch):
    """The exit status of `sass --table` for a step with that kernel alone."""
    (tmp_path / "bin" / "09_x").mkdir(parents=True)
    monkeypatch.setattr(sass_code, "architectures", lambda executable: ["sm_90"])
    monkeypatch.setattr(sass_code, "kernels_of", lambda executable, arch: {gemm.name: gemm})
    monkeypatch.setattr(sass_plan, "read_plan", lambda step: plan)
    return tool.check_sass(argparse.Namespace(step="09", build=tmp_path, table=True, arch="sm_90", json=None))


@pytest.mark.parametrize("registers, status", [(128, 0), (129, 1)])
def test_the_command_fails_where_a_plan_is_not_kept(gemm, registers, status, tmp_path, monkeypatch, capsys):
    gemm.registers = registers
    assert sass_of(gemm, PLAN, tmp_path, monkeypatch) == status
    assert ("09_x, sm_90: gemm<__half, Tile<64>>: at most 128" in capsys.readouterr().out) == bool(status)


def test_every_planned_kernel_is_there_and_its_plan_says_why():
    plans = sorted(ROOT.glob("tests/steps/*/plan.json"))
    assert plans
    for file in plans:
        kernels = sass_plan.read_plan(file.parent.name)["kernels"]
        sources = [*(ROOT / "steps" / file.parent.name).glob("*.cuh"), *(ROOT / "common" / "device").rglob("*.cuh")]
        declared = {name for source in sources for name in re.findall(KERNEL, source.read_text(), re.MULTILINE)}
        assert kernels and {code_listing.base_name(name) for name in kernels} <= declared
        assert all(entry["why"] and all(loop["why"] for loop in entry.get("loops", [])) for entry in kernels.values())


# ---- rungs: what the ladder's table says of the machine code ----


def record_of(gemm):
    report = {"results": [{"variant": "tuned", "counters": [{"kernel": gemm.name}, {"kernel": gemm.name}]}], "skipped": []}
    return rungs.record("09_x", {gemm.name: gemm}, rungs.launched({"4k": report}), "V13.0.88")


def test_a_record_names_the_kernels_of_a_variant_and_their_main_loop(gemm):
    fresh = record_of(gemm)
    assert fresh["shapes"] == {"4k": {"tuned": ["gemm<__half, Tile<64>>"] * 2}}
    loop = {"instructions": 9, "HMMA": 2, "LDSM": 1}
    assert fresh["kernels"] == {"gemm<__half, Tile<64>>": {"file": "1.cuh", "registers": 128, "stack": 0, "loop": loop}}
    assert json.loads(rungs.as_json(fresh)) == fresh


def test_the_main_loop_is_the_shortest_of_those_with_the_most_mma():
    kernel = kernel_with("FFMA 5")
    loops = [{"HMMA": 64, "FMNMX": 9}, {"HMMA": 64, "LDSM": 8}, {"HMMA": 4}]
    kernel.__dict__["tensor_loops"] = [collections.Counter(loop) for loop in loops]
    assert rungs.main_loop(kernel) == {"instructions": 72, "HMMA": 64, "LDSM": 8}
    kernel.__dict__["tensor_loops"] = []
    assert rungs.main_loop(kernel) is None


def test_what_stands_in_a_steps_folder_of_common_device_is_no_helper():
    frames = [("common/device/ptx/arithmetic.cuh", 9), ("common/device/dialect.h", 7), ("common/device/flash_v2/tile.cuh", 5), ("steps/09_x/1.cuh", 3)]
    assert code_listing.places_of(frames) == ["common/device/flash_v2/tile.cuh:5", "steps/09_x/1.cuh:3"]


def test_a_kernel_belongs_to_the_file_it_is_written_in_not_to_its_helpers():
    kernel = sass_code.Kernel("k")
    for place, callers in [("steps/09_x/tile.cuh:5", ("steps/09_x/2.cuh:9",))] * 3 + [("steps/09_x/2.cuh:7", ()), ("unknown place:0", ())]:
        kernel.instructions.append(sass_code.Instruction("FFMA", False, place, [], callers))
    assert rungs.file_of(kernel, "09_x") == "2.cuh"
    for number in range(9):  # of a header that the step shares with later ones
        place = f"common/device/x/shared.cuh:{number}"
        kernel.instructions.append(sass_code.Instruction("FFMA", False, place, [], ()))
    assert rungs.file_of(kernel, "09_x") == "shared.cuh" and rungs.file_of(kernel, "09_y") is None
    assert rungs.file_of(kernel_with("FFMA 5"), "09_x") is None


def test_a_kernel_that_only_the_simulator_has_is_an_error(gemm):
    with pytest.raises(code_listing.Missing, match="gone, which the gpu build does not have"):
        rungs.record("09_x", {gemm.name: gemm}, {"4k": {"tuned": ["gone"]}}, "V13.0.88")


def test_a_record_that_is_out_of_date_is_noticed(gemm, tmp_path):
    fresh = record_of(gemm)
    (problem,) = rungs.update_or_compare(fresh, False, tmp_path)
    assert "results/machine_code/09_x.json is missing: make sass STEP=09 UPDATE=1" in problem
    assert rungs.update_or_compare(fresh, True, tmp_path) == []
    assert rungs.update_or_compare(fresh, False, tmp_path) == []
    gemm.registers = 127
    (problem,) = rungs.update_or_compare(record_of(gemm), False, tmp_path)
    assert "is of other code (gemm<__half, Tile<64>>)" in problem
    other = copy.deepcopy(fresh)
    other["shapes"]["4k"]["new"] = other["shapes"]["4k"].pop("tuned")
    assert "is of other code (4k, new; 4k, tuned)" in rungs.update_or_compare(other, False, tmp_path)[0]
    assert rungs.update_or_compare(record_of(gemm) | {"nvcc": "V14.0.1"}, False, tmp_path) == []  # which may count differently


def test_rungs_are_run_at_small_shapes_that_choose_the_same_kernels():
    assert rungs.small(["--heads", "16", "--seq-q", "4096", "--dim", "128"]) == ["--heads", "1", "--seq-q", "128", "--dim", "128"]
    assert rungs.small(["--rows", "16384", "--cols", "4096"]) == ["--rows", "1", "--cols", "4096"]
    measured = {(report["step"], report["shape"]): report for report in json.loads((ROOT / "results" / "h200" / "bench.json").read_text())}
    records = sorted(ROOT.glob("results/machine_code/*.json"))
    assert records
    for path in records:
        record = json.loads(path.read_text())
        assert set(record["shapes"]) == set(rungs.commands(path.stem))
        for shape, variants in record["shapes"].items():
            for result in measured.get((path.stem, shape), {"results": []})["results"]:
                if result["variant"] in variants:  # else it is gone, and its times with the next run
                    names = [code_listing.base_name(name) for name in variants[result["variant"]]]
                    renamed = shapes.RENAMED.get(path.stem, {})
                    then = [renamed.get(kernel["kernel"], kernel["kernel"]) for kernel in result["kernels"]]
                    assert names == then, (path, result["variant"])


# ---- sass: what nvcc really makes ----

TILE = """
#include "common/device/dialect.h"
struct Tile { float a[16][64], b[16][64]; };
__global__ void tile(const float* in, float* out) {
  auto& smem = device::shared_storage<Tile>();
  for (int i = threadIdx.x; i < 1024; i += 256) smem.a[0][i] = in[i];
  for (int i = threadIdx.x; i < 1024; i += 256) smem.b[0][i] = in[i];
  __syncthreads();
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  float sums[4][4] = {};
  for (int k = 0; k < 16; ++k)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) sums[i][j] += smem.a[k][y + 16 * i] * smem.b[k][x + 16 * j];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) out[64 * (y + 16 * i) + x + 16 * j] = sums[i][j];
}
__global__ void dot(const float* a, const float* b, float* out, int n) {
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += a[i] * b[threadIdx.x + i];
  out[threadIdx.x] = sum;
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_registers_that_nvcc_reuses_are_noticed(step_command, tmp_path):
    code = compiled(step_command, tmp_path, TILE)
    command = ["nvcc", "-arch=sm_90", "-std=c++20", "--expt-relaxed-constexpr", "-lineinfo", "-cubin", "-I", ROOT, "kernels.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    kernels = sass_code.read_listing(code_listing.output_of("nvdisasm", "-gi", tmp_path / "kernels.cubin"))
    for kernel, line, space, differs in (("tile", 13, "shared", True), ("dot", 19, "global", False)):
        source = next(f for f in code.kernels().values() if f.name == kernel)
        machine = next(k for k in kernels.values() if k.name == kernel)
        place = f"{tmp_path}/kernels.cu:{line}"
        counted = sass.Counted({(place, space, "load"): sass.Line({4: 2}, [(1000, 4)])})
        rows = sass.compare(kernel, machine, counted, sass.multiplications_beside(code, source))
        (row,) = [row for row in rows if row.place == place and row.op == "load"]
        assert ("stay in registers" in row.difference) == differs, row

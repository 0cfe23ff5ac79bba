"""The table of docs/simulated_calls.md: every call of CUDA and every PTX instruction that the simulator has. The names are read from its
headers, the instructions from what nvcc gets instead (common/device/ptx). What is counted, and what is assumed, stands here; a name without
such a remark, or a remark without its name, is an error."""

import re
from typing import NamedTuple

from tools.book.tables import TableError, markdown, table

CUDA, PTX, WIDTHS = "common/simt/cuda.h", "common/simt/ptx.h", "common/device/dialect.h"


class Remark(NamedTuple):
    """Of the names that match a pattern, all in one row: what is counted of them, and what is assumed."""

    names: str
    counted: str
    assumed: str


EXACT = "exactly: "
REMARKS = [
    Remark(
        r"load|store",
        EXACT + "requests and sectors of global memory, wavefronts of shared memory",
        "one access of 2, 4, 8 or 16 bytes, as nvcc makes it",
    ),
    Remark(
        r"load_if|store_if",
        "as `load` and `store`, by the lanes whose condition holds",
        "nvcc makes a predicate of the condition, and no branch",
    ),
    Remark(
        r"__syncthreads(_or)?",
        EXACT + "`BAR`, one for each warp that comes",
        "it opens when all threads have come that have not ended, and is reported where some have",
    ),
    Remark(r"__syncwarp", "no", "lanes of the mask that have ended are not waited for"),
    Remark(
        r"__shfl(_up|_down|_xor)?_sync",
        EXACT + "`SHFL`; two for 8 bytes",
        "who reads a lane outside the mask gets 0, and is reported",
    ),
    Remark(r"__(ballot|any|all)_sync", "no", ""),
    Remark(
        r"atomic(Add|Max|Min|Or|And|Exch|CAS)(_block|_system)?",
        "no",
        "relaxed; the whole system is one device; lanes of a warp go one after the other, in an order that the seed decides",
    ),
    Remark(
        r"__threadfence(_block|_system)?", "no", "sequentially consistent: of two fences one comes first, and a flag says which"
    ),
    Remark(r"min|max|__popc|__ffs|__float_as_uint|__uint_as_float", "no", "`min` and `max` of integers alone"),
    Remark(r"__fmul_rn", "no", "never a part of an FMA"),
    Remark(
        r"bar_sync|barrier_sync|bar_arrive",
        EXACT + "`BAR`, one for each warp",
        "a warp counts as 32 threads; `bar.sync` beside another waiting instruction is reported, as synccheck does",
    ),
    Remark(r"cluster_(rank|size)", "no", "in a launch without clusters each block is one"),
    Remark(
        r"cluster_(arrive|arrive_relaxed|wait|sync)",
        "no; in a launch without clusters a wait is a `BAR`, as in nvcc 13.0's code",
        "threads that have ended are not waited for, and let others see nothing",
    ),
    Remark(r"in_block", "nothing of an access that reaches another block", "a peer must have begun, and must not end before"),
    Remark(r"ldmatrix_x[124](_trans)?", EXACT + "instructions and wavefronts", "all 32 lanes stand at one place in the code"),
    Remark(
        r"stmatrix_x4(_trans)?",
        EXACT + "instructions and wavefronts",
        "the same; its rows pass through the banks as those of `ldmatrix` do, which 44 measured patterns confirm",
    ),
    Remark(
        r"mma_m16n8k(8|16)",
        EXACT + "instructions",
        "products are added to the sum one by one, in the order of k, and each sum is rounded to fp32. The hardware adds several at once and "
        "cuts off bits: last digits differ",
    ),
    Remark(
        r"cp_async_(4|8|16|16_ca)",
        EXACT + "instructions, requests, sectors; estimated: wavefronts of its store, where lanes are scattered",
        "sectors past L1 by a rule that was found by measuring; when the bytes arrive is `--sim-async`'s choice",
    ),
    Remark(r"cp_async_(commit_group|wait_group|wait_all)", "no", ""),
    Remark(
        r"mbarrier_(init|inval|arrive|expect_tx|arrive_expect_tx)|cp_async_mbarrier_arrive",
        "no",
        "copies that arrive say nothing of what their thread stored itself",
    ),
    Remark(
        r"mbarrier_(test_wait|try_wait|wait)",
        "no",
        "who does not look at the result has not waited; `--sim-async random` sometimes lets `try_wait` fail though the phase is over; "
        "`mbarrier_wait` is a loop",
    ),
    Remark(
        r"bulk_(load|store)",
        "no",
        "what a bulk copy reads or writes is seen by other copies and by threads as PTX promises, and no earlier; `--sim-async` chooses when",
    ),
    Remark(r"bulk_(commit_group|wait_group|wait_group_read)", "no", ""),
    Remark(
        r"fence_proxy_async|fence_mbarrier_init",
        "no",
        "by the thread that stored, and before the barrier; PTX may be read so that behind it is enough",
    ),
    Remark(
        r"griddepcontrol_(wait|launch_dependents)",
        "no",
        "launches run one after the other; what is not ordered behind an earlier launch is reported. In a launch that is not dependent, nothing",
    ),
    Remark(
        r"red_add(_v2|_v4)?_f32",
        EXACT + "instructions, requests, sectors",
        "sectors by a rule that was found by measuring; of a vector each element is an atomic of its own; subnormal numbers become 0",
    ),
    Remark(r"prmt|max_nan_x2", "no", ""),
    Remark(r"ex2_approx_ftz", "no", "the host's exp2; the hardware's is an approximation"),
]


def read(root, path):
    return re.sub(r"//.*", "", (root / path).read_text())


def names_of_cuda(root):
    """In the order of the header: of its functions outside of a namespace, and of its atomics, which are made by macros."""
    text = re.sub(r"\nnamespace simt \{.*?\n\}  ", "\n", read(root, CUDA), flags=re.DOTALL)
    function = r"^(?:template <[^>]*>\n)?(?:inline )?(?!return )[a-zA-Z_][\w:]*[ *&]+(?P<function>\w+)\("
    found = []
    for match in re.finditer(rf"{function}|^SIMT_ATOMIC\((?P<atomic>\w+)|^SIMT_ATOMIC_CAS\(device, (?P<cas>\w+)", text, re.MULTILINE):
        name = match["function"] or match["atomic"] or match["cas"]
        found += [name] if match["function"] else [name, f"{name}_block", f"{name}_system"]
    return list(dict.fromkeys(found))


def names_of_ptx(root):
    text = read(root, PTX)
    used = re.findall(r"^using simt::(\w+);", text, re.MULTILINE)
    return list(dict.fromkeys(used + re.findall(r"^(?:\[\[gnu::always_inline\]\] )?inline (?!constexpr)[\w:]+[ *&]+(\w+)\(", text, re.MULTILINE)))


def instructions(root):
    """{name: its PTX without operands}, of the functions that nvcc compiles; of a template for both types, the first one's."""
    found = {}
    for path in sorted((root / "common/device/ptx").glob("*.cuh")):
        for function in re.split(r"(?m)^__device__ inline ", path.read_text())[1:]:
            name = re.match(r"[\w:]+[ *&]+(\w+)\(", function)
            text = re.search(r"asm(?: volatile)?\(\s*\"(?:\{[^;]*; |mov\.u32 %0, %)?([%\w.:]+)", function)
            if name and text:
                found.setdefault(name[1], f"`{text[1]}`")
            elif name and (loop := re.search(r"while \(!(\w+)\(", function)):
                found.setdefault(name[1], found[loop[1]])
    return found


def folded(names):
    """(roots, endings): ["atomicAdd", "atomicMax"], ["_block"], where each root has all of these endings; else all names, and none."""
    roots = [name for name in names if not any(name != other and name.startswith(other) for other in names)]
    endings = list(dict.fromkeys(name.removeprefix(root) for root in roots for name in names if name.startswith(root) and name != root))
    return (roots, endings) if {root + ending for root in roots for ending in ["", *endings]} == set(names) else (names, [])


def cell(names):
    roots, endings = folded(names)
    texts = [", ".join(f"`{name}`" for name in some) for some in (roots, endings)]
    return f"{texts[0]}; also with {texts[1]}" if endings else texts[0]


@table("simulated_calls")
def simulated_calls_table(root, which):
    """What the simulator has of CUDA (with the accesses of common/device/dialect.h), or of PTX."""
    if which not in ("cuda", "ptx"):
        raise TableError(f"simulated_calls cuda or ptx, not {which}")
    widths = re.findall(r"using simt::(\w+);", (root / WIDTHS).read_text())
    names = names_of_ptx(root) if which == "ptx" else sorted(widths) + names_of_cuda(root)
    ptx = instructions(root)
    rows, left = [], list(names)
    for remark in REMARKS:
        of_row = [name for name in names if re.fullmatch(remark.names, name)]
        left = [name for name in left if name not in of_row]
        if not of_row:
            continue
        made = [", ".join(dict.fromkeys(ptx[name] for name in folded(of_row)[0]))] if which == "ptx" else []
        rows.append([cell(of_row), *made, remark.counted, remark.assumed])
    if left:
        raise TableError(f"tools/book/calls.py says nothing of {', '.join(left)}")
    everything = sorted(widths) + names_of_cuda(root) + names_of_ptx(root)
    if gone := [remark.names for remark in REMARKS if not any(re.fullmatch(remark.names, name) for name in everything)]:
        raise TableError(f"tools/book/calls.py speaks of {gone}, which the simulator does not have")
    return markdown(["call", *(["instruction"] if which == "ptx" else []), "counted", "assumed"], rows)

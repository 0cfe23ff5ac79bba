"""What the grader of this mystery shows and asks for (tools/learn/grading/changes.py). Its answers stand here sealed."""

from tools.learn.grading.changes import (
    ADDRESSES,
    NEXT_TILE,
    OF_DRAM,
    ON_CHIP,
    TENSOR_CORES,
    Change,
    Mystery,
)

MYSTERY = Mystery(
    case="4k-d128",
    shape="16 heads, 4096 queries and keys, head dim 128, fp16, on an H200",
    changes={
        "tensor_cores": TENSOR_CORES,
        "ldmatrix": Change(
            "read fragments by ldmatrix from swizzled rows", "it saves bank conflicts: are they many beside the shared wavefronts?",
            ("bank conflicts", "shared wavefronts"),
        ),
        "rows_32": Change(
            "give a warp 32 queries: a fragment of K or V serves two mma",
            "it saves shared wavefronts of fragments without conflicts: are there mma, and conflicts?",
            ("tensor pipe", "bank conflicts", "shared wavefronts"),
        ),
        "next_tile": NEXT_TILE,
        "addresses": ADDRESSES,
        "on_chip": Change("keep O on the chip while the keys pass by", ON_CHIP, OF_DRAM),
    },
    sealed={"A": ("bcda0e10a9aa", "be6b9d40e01f"), "B": ("f06e465612e7", "a28ba3ffe5db"), "C": ("6f6adb533b58", "30c44912fdab")},
)  # fmt: skip

"""What the grader of this mystery shows and asks for (tools/learn/grading/changes.py). Its answers stand here sealed."""

from tools.learn.grading.changes import (
    NEXT_TILE,
    OF_DRAM,
    ON_CHIP,
    PADDING,
    TENSOR_CORES,
    WIDE,
    Change,
    Mystery,
)

MYSTERY = Mystery(
    case="4k-d128",
    shape="16 heads, 4096 queries and keys, head dim 128, fp16, on an H200",
    changes={
        "on_chip": Change("keep the matrices of pairs on the chip", ON_CHIP, OF_DRAM),
        "tensor_cores": TENSOR_CORES,
        "larger_tiles": Change(
            "give a warp more keys, so that a fragment feeds more mma",
            "it saves ldmatrix: are there mma, and how many shared wavefronts beside the tensor instructions?",
            ("tensor pipe", "shared wavefronts", "tensor instructions"),
        ),
        "next_tile": NEXT_TILE,
        "padding": PADDING,
        "wide_loads": WIDE,
    },
    sealed={"A": ("05cdb97eed3c", "d56be91a06de"), "B": ("139de8b0657b", "20697b4d381b"), "C": ("7cb5e59d1c6a", "fe6af4765f5e")},
)  # fmt: skip

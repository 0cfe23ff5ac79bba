"""What the grader of this mystery shows and asks for (tools/learn/grading/changes.py). Its answers stand here sealed."""

from tools.learn.grading.changes import (
    NEIGHBOURS,
    PADDING,
    TENSOR_CORES,
    WIDE,
    Change,
    Mystery,
)

MYSTERY = Mystery(
    case="4k",
    shape="16 heads, 4096 queries and keys, head dim 64, fp16, on an H200; the loops, so the number of blocks too, stay as they are",
    changes={
        "tensor_cores": TENSOR_CORES,
        "wide_loads": WIDE,
        "neighbouring_lanes": NEIGHBOURS,
        "larger_blocks": Change(
            "take more keys at a time, so that O travels less often", "it saves bytes of O, m and l: how near are L2 and DRAM to their roofs?",
            ("L1–L2 bytes a second", "DRAM bytes a second"),
        ),
        "padding": PADDING,
    },
    sealed={"A": ("01222418dd14", "260ba0490bb3"), "B": ("efab4feb4f34", "34c82cd58011"), "C": ("90746cf38c92", "3c83516c102f")},
)  # fmt: skip

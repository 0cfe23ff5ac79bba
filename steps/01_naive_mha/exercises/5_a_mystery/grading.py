"""What the grader of this mystery shows and asks for (tools/learn/grading/changes.py). Its answers stand here sealed."""

from tools.learn.grading.changes import (
    NEIGHBOURS,
    OF_DRAM,
    ON_CHIP,
    PADDING,
    WIDE,
    Change,
    Mystery,
)

MYSTERY = Mystery(
    case="4k",
    shape="16 heads, 4096 queries and keys, head dim 64, fp32, on an H200",
    changes={
        "neighbouring_lanes": NEIGHBOURS,
        "on_chip": Change("keep the scores on the chip until their row is finished", ON_CHIP, OF_DRAM),
        "share_a_tile": Change(
            "stage rows in shared memory, where several queries use them",
            "it saves what comes from L2: how near is L2 to its roof, and how much more than the bytes that must move comes from it?",
            ("L1–L2 bytes a second", "L1–L2", "bytes that must move"),
        ),
        "block_per_row": Change(
            "let a block work on a row, no longer a thread", "it pays where too few warps are there: how many are active?", ("blocks", "warps active")
        ),
        "wide_loads": WIDE,
        "padding": PADDING,
    },
    sealed={"A": ("a6e415448f2f", "46d3936812e4"), "B": ("536561c56d49", "672ddf3ef33b"), "C": ("9d789b23e1be", "0f46669e983d")},
)  # fmt: skip

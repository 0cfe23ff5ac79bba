"""What the grader of this mystery shows and asks for (tools/learn/grading/changes.py). Its answers stand here sealed."""

from tools.learn.grading.changes import (
    NEXT_TILE,
    OF_DRAM,
    ON_CHIP,
    PADDING,
    WIDE,
    Change,
    Mystery,
)

MYSTERY = Mystery(
    case="16k",
    shape="32 heads, 16,384 queries and keys, head dim 64, fp16, a random quarter of the blocks live, on an H100",
    changes={
        "live_list": Change(
            "find the live tiles in a list that was made before",
            "it saves loads by which a block looks for its next tile: how many loads are no cp.async?",
            ("load requests", "of these cp.async"),
        ),
        "edge_masks": Change(
            "mask only the tiles that need a mask",
            "it saves instructions beside the mma: how many does a warp issue for each mma?",
            ("instructions", "tensor instructions", "issue slots"),
        ),
        "fewer_blocks": Change(
            "launch fewer blocks, each of which looks for work in a loop",
            "it saves the start of blocks: how much does a block do before it ends?",
            ("blocks", "instructions", "operations"),
        ),
        "next_tile": NEXT_TILE,
        "padding": PADDING,
        "wide_loads": WIDE,
        "on_chip": Change("keep O on the chip while the keys pass by", ON_CHIP, OF_DRAM),
    },
    sealed={"A": ("95cce728116e", "1d400ef455ca"), "B": ("0b9515dfcba7", "866a2cc948eb"), "C": ("9167bc37a47d", "25512ef1a0c6")},
)  # fmt: skip

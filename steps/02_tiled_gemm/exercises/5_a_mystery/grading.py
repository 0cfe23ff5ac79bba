"""What the grader of this mystery shows and asks for (tools/learn/grading/changes.py). Its answers stand here sealed."""

from tools.learn.grading.changes import (
    ADDRESSES,
    NEIGHBOURS,
    NEXT_TILE,
    Change,
    Mystery,
)

MYSTERY = Mystery(
    case="4k",
    shape="C of 4096 × 4096, k = 4096, fp16, on an H200",
    changes={
        "swizzle": Change(
            "place the chunks of 16 bytes so that eight rows meet all 32 banks",
            "it saves bank conflicts: are they many beside the shared wavefronts?",
            ("bank conflicts", "shared wavefronts"),
        ),
        "register_tile": Change(
            "compute a tile of C in each lane: a word from shared memory serves several multiply-adds",
            "it saves shared wavefronts where lanes multiply one by one: who multiplies here?",
            ("tensor pipe", "load/store pipe"),
        ),
        "neighbouring_lanes": NEIGHBOURS,
        "next_tile": NEXT_TILE,
        "addresses": ADDRESSES,
        "order_of_blocks": Change(
            "let blocks that run at the same time share rows of A and columns of B",
            "it saves bytes of L2 and of DRAM: how near are they to their roofs?",
            ("DRAM bytes a second", "L1–L2 bytes a second"),
        ),
    },
    sealed={"A": ("08329e831ba1", "4c1547d7a800"), "B": ("83eaeef3ba7d", "605501f2c3c1"), "C": ("1dfc97476744", "82584b2bfef6")},
)  # fmt: skip

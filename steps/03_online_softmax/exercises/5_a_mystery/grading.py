"""What the grader of this mystery shows and asks for (tools/learn/grading/changes.py). Its answers stand here sealed."""

from tools.learn.grading.changes import OF_DRAM, ON_CHIP, PADDING, WIDE, Change, Mystery

MYSTERY = Mystery(
    case="16k × 4k",
    shape="16,384 rows of 4096 columns, fp16, on an H200",
    changes={
        "row_per_warp": Change(
            "give a row to a warp, whose lanes read neighbouring columns",
            "it saves sectors of requests in which each lane reads a row of its own: how many sectors has a request?",
            ("sectors a load", "sectors a store"),
        ),
        "wide_loads": WIDE,
        "online": Change(
            "find maximum and sum in one pass",
            "it saves one of three readings: how many loads are there for each store?",
            ("load requests", "store requests"),
        ),
        "more_blocks": Change(
            "cut a row into parts, a block for each",
            "it pays where no unit is busy because warps are few; what a request touches stays as it is",
            ("warps active", "issue slots", "sectors a load"),
        ),
        "fuse": Change("compute the softmax in the kernel that makes the scores, without storing them in between", ON_CHIP, OF_DRAM),
        "padding": PADDING,
    },
    sealed={"A": ("877e0cee6d0d", "15ed589b504c"), "B": ("943f5abb6b5e", "789b6c7baa73"), "C": ("a9bf79a7418c", "d7aed7563470")},
)  # fmt: skip

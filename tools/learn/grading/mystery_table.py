"""The mysteries: kernels of a step under letters, the changes that are offered, and which rows of a digest speak for or against each.

A mystery is data; mysteries.py shows and grades it. Answers stand here sealed, so that nobody reads them by accident. To add one, write
its line without them, and seal each with mysteries.seal("NN_name/N_name", "A_kernel" or "A_change", answer).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    what: str
    lesson: str  # where a digest shows whether that is what the kernel lacks
    rows: tuple = ()  # of the digest, which the hint repeats


@dataclass(frozen=True)
class Mystery:
    """Launches of one step at one case of results/."""

    step: str
    case: str
    shape: str
    changes: dict  # {name: Change}: all that are offered
    sealed: dict  # {letter: (kernel, change)}


TENSOR_CORES = Change(
    "multiply by mma.sync what lanes multiply one by one",
    "it pays where lanes multiply one by one: compare the tensor pipe with the operations",
    ("tensor pipe", "operations a second", "instructions"),
)
NEIGHBOURS = Change(
    "let neighbouring lanes read and write neighbouring elements",
    "it saves sectors: how many would a request need at least?",
    ("sectors a load", "sectors a store"),
)
WIDE = Change(
    "load and store 16 bytes a lane",
    "it saves requests and instructions, and no bytes: are the issue slots the busiest unit, and how many sectors has a request already?",
    ("issue slots", "sectors a load"),
)
ON_CHIP = "it saves bytes of DRAM: how near is DRAM to its roof?"
OF_DRAM = ("DRAM bytes a second", "bytes that must move")
NEXT_TILE = Change(
    "copy the next tile while this one is multiplied",
    "it pays where no unit is busy because warps wait for copies: are there asynchronous copies already, and what do warps wait for?",
    ("of these cp.async", "stalls", "load/store pipe"),
)
PADDING = Change(
    "pad the rows in shared memory",
    "it saves bank conflicts: are they many beside the shared wavefronts?",
    ("bank conflicts", "shared wavefronts"),
)
ADDRESSES = Change(
    "compute addresses before the main loop",
    "it saves instructions other than mma: does a warp issue many for each mma, and is no other unit busier than the issue slots?",
    ("instructions", "tensor instructions", "issue slots", "load/store pipe"),
)

MYSTERIES = {
    "01_naive_mha/5_a_mystery": Mystery(
        step="01_naive_mha",
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
    ),
    "02_tiled_gemm/5_a_mystery": Mystery(
        step="02_tiled_gemm",
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
    ),
    "03_online_softmax/5_a_mystery": Mystery(
        step="03_online_softmax",
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
    ),
    "04_flash_v1/4_a_mystery": Mystery(
        step="04_flash_v1",
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
    ),
    "05_flash_v2/6_a_mystery": Mystery(
        step="05_flash_v2",
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
    ),
    "06_backward/4_a_mystery": Mystery(
        step="06_backward",
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
    ),
    "07_block_sparse/5_a_mystery": Mystery(
        step="07_block_sparse",
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
    ),
}  # fmt: skip

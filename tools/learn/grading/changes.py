"""Mysteries: kernels of a step under letters, the changes that are offered, and which rows of a digest speak for or against each.

A mystery is data, MYSTERY in the exercise's grading.py; mysteries.py shows and grades it. Answers stand there sealed, so that nobody reads them by accident. To
add one, write it without them, and seal each with mysteries.seal("NN_name/N_name", "A_kernel" or "A_change", answer). Here stand the changes that several of
them offer.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    what: str
    lesson: str  # where a digest shows whether that is what the kernel lacks
    rows: tuple = ()  # of the digest, which the hint repeats


@dataclass(frozen=True)
class Mystery:
    """Launches of the exercise's step at one case of results/."""

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

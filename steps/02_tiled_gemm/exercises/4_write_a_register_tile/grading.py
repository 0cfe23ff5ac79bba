"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADED, SHARED_LOADS, Bound, waits

MORE_SHAPES = [["--m", "67", "--n", "65", "--k", "37", "--lda", "39", "--ldb", "41"]]  # no row begins at a multiple of 16 bytes but the first
BOUNDS = (
    Bound(
        SHARED_LOADS,
        "gemm",
        "loads from shared memory take {count} wavefronts, where {solution} would do: 12 words in three accesses serve 32 multiply-adds",
        most=1.1,
    ),
    Bound(
        LOADED,
        "gemm",
        "{count} sectors of global memory are read, where {solution} would do: are A and B read once for a block, and by neighbouring lanes along k?",
        most=1.1,
    ),
    waits("gemm", 1.5),
)

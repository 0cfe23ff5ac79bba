"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import (
    ATTENTION_SHAPES,
    LOADED,
    SEEDS,
    STORED,
    Bound,
    waits,
)

SHAPES = [*ATTENTION_SHAPES, ["--seq-q", "128", "--seq-k", "128", "--dim", "32", "--causal"]]
SCHEDULES = SEEDS
BOUNDS = (
    Bound(
        STORED,
        "flash",
        "{count} sectors are stored to global memory, where {solution} would do: O and LSE once, by neighbouring lanes, and nothing else",
        most=1.5,
    ),
    Bound(
        LOADED,
        "flash",
        "{count} sectors are loaded from global memory, where {solution} would do: Q once, and K and V once for 32 queries, as far as one of them sees",
        most=1.25,
    ),
    waits("flash", 1.5),
)

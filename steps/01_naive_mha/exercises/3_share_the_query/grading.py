"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import (
    ATTENTION_SHAPES,
    LOADS,
    SHARED_LOADS,
    WIDE_SHAPE,
    Bound,
    waits,
)

SHAPES = [*ATTENTION_SHAPES, WIDE_SHAPE]
BOUNDS = (
    Bound(LOADS, "scores", "warps load {count} times from global memory, where {solution} would do: where is the staged copy of Q used?", most=1.05),
    Bound(SHARED_LOADS, "scores", "Q's copy in shared memory is read by {count} wavefronts, the solution's by {solution}: who reads it?", least=0.2),
    waits("scores", 2),
)

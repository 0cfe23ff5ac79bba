"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.kernels import ALL
from tools.learn.grading.table import (
    IN_FLIGHT,
    LDMATRIX,
    SHARED_BYTES,
    Bound,
    waits,
)

BOUNDS = (
    waits("flash", 1.0, "one line is enough, and it stands before the main loop"),
    Bound(SHARED_BYTES, "flash", "a block takes {count} bytes of shared memory, where {solution} would do: Q's memory is to be recycled", most=1.0),
    Bound(IN_FLIGHT, ALL, "{count} copies are in flight behind the waits, the solution's {solution}: both stages are filled", least=0.95),
    Bound(LDMATRIX, "flash", "{count} ldmatrix are issued where {solution} would do", most=1.0),
)

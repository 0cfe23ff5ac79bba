"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LDMATRIX, LOST, SHARED, Bound, traffic

BOUNDS = (
    Bound(LOST, "gemm", "shared memory takes {count} wavefronts more than it must; --counters shows which lines", most=1.0),
    Bound(SHARED, "gemm", "shared memory takes {count} wavefronts, where {solution} would do", most=1.0),
    Bound(LDMATRIX, "gemm", "{count} ldmatrix are issued, the solution's {solution}: fragments of B come by ldmatrix.x4", most=1.0, least=1.0),
    *traffic("gemm", "B comes from shared memory"),
)

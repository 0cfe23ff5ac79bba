"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADS, SHARED, STORED, STORES, Bound, waits

BOUNDS = (
    Bound(LOADS, "algorithm_1", "warps load {count} times from global memory, where {solution} would do: is each element of O read once?", most=1.02),
    Bound(STORES, "algorithm_1", "warps store {count} times to global memory, where {solution} would do: is each element of O written once?", most=1.02),
    Bound(STORED, "algorithm_1", "stores touch {count} sectors, where {solution} would do: do neighbouring lanes have neighbouring columns?", most=1.1),
    Bound(SHARED, "algorithm_1", "shared memory takes {count} wavefronts, where {solution} would do: does a lane read P and V once?", most=1.1),
    waits("algorithm_1", 1.0, "an element of O belongs to one lane"),
)

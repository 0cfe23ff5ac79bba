"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADED, STORED, WIDE_SHAPE, Bound

SHAPES = [
    [],
    ["--seq-q", "1", "--seq-k", "3", "--dim", "1"],
    ["--seq-q", "90", "--seq-k", "70", "--causal"],  # the first 20 rows see no key: all of their parts are empty
    ["--seq-q", "37", "--seq-k", "203", "--dim", "40", "--causal"],
    ["--batch", "2", "--heads", "4", "--kv-heads", "2", "--seq-q", "5", "--seq-k", "300", "--dim", "65"],
    WIDE_SHAPE,
]
BOUNDS = (
    Bound(
        STORED,
        "part_states",
        "part_states stores {count} sectors, the solution's {solution}: the states of all parts must be stored, each once",
        most=1.5,
        least=0.4,  # the O of an empty part need not be stored
    ),
    Bound(
        LOADED, "part_states", "part_states reads {count} sectors, where {solution} would do: a part needs its own keys and values, and no others", most=1.5
    ),
    Bound(LOADED, "merge_parts", "merge_parts reads {count} sectors, where {solution} would do: do neighbouring lanes read neighbours?", most=2.5),
    Bound(STORED, "merge_parts", "merge_parts stores {count} sectors, where {solution} would do: do neighbouring lanes store neighbours?", most=1.5),
)

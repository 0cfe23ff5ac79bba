"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import LOADED, STORED, Bound

SHAPES = [
    [],  # 16 splits, of one or two tiles
    ["--heads", "1", "--kv-heads", "1", "--seq-k", "200"],  # 32 splits, of which four have a tile
    ["--batch", "3", "--heads", "40", "--kv-heads", "2", "--seq-k", "300", "--dim", "128"],  # two splits; items of 16 and of 4 rows
    ["--heads", "6", "--kv-heads", "2", "--seq-q", "7", "--seq-k", "4", "--causal"],  # the first three queries see no key
    ["--heads", "2", "--kv-heads", "1", "--seq-q", "50", "--seq-k", "190", "--causal", "--dim", "128"],  # rows without a key of the last split
    ["--batch", "5", "--kv-heads", "8", "--seq-k", "100"],  # one split
    ["--heads", "3", "--kv-heads", "1", "--seq-q", "9", "--seq-k", "400", "--window", "70", "--causal", "--dim", "128"],  # three tiles, and 16 splits
]
BOUNDS = (
    Bound(
        LOADED,
        "combine",
        "combine reads {count} sectors, where {solution} would do: is each part read once, and do neighbouring lanes read neighbours?",
        most=1.7,  # states may be read twice
    ),
    Bound(STORED, "combine", "combine stores {count} sectors, where {solution} would do: do neighbouring lanes store neighbours?", most=1.1),
)

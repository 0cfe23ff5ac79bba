"""What the grader looks at: tools/learn/grading/table.py."""

from tools.learn.grading.table import STORED, Bound

SHAPES = [
    [],  # 13 items of 24 tiles: two waves
    ["--batch", "1", "--kv-heads", "1", "--heads", "1", "--seq-k", "1"],
    ["--batch", "3", "--heads", "6", "--kv-heads", "3"],  # 9 items: one wave with 2 splits lasts as long as two with 5
    ["--batch", "7", "--heads", "4", "--kv-heads", "1", "--seq-q", "7", "--seq-k", "700", "--causal"],  # 14 items of 11 tiles
    ["--batch", "5", "--heads", "10", "--kv-heads", "5", "--seq-k", "500", "--dim", "128"],  # 25 items of 8 tiles: three waves
    ["--batch", "6", "--heads", "4", "--kv-heads", "4", "--seq-k", "400", "--window", "350", "--causal"],  # 24 items: not to be split
]
BOUNDS = (
    Bound(
        STORED,
        "split_kv",
        "split_kv stores {count} sectors, where {solution} would do: of the splits that last equally long, which number writes the fewest parts?",
        most=1.0,
    ),
)

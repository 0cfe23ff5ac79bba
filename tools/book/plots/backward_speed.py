"""Draws how fast the backward pass is, step 06 beside other people's kernels and under the roof of mma.sync, against the sequence length.

From the run in results/DEVICE/backward_peers.json.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, save
from tools.book.plots.attention_speed import draw
from tools.measure.committed import Results


def from_committed_numbers():
    run = Results(ROOT)
    report = run.read("backward_peers.json")
    return draw(report, run.machine()["ceilings"]["mma_sync_flops_per_second"]["value"] / 1e12, "Attention backward", run.device)


if __name__ == "__main__":
    save(__doc__, from_committed_numbers)

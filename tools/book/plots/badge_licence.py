"""Draws the README's badge of the licence: the one that CITATION.cff names."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, badge, save


def draw():
    name = re.search(r"^license: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    return badge("licence", name, "#00664d")


if __name__ == "__main__":
    save(__doc__, draw)

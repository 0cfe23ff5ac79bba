"""Draws the README's badge of the book: how many pages its core path has."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tools.book.book_picture import ROOT, badge, save


def draw():
    pages = len(list((ROOT / "docs").glob("[0-9][0-9]_*.md")))
    return badge("book", f"{pages} core pages", "#0072b2")


if __name__ == "__main__":
    save(__doc__, draw)

"""The book's pictures: tools/book/plots/NAME.py draws docs/images/NAME.svg from committed numbers, the same file every time. Before its numbers
are committed, a script draws nothing, and there is no picture."""

import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.book.pages import Problem

NUMBER = re.compile(r"-?\d+\.\d+")
TOLERANCE = 0.01  # of coordinates: another processor may round the last digit differently


def scripts(root):
    """{script: its picture}."""
    return {
        path: root / "docs" / "images" / f"{path.stem}.svg" for path in sorted((root / "tools" / "book" / "plots").glob("*.py"))
    }


# Each script runs in a process of its own; but what takes longest, to import Matplotlib, is done before, once for all.
DRAW = """
import os, runpy, sys
import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot
for script, out in zip(sys.argv[1::2], sys.argv[2::2]):
    if os.fork() == 0:
        sys.argv, sys.path[0] = [script, "--out", out], os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    if os.wait()[1]:
        sys.exit(f"{script} failed")
"""


def draw(pictures):
    """Runs scripts: {script: the picture to write}. A picture that is no longer drawn is deleted."""
    for out in pictures.values():
        out.parent.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-c", DRAW, *(str(path) for pair in pictures.items() for path in pair)], check=True)


def same_picture(one, other):
    """Whether two SVG files show the same, up to rounding."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other))
    return all(math.isclose(float(a), float(b), rel_tol=0, abs_tol=TOLERANCE) for a, b in pairs)


def stale_pictures(root):
    """{script: its picture} of those that are not what their scripts draw today."""
    pictures = scripts(root)
    with tempfile.TemporaryDirectory() as folder:
        fresh = {script: Path(folder) / picture.name for script, picture in pictures.items()}
        draw(fresh)
        text = lambda path: path.read_text() if path.exists() else ""
        is_current = lambda script, picture: same_picture(text(picture), text(fresh[script]))
        return {script: picture for script, picture in pictures.items() if not is_current(script, picture)}


def check_pictures(root):
    """Pictures that their scripts would draw differently."""
    return [
        Problem(str(picture.relative_to(root)), f"is not what {script.relative_to(root)} draws; run tools/book update")
        for script, picture in stale_pictures(root).items()
    ]


def update_pictures(root):
    """Draws what is missing or differs. Returns the names of what changed."""
    stale = stale_pictures(root)
    draw(stale)
    return [str(picture.relative_to(root)) for picture in stale.values()]

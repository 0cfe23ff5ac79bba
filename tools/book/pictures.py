"""The book's pictures: tools/book/plots/NAME.py draws docs/images/NAME.svg from committed numbers, the same file every time."""

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


def draw(script, out):
    """Runs one script."""
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, str(script), "--out", str(out)], check=True)


def same_picture(one, other):
    """Whether two SVG files show the same, up to rounding."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other))
    return all(math.isclose(float(a), float(b), rel_tol=0, abs_tol=TOLERANCE) for a, b in pairs)


def is_current(script, picture):
    """Whether the committed picture is what its script draws today."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / picture.name
        draw(script, fresh)
        return picture.exists() and same_picture(picture.read_text(), fresh.read_text())


def check_pictures(root):
    """Pictures that their scripts would draw differently."""
    return [
        Problem(str(picture.relative_to(root)), f"is not what {script.relative_to(root)} draws; run tools/book update")
        for script, picture in scripts(root).items()
        if not is_current(script, picture)
    ]


def update_pictures(root):
    """Draws what is missing or differs. Returns the names of what changed."""
    stale = {script: picture for script, picture in scripts(root).items() if not is_current(script, picture)}
    for script, picture in stale.items():
        draw(script, picture)
    return [str(picture.relative_to(root)) for picture in stale.values()]

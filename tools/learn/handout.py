"""Writes a copy of the project without the solutions of its exercises, for a class: tools/learn/handout.py DIR.

The copy has what git knows and what it does not ignore; without git, everything but build/, .venv/ and caches. Exit status 2: bad usage.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = "solutions"
NOT_COPIED = {"build", ".venv", ".git", "__pycache__", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"}


class UsageError(Exception):
    """What cannot be done as asked; exit status 2."""


def files_of(root):
    """Paths of the project's files, from its root."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [Path(name) for name in listed.stdout.split("\0") if name and (root / name).is_file()]
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [path for path in found if not NOT_COPIED & set(path.parts)]


def write(root, out):
    """Copies the project to a folder that is empty or missing; returns how many files that are."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is there and not empty: name a folder that is new")
    if out.resolve().is_relative_to((root / SOLUTIONS).resolve()):
        raise UsageError(f"{out} lies among the solutions")
    files = [path for path in files_of(root) if path.parts[0] != SOLUTIONS and not (root / path).resolve().is_relative_to(out.resolve())]
    for path in files:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, out / path, follow_symlinks=False)
    return len(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="a folder that is new or empty")
    args = parser.parse_args()
    try:
        if not args.out:
            raise UsageError("make handout needs a folder for the copy: OUT=dir")
        count = write(ROOT, Path(args.out))
    except (UsageError, OSError) as error:
        print(f"handout: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{args.out}: {count} files, all but {SOLUTIONS}/. Its exercises are graded by make exercise; tests that need a solution are skipped.")


if __name__ == "__main__":
    main()

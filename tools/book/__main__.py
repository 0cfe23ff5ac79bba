"""The book: .venv/bin/python tools/book check | update | build

check    quoted code, tables, pictures, links, contents, glossary, words and predictions; exit status 1 and a list where something is wrong
update   rewrites quoted code, tables and pictures from their sources
build    check, then the site in build/docs (Sphinx; warnings are errors)
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.book.blocks import check_blocks, update_blocks
from tools.book.pages import check_contents, check_glossary, check_links
from tools.book.pictures import check_pictures, update_pictures
from tools.book.prose import check_predictions, check_words

ROOT = Path(__file__).resolve().parents[2]
CHECKS = [check_blocks, check_pictures, check_links, check_contents, check_glossary, check_words, check_predictions]


def report(problems):
    """Prints what is wrong; the exit status."""
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def check():
    return report([problem for one in CHECKS for problem in one(ROOT)])


def update():
    changed, problems = update_blocks(ROOT)
    for name in changed + update_pictures(ROOT):
        print(f"updated {name}")
    return report(problems)


def build():
    if check():
        return 1
    out = ROOT / "build" / "docs"
    shutil.rmtree(out, ignore_errors=True)
    options = ["-q", "-n", "-W", "--keep-going", "-b", "html", "-d", str(ROOT / "build" / "docs-cache")]
    done = subprocess.run([sys.executable, "-m", "sphinx", "-E", *options, str(ROOT / "docs"), str(out)], check=False)
    if done.returncode == 0:
        print("The book: build/docs/index.html")
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"check": check, "update": update, "build": build}
    parser.add_argument("command", choices=commands)
    sys.exit(commands[parser.parse_args().command]())


if __name__ == "__main__":
    main()

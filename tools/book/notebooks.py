"""Executes the notebooks: .venv/bin/python tools/book/notebooks.py [NAME …]

Each runs from its first cell to its last, in notebooks/, as a reader would run it; a cell that fails or takes too long is an error.
The executed ones go to build/notebooks. The committed ones hold no outputs: that is checked too. Exit status 1: something failed.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
CELL_SECONDS = 120  # the most that one cell may take


def leftovers(notebook):
    """Numbers of the cells that hold outputs, which are not committed."""
    return [
        number
        for number, cell in enumerate(notebook.cells, start=1)
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None)
    ]


def run(path, out, sockets):
    """Executes one notebook and writes it to `out`, also where a cell fails. Returns what went wrong, or None.

    `sockets`: a folder for what connects us with the notebook's process; files there are ours alone, TCP ports would not be.
    """
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = leftovers(notebook)
    if cells:
        return f"holds outputs in the cells {cells}: clear them before you commit (Jupyter: Edit, Clear All Outputs)"
    place = {"metadata": {"path": str(path.parent)}}
    connection = Config({"KernelManager": {"transport": "ipc", "ip": str(sockets / path.stem)}})
    client = NotebookClient(notebook, timeout=CELL_SECONDS, resources=place, config=connection)
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return str(error)
    finally:
        out.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, out)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="some only: 01_roofline_and_bytes")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "notebooks", help="folder for the executed ones")
    args = parser.parse_args()
    paths = [ROOT / "notebooks" / f"{name}.ipynb" for name in args.names] or sorted(
        (ROOT / "notebooks").glob("*.ipynb")
    )
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JUPYTER_RUNTIME_DIR"] = folder  # a home folder may not be writable
        for path in paths:
            begin = time.monotonic()
            reason = run(path, args.out / path.name, Path(folder))
            print(f"{'FAIL' if reason else 'ok  '} {path.stem} ({time.monotonic() - begin:.1f} s)", flush=True)
            if reason:
                print(reason, file=sys.stderr)
                failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

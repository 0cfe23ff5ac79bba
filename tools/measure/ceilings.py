"""Takes what benchmarks/ceilings measured into the committed ceilings, from which floors, tables and pictures are made:

    .venv/bin/python tools/measure/ceilings.py results/h200/ceilings.json docs/machine/h200.json

Ceilings that another program measured (cuBLAS) stay, and so does a value that the run confirms to 1 %. Then
`.venv/bin/python tools/book update`; the tests name what else knows a ceiling that has changed.
"""

import argparse
import json
import re
from pathlib import Path

WORTH_A_CHANGE = 0.01  # runs differ by less; floors and hand arithmetic all over the book follow a ceiling that changes


def rounded(entry):
    """The rates with three digits: the next run differs in the fourth."""
    return {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in entry.items()}


def refreshed(machine, measured):
    """The description of a machine, with its ceilings from a run. ValueError if that was on another device."""
    if measured["device"] != machine["device"]:
        raise ValueError(f"measured on {measured['device']}, not on {machine['device']}")
    date = measured["machine"]["date"][:10]
    entries = {name: {**rounded(entry), "date": date} for name, entry in measured["ceilings"].items()}
    for name, known in machine["ceilings"].items():
        if name in entries and abs(entries[name]["value"] / known["value"] - 1) < WORTH_A_CHANGE:
            entries[name]["value"] = known["value"]
    return {**machine, "ceilings": {**machine["ceilings"], **entries}}


def to_text(machine):
    """JSON with large rates as people read them: 4.25e+12."""
    return re.sub(r"\b\d{10,}\.0\b", lambda number: f"{float(number[0]):g}", json.dumps(machine, indent=1, ensure_ascii=False)) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="ceilings.json of make gpu-check")
    parser.add_argument("machine", type=Path, help="a file in docs/machine/")
    args = parser.parse_args()
    before = json.loads(args.machine.read_text())
    try:
        after = refreshed(before, json.loads(args.measured.read_text()))
    except ValueError as error:
        parser.error(str(error))
    args.machine.write_text(to_text(after))
    for name, entry in after["ceilings"].items():
        was = before["ceilings"].get(name, {"value": 0})["value"]
        print(f"{name}: {entry['value']:g}" + ("" if was == entry["value"] else f" (was {was:g})"))


if __name__ == "__main__":
    main()

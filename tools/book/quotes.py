"""Quoted code: a page shows a region of a source file, and both stay equal.

A page quotes with a comment, and the fenced block right below it:

    <!-- code: steps/01_naive_mha/02_row_per_thread.cuh#pv_row_per_thread -->

After # stands a function, a type or a constant of that file (at the left margin; its comment, its template line and its body
belong to it), or a region that the file marks with lines of their own:

    // [doc: reduction]
    // [/doc: reduction]

Without # the whole file is quoted. A part of a long region is quoted by its lines, counted from the region's first:

    <!-- code: steps/01_naive_mha/02_row_per_thread.cuh#pv_row_per_thread lines 3-9 -->

Marker lines never appear in the quotation, and common indentation is taken away.
"""

import re
import textwrap
from dataclasses import dataclass

COMMENT = re.compile(r"<!-- code: (?P<path>[^\s#]+)(?:#(?P<name>[\w-]+))?(?: lines (?P<lines>\d+-\d+))? -->")
MARKER = re.compile(r"\s*(?://|#)\s*\[(?P<end>/?)doc: (?P<name>[\w-]+)\]\s*")
LANGUAGES = {
    ".cu": "cuda",
    ".cuh": "cuda",
    ".h": "cpp",
    ".cpp": "cpp",
    ".py": "python",
    ".json": "json",
    ".md": "markdown",
    ".cmake": "cmake",
}


class QuoteError(Exception):
    """A quotation that cannot be resolved; its text says why."""


@dataclass(frozen=True)
class Quote:
    """What a quotation shows: the text, and the lines of the source that it comes from (from 1, the last included)."""

    path: str
    name: str | None
    text: str
    first: int
    last: int
    language: str


def marked_region(lines, name):
    """[begin, end) of the lines between the markers of that name; None if there are none."""
    begin = end = None
    for number, line in enumerate(lines):
        marker = MARKER.fullmatch(line)
        if not marker or marker["name"] != name:
            continue
        if bool(marker["end"]) != (begin is not None and end is None):
            raise QuoteError(f"line {number + 1}: the markers of “{name}” do not come as one pair")
        if marker["end"]:
            end = number
        else:
            begin = number + 1
    if begin is not None and end is None:
        raise QuoteError(f"line {begin}: the region “{name}” has no end")
    return None if begin is None else (begin, end)


def definition_end(lines, begin):
    """The line after the definition that begins there: after its closing brace at the left margin, or its semicolon."""
    in_body = False
    for number in range(begin, len(lines)):
        code = lines[number].split("//")[0].rstrip()
        if in_body and code.startswith("}"):
            return number + 1
        in_body = in_body or "{" in code
        complete = code.count("{") == code.count("}") and code.endswith((";", "}"))
        if complete and (number == begin or not in_body):
            return number + 1
    raise QuoteError(f"line {begin + 1}: the definition does not end")


def definition(lines, name):
    """[begin, end) of the lines that define `name` at the left margin, with the comment above; None if none does."""
    word = re.escape(name)
    pattern = re.compile(rf"(?!using |//|#)\w.*?\b{word}(?:\(| \{{| = | : |\{{)")
    found = []
    for number, line in enumerate(lines):
        if pattern.match(line):
            end = definition_end(lines, number)
            if any("{" in part or "=" in part for part in lines[number:end]):  # else it is only declared here
                found.append((number, end))
    if not found:
        return None
    if len(found) > 1:
        places = " and ".join(str(begin + 1) for begin, _ in found)
        raise QuoteError(f"“{name}” is defined at lines {places}: mark the region that you mean")
    begin, end = found[0]
    while begin > 0 and lines[begin - 1].startswith(("//", "template ")) and not MARKER.fullmatch(lines[begin - 1]):
        begin -= 1
    return begin, end


def resolve(root, path, name, part=None):
    """The quotation of that region, or of the lines "FIRST-LAST" of it. Raises QuoteError where there is no such file, region or line."""
    file = root / path
    if not file.is_file():
        raise QuoteError(f"{path} does not exist")
    lines = file.read_text().splitlines()
    region = (0, len(lines))
    if name is not None:
        region = marked_region(lines, name) or definition(lines, name)
    if region is None:
        raise QuoteError(f"{path} has no region “{name}” and defines nothing of that name")
    kept = [number for number in range(*region) if not MARKER.fullmatch(lines[number])]
    if part is not None:
        first, last = map(int, part.split("-"))
        if not 1 <= first <= last <= len(kept):
            raise QuoteError(f"{path}: the region “{name}” has the lines 1-{len(kept)}, not {part}")
        kept = kept[first - 1 : last]
    text = textwrap.dedent("\n".join(lines[number] for number in kept)).strip("\n")
    if not text:
        raise QuoteError(f"{path}: the region “{name}” is empty")
    language = LANGUAGES.get(file.suffix, "text")
    begin, end = region if part is None else (kept[0], kept[-1] + 1)
    return Quote(path, name, text, begin + 1, end, language)


def fence(quote):
    """The quotation as lines of a fenced block."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", quote.text))])
    return [f"{ticks}{quote.language}", *quote.text.splitlines(), ticks]

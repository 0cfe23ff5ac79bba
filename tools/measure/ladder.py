"""How much of a kernel file is new? .venv/bin/python tools/measure/ladder.py [STEP …]
And what must a reader open to read it? .venv/bin/python tools/measure/ladder.py --files [STEP …]

A numbered file of a step is a rung of its ladder. Its header says what it is, and from which file it was made:

    // 02_tiled_gemm, pipeline: a pipeline of copies.       the step's folder, the variant (or the file's name), the idea
    // Predecessor: 06_swizzle.cuh                          missing in the step's first file
    // Predecessor: 12_tuned.cuh (option: any M and N)      it adds something that the ladder does not need
    // Predecessor: 05_registers.cuh (tried: slower)        it lost; the next rung begins at its predecessor again
    // Predecessor: 05_flash_v2/12_tuned.cuh                a file of an earlier step

An idea that is longer goes on in the next line. The first paragraph of the header ends with a line `//`.

What is counted: lines of code in one layout, whatever the layout of the file. Comments are taken out. What remains is cut into tokens, and
written again with one statement a line, one `{` at the end of a line for each block, and the `}` of a block in a line of its own. A directive
of the preprocessor, `template <…>`, and the head of a loop around another one without braces have a line of their own, too. So it does not
matter where a statement was wrapped; braces of initialisers are part of their statement. An added line is one that difflib inserts into the
predecessor's lines, or puts in place of them. A new name for something old therefore counts wherever it is used.

Code of a rung that later steps use, too, lies in common/device/, and is counted with the rung all the same. A comment says whose it is:

    // Of 02_tiled_gemm/07_pipeline.cuh: rows of a tile, by cp.async.

As the first line of a file it speaks of all of the file; above a declaration, of the code up to the next empty line.
"""

import argparse
import difflib
import functools
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 60  # added lines of a rung
NOTES = ("option", "tried")
THE_MACHINE = ("common/simt/", "common/runtime/")  # the simulator and the runtime: nobody reads them to read a kernel
INCLUDE = re.compile(r'#include "([^"]+)"')
FILE = re.compile(r"(\d+)_(\w+?)(?:\.cuh|\.sm_\w+\.cu)")  # as step.cu includes it, or compiled for newer devices
FIRST = re.compile(r"// (?P<step>\w+), (?P<variant>\w+): (?P<idea>\S.*)")
OF_RUNG = re.compile(r"// Of (?P<rung>\w+/\w+(?:\.sm_\w+)?\.cuh?): \S.*")
PREDECESSOR = re.compile(r"// Predecessor: (?P<file>\S+)(?: \((?P<note>\w+): (?P<why>\S.*)\))?")


class HeaderError(Exception):
    """A header that does not say what it must; its text says why."""


# ---- C++ as lines, whatever its layout ----

TOKEN = re.compile(
    r"""
    (?P<raw> (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?\)(?P=delimiter)" )
  | (?P<comment> //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )
  | (?P<splice> \\\r?\n )
  | (?P<newline> \n )
  | (?P<space> [^\S\n]+ )
  | (?P<text> (?:u8|[uUL])?"(?:\\\r?\n|\\.|[^"\\\n])*" | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+' )
  | (?P<number> \.?\d(?:[eEpP][+-]|'?\w|\.)* )
  | (?P<word> \w+ )
  | (?P<operator> <<= | \.\.\. | ->\* | :: | -> | \+\+ | -- | && | \|\| | << | [=!<>+\-*/%&|^]= | \#\# )
  | (?P<letter> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens_of(text):
    """(token, where it stands: "code" or "directive", does a line of the file end before it?), without comments. A comment is a space; one
    that ends with a backslash goes on in the next line, and so does a directive."""
    directive, begins = False, True
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup if match.lastgroup != "delimiter" else "raw", match[0]
        if kind == "newline":
            directive, begins = False, True
        elif kind not in ("comment", "splice", "space"):
            directive = directive or (begins and token == "#")
            yield token, "directive" if directive else "code", begins
            begins = False


@functools.cache
def code_lines(text):
    """The lines of a C++ source, as the head of this file counts them; between two tokens of a line stands one space."""
    lines, directive, run = [], [], []
    for token, where, begins in [*tokens_of(text), (None, "code", True)]:
        if directive and (begins or where == "code"):
            lines.append(" ".join(directive))
            directive = []
        if where == "directive":
            lines += statements(run)
            run = []
            directive.append(token)
        elif token is not None:
            run.append(token)
    return tuple(lines + statements(run))


def statements(tokens):
    """Code between two directives as lines."""
    lines, line = [], []
    brackets = []  # open ones: "(", "[", "{" of a block, "=" for the { of an initialiser, "loop" for the ( of a head
    angles = None  # how deep within the <> of a template's parameters

    def end():
        if line:
            lines.append(" ".join(line))
            line.clear()

    for at, token in enumerate(tokens):
        before, after = tokens[at - 1] if at else None, tokens[at + 1] if at + 1 < len(tokens) else None
        inside = brackets[-1] if brackets else "{"
        if token == "}" and inside == "{":
            end()
            line.append(token)
            if brackets:
                brackets.pop()
            if after not in (";", ",", ")", "(", "else", "while") or (after == "while" and not is_do(lines)):
                end()
            continue
        if token.startswith('"') and before and before.startswith('"'):  # a long text in two parts
            line[-1] = line[-1][:-1] + token[1:]
            continue
        line.append(token)
        if token == "{":
            brackets.append("{" if opens_block(line[:-1], before, inside) else "=")
            if brackets[-1] == "{":
                end()
        elif token in ("(", "["):
            brackets.append("loop" if token == "(" and before in ("for", "while", "switch") else token)
        elif token in (")", "]", "}") and brackets:
            if brackets.pop() == "loop" and after in ("for", "while", "if", "switch", "do"):
                end()
        elif token == ";" and inside == "{":
            end()
        elif token == "template" and after == "<" and angles is None:
            angles = 0
        elif angles is not None and token in ("<", ">") and inside not in ("(", "["):
            angles += 1 if token == "<" else -1
            if angles == 0:
                angles = None
                end()
    end()
    return lines


def is_do(lines):
    """Does the block that ends here belong to a do? Its head is the last `{` whose block is still open."""
    depth = 1
    for line in reversed(lines):
        depth += line.startswith("}") - line.endswith("{")
        if depth == 0:
            return line == "do {"
    return False


def opens_block(line, before, inside):
    """Does a `{` behind these tokens, within such brackets, open a block, and not the braces of an initialiser?"""
    if not line or before in ("{", "}", ";"):
        return inside == "{"
    if before in (")", "else", "do", "try", "const", "mutable", "noexcept", "override", "final"):
        return True
    if before == "]":  # a lambda without parameters, or the initialiser of an array
        opening = len(line) - 1 - line[::-1].index("[")
        return opening == 0 or line[opening - 1] == "return" or re.fullmatch(r"\w+|[)\]]", line[opening - 1]) is None
    if "->" in line and "=" not in line[(arrow := len(line) - 1 - line[::-1].index("->")) :]:
        return line[arrow - 1] in (")", "mutable", "noexcept")  # the type that a function or a lambda returns
    words = line[1:] if line[0] == "inline" else line
    return words[:1] in (["namespace"], ["struct"], ["class"], ["union"], ["enum"], ["extern"], ["typedef"]) and "=" not in line


# ---- the ladder of a step ----


@dataclass(frozen=True)
class Rung:
    """A numbered file, and what its header says."""

    path: Path
    number: int
    variant: str | None  # or the file's name, where no variant bears it
    idea: str
    predecessor: str | None  # the name of a file
    note: str | None  # "option", "tried"
    step: str  # as the header names it

    @property
    def name(self):
        """That of the file, without its number and its suffix."""
        return FILE.fullmatch(self.path.name)[2]

    @property
    def lines(self):
        return rung_lines(self.path)


def numbered(folder):
    """The numbered kernel files of a step's folder, in their order."""
    found = [path for path in folder.iterdir() if FILE.fullmatch(path.name)]
    return sorted(found, key=lambda path: (int(path.name.split("_")[0]), path.name))


def shared_parts(root):
    """What common/device/ holds of rungs: {"05_flash_v2/04_pipeline.cuh": [(the file's name from the root, its code)]}"""
    parts = {}
    for path in sorted(root.glob("common/device/**/*.cuh")):
        of_file, text = None, {}  # {rung: its lines}
        for number, line in enumerate(path.read_text().splitlines()):
            mark = OF_RUNG.fullmatch(line)
            if mark and number == 0:
                of_file = mark["rung"]
            if not line or mark or number == 0:
                owner = mark["rung"] if mark else of_file
            if owner and not re.match(r"#pragma once|#include|namespace \w+ \{|\}  // namespace", line):
                text.setdefault(owner, []).append(line)
        for owner, lines in text.items():
            parts.setdefault(owner, []).append((str(path.relative_to(root)), "\n".join(lines)))
    return parts


def rung_lines(path):
    """The code lines of a rung's file, and of what common/device/ holds of it, which stands before the file's first kernel; an #include of that
    is no line."""
    lines = code_lines(path.read_text())
    parts = shared_parts(path.parents[2]).get(f"{path.parent.name}/{path.name}", [])
    own = [line for line in lines if line not in {f'# include "{name}"' for name, _ in parts}]
    kernel = next((n for n, line in enumerate(own) if "__global__" in line.split()), len(own))
    begin = kernel - (kernel > 0 and own[kernel - 1].startswith("template <"))
    return (*own[:begin], *(line for _, text in parts for line in code_lines(text)), *own[begin:])


def read_rung(path):
    """A Rung; HeaderError if the file's header does not begin as it must."""
    head = []
    for line in path.read_text().splitlines():
        if not line.startswith("// "):
            break
        head.append(line)
    first = FIRST.fullmatch(head[0]) if head else None
    if not first:
        raise HeaderError("the first line must be “// STEP_FOLDER, variant: idea”")
    named = [line for line in head if line.startswith("// Predecessor")]
    match = PREDECESSOR.fullmatch(named[0]) if named else None
    if named and (not match or len(named) > 1 or head[-1] != named[0]):
        raise HeaderError("“// Predecessor: FILE”, with “(option: what)” or “(tried: why)”, must be one line, the last of the first paragraph")
    idea = " ".join([first["idea"], *(line.removeprefix("// ") for line in head[1:] if line not in named)])
    number = int(FILE.fullmatch(path.name)[1])
    predecessor, note = (match["file"], match["note"]) if match else (None, None)
    return Rung(path, number, first["variant"], idea, predecessor, note, first["step"])


def rungs_of(folder):
    """The rungs of a step, without files whose header cannot be read: problems_of names those."""
    found = []
    for path in numbered(folder):
        try:
            found.append(read_rung(path))
        except HeaderError:
            continue
    return found


def variant_rungs(folder):
    """The same, with None as the variant of a file that is none."""
    variants = variants_of(folder)
    return [rung if rung.variant in variants else replace(rung, variant=None) for rung in rungs_of(folder)]


def variants_of(folder):
    """All that could be a variant's name: the strings of step.cu that are a word."""
    tokens = {token for token, *_ in tokens_of((folder / "step.cu").read_text())}
    return {token[1:-1] for token in tokens if re.fullmatch(r'"\w+"', token)}


def added(before, after):
    """How many of the lines `after` are not in `before`."""
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(end - begin for tag, _, _, begin, end in codes if tag in ("insert", "replace"))


def predecessor_path(rung):
    """Where the file should be that a rung was made from: beside it, or in an earlier step; None without one."""
    if not rung.predecessor:
        return None
    return rung.path.parents["/" in rung.predecessor] / rung.predecessor


def added_lines(rung):
    """Those that a rung adds to its predecessor; None where there is none, or no such file."""
    before = predecessor_path(rung)
    return added(rung_lines(before), rung.lines) if before and before.is_file() else None


def problems_of(folder):
    """What is wrong with the ladder of a step: [text]"""
    problems, variants = [], variants_of(folder)
    paths = numbered(folder)
    numbers = {path.name: int(path.name.split("_")[0]) for path in paths}
    for path in paths:
        same = [other for other, number in numbers.items() if number == numbers[path.name] and other != path.name]
        problems += [f"{path.name}: {same[0]} has the same number"] if same else []
        try:
            rung = read_rung(path)
        except HeaderError as error:
            problems.append(f"{path.name}: {error}")
            continue
        problems += [f"{path.name}: {text}" for text in complaints(rung, folder, variants, numbers)]
    return problems


def complaints(rung, folder, variants, numbers):
    if rung.step != folder.name:
        yield f"the header names the step {rung.step}"
    if rung.variant not in variants and rung.variant != rung.name:
        yield f"{rung.variant} is neither a variant of step.cu nor the name of the file"
    if rung.name in variants and rung.variant != rung.name:
        yield f"the header names the variant {rung.variant}, but the file bears the name of another one"
    if rung.note not in (None, *NOTES):
        yield f"({rung.note}: …) is neither of {', '.join(NOTES)}"
    if rung.predecessor is None:
        if rung.number != min(numbers.values()):
            yield "only the first file has no predecessor"
        return
    step, _, file = rung.predecessor.rpartition("/")
    if step:
        if step >= folder.name or not FILE.fullmatch(file) or not predecessor_path(rung).is_file():
            yield f"its predecessor {rung.predecessor} is no numbered file of an earlier step"
            return
    elif rung.predecessor not in numbers:
        yield f"its predecessor {rung.predecessor} is no numbered file of {folder.name}"
        return
    elif numbers[rung.predecessor] >= rung.number:
        yield f"its predecessor {rung.predecessor} does not come before it"
    more = added_lines(rung)
    if more > MOST and rung.note != "option":
        yield f"adds {more} lines to {rung.predecessor}, more than {MOST}"


def ladders(root=ROOT):
    """The folders of the steps that have a ladder: all but 00, whose kernels measure the machine."""
    return sorted(path.parent for path in root.glob("steps/[0-9][0-9]_*/step.cu") if not path.parent.name.startswith("00"))


def as_text(folder):
    """The table of a step: file, predecessor, code lines, added lines, note."""
    rows = [["file", "predecessor", "lines", "added", "note"]]
    for path in numbered(folder):
        try:
            rung = read_rung(path)
        except HeaderError as error:
            rows.append([path.name, "?", str(len(rung_lines(path))), "?", str(error)])
            continue
        more = added_lines(rung)
        rows.append([path.name, rung.predecessor or "-", str(len(rung.lines)), "-" if more is None else str(more), rung.note or ""])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}  {e}".rstrip() for a, b, c, d, e in rows]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def files_to_open(path, root=ROOT):
    """A kernel file and all that it includes, and what that includes, but for the machine's: {name from the root: its lines}"""
    found, todo = {}, [str(path.relative_to(root))]
    while todo:
        name = todo.pop(0)
        if name in found or name.startswith(THE_MACHINE) or not (root / name).is_file():
            continue
        text = (root / name).read_text()
        found[name] = len(text.splitlines())
        todo += INCLUDE.findall(text)
    return found


def files_as_text(folder):
    """For each kernel file of a step: how many files and lines, and which; nearest first."""
    blocks = []
    for path in numbered(folder):
        files = files_to_open(path, folder.parents[1])
        rows = [f"{lines:>6}  {name}" for name, lines in files.items()]
        blocks.append("\n".join([f"{path.name}: {len(files)} files, {sum(files.values())} lines", *rows]))
    return "\n\n".join(blocks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", nargs="*", help="its number, two digits; default: all")
    parser.add_argument("--files", action="store_true", help="print the files to open for each kernel, without the simulator and the runtime")
    arguments = parser.parse_args()
    wanted = arguments.step
    folders = [folder for folder in ladders() if not wanted or folder.name in wanted or folder.name[:2] in wanted]
    if not folders:
        parser.error(f"there is no step {' '.join(wanted)}")
    if arguments.files:
        print("\n\n".join(f"{folder.name}\n\n{files_as_text(folder)}" for folder in folders))
        return
    problems = []
    for folder in folders:
        print(f"{folder.name}: added lines of code, at most {MOST} for a rung that is no option\n\n{as_text(folder)}\n")
        problems += [f"{folder.name}/{text}" for text in problems_of(folder)]
    print("\n".join(problems), file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

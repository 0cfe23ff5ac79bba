"""Finds what tools/mutate/mutate.py breaks: each mutant is one change of one source text, with a readable name.

remove    a call that makes threads wait for something, or that adds to memory (the table CALLS): its statement becomes empty; of a
          barrier with a result (VOTES), the argument remains
weaken    a wait for all but the newest n copies: it lets one more be on its way
shift     an index that the step's mutants.json marks: one more, or one less
swap      two registers, or parts of an address, that it marks together: they change places

mutants.json stands among a step's tests, tests/steps/NN_name, so that its kernels stay clean to read:

    {
      "shapes": {"default": [], "ragged": ["--seq-q", "41", …]},      what the step's executable runs
      "files": {
        "05_block_softmax.cuh": {
          "shapes": ["default"],                                       of this file's mutants; left out: all
          "marks": ["smem.partial[[thread + live]]",                   double brackets mark the index in an exact text
                    {"mark": "i < [[rows]]", "occurrences": 2},        a text that stands there more than once
                    {"swap": "{[[low]], [[high]]}"},                   two brackets: their contents change places
                    {"mark": "j < [[n]]", "shapes": ["ragged"]}],      of this mark alone: where another rung uses the code
          "equivalent": {"shift +1 i < [[rows]]": "why nothing can notice"}
        }
      }
    }

A file with a folder, "common/device/dropout.h", is one that the step includes, from the repository's root: only its marks are mutants.
But what lies in common/device/NAME is of the step NN_NAME, which shares it with later steps: its calls are mutants of that step, too.

LAYER, NANS, NANS64 and SUMS in a shape stand for inputs that tools/mutate/mutate.py makes. The shape ["--test", "name"] is the
test of that name in the step's test program.

[[i]] stands for i; where a subscript must follow (after a name or a bracket), for [i]. A key of "equivalent" is a mutant's name,
without the file and, if it holds for every line, without the line: "remove __syncthreads()", ":38 remove __syncthreads()".
"""

import json
import re
from dataclasses import dataclass, replace

SOURCES = (".cuh", ".cu", ".h")

# Calls that wait, order or add: name → whether it takes a count that can be weakened. One line for each; qualifiers such as
# device::ptx:: may stand before it.
CALLS = {
    "__syncthreads": False,
    "__syncwarp": False,
    "__threadfence": False,
    "__threadfence_block": False,
    "bar_sync": False,
    "barrier_sync": False,
    "bar_arrive": False,
    "cluster_arrive": False,
    "cluster_arrive_relaxed": False,
    "cluster_wait": False,
    "cluster_sync": False,
    "griddepcontrol_wait": False,
    "cp_async_wait_group": True,
    "cp_async_wait_all": False,
    "cp_async_commit_group": False,
    "red_add_f32": False,
    "red_add_v2_f32": False,
    "red_add_v4_f32": False,
}

# Barriers whose result is used: without them, each thread has its own argument.
VOTES = {"__syncthreads_or"}


class MutationError(Exception):
    """A mutation that cannot be made, or a mutants.json that cannot be used; its text says why."""


@dataclass(frozen=True)
class Mutant:
    """One change: `begin` to `end` of the file's text becomes `after`. `what` names it within its line."""

    file: str
    line: int
    what: str
    begin: int
    end: int
    before: str
    after: str
    shapes: tuple = ()
    equivalent: str | None = None

    @property
    def id(self):
        return f"{self.file}:{self.line} {self.what}"

    def apply(self, text):
        """The text with this one change; its lines keep their numbers. MutationError if it is not the text that was searched."""
        if text[self.begin : self.end] != self.before:
            raise MutationError(f"{self.file} has changed since its mutants were found")
        return text[: self.begin] + self.after + text[self.end :]


# ---- C++ as text ----

NOT_CODE = re.compile(
    r"""\b[0-9](?:'?[\w.])*                          # a number, whose ' are no quotes
      | (?P<blank> //(?:\\\n|[^\n])*
                 | /\*.*?\*/
                 | R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
                 | "(?:\\.|[^"\\\n])*"
                 | '(?:\\.|[^'\\\n])+' )""",
    re.DOTALL | re.VERBOSE,
)


def code_only(text):
    """The text with every comment and literal blanked out; each character keeps its place."""
    return NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]) if match["blank"] else match[0], text)


def after_bracket(code, begin):
    """The position after the bracket that closes the one at `begin`.

    Between < and >, a < or > that stands in parentheses compares; << shifts, and -> is an arrow.
    """
    closing = {"(": ")", "[": "]", "{": "}", "<": ">"}
    expected = [closing[code[begin]]]
    for position in range(begin + 1, len(code)):
        character = code[position]
        if character == "<" and (expected[-1] != ">" or "<<" in code[position - 1 : position + 2]):
            continue
        if character in "([{<":
            expected.append(closing[character])
        elif character == ">" and (expected[-1] != ">" or code[position - 1] == "-"):
            continue
        elif character in ")]}>":
            if character != expected.pop():
                break
            if not expected:
                return position + 1
    raise MutationError(f"line {line_of(code, begin)}: nothing closes this {code[begin]}")


OBJECT = re.compile(r"(?:\w|::|\.|->|\[[^\[\]]*\])*$")  # what may stand before a call's name: device::ptx::, smem.full[stage].


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def in_parentheses(expression):
    """The expression as an operand: a name, a member or a number stays as it is."""
    return expression if re.fullmatch(r"[\w.]+", expression) else f"({expression})"


def one_line(text):
    return " ".join(text.split())


# ---- calls: remove, weaken ----


def after_blanks(code, position):
    return position + len(code[position:]) - len(code[position:].lstrip())


def call_at(code, position):
    """What follows a call's name: (span inside <…> or None, span inside (…), end); None if it is no call."""
    template = None
    position = after_blanks(code, position)
    if code.startswith("<", position):
        end = after_bracket(code, position)
        template, position = (position + 1, end - 1), after_blanks(code, end)
    if not code.startswith("(", position):
        return None
    end = after_bracket(code, position)
    return template, (position + 1, end - 1), end


def is_statement(code, begin, end):
    """Whether the call between these positions is a statement of its own."""
    before = code[:begin].rstrip()
    starts = not before or before[-1] in ";{}):" or re.search(r"\b(else|do)$", before)
    return bool(starts) and code[end:].lstrip().startswith(";")


def find_calls(file, text, calls=None):
    """The mutants of every call of the table in a source text."""
    calls = CALLS if calls is None else calls
    code = code_only(text)
    found = []
    for match in re.finditer(rf"\b({'|'.join(map(re.escape, [*calls, *VOTES]))})\b", code):
        try:
            call = call_at(code, match.end())
        except MutationError as error:
            raise MutationError(f"{file}, {error}") from error
        if call is None:
            continue  # the name alone, in a using-declaration
        template, parameters, end = call
        begin = match.start() - len(OBJECT.search(code, code.rfind("\n", 0, match.start()) + 1, match.start())[0])
        line, shown = line_of(text, begin), one_line(text[begin:end])
        if match[1] in VOTES:
            found.append(Mutant(file, line, f"remove {shown}", begin, end, text[begin:end], f"({text[slice(*parameters)]})"))
            continue
        if not is_statement(code, begin, end):
            raise MutationError(f"{file}:{line}: {shown} is no statement of its own: it cannot be removed")
        emptied = "\n" * text.count("\n", begin, end)
        found.append(Mutant(file, line, f"remove {shown}", begin, end, text[begin:end], emptied))
        if calls[match[1]]:
            span = template or parameters
            count = text[slice(*span)].strip()
            if not count:
                raise MutationError(f"{file}:{line}: {shown} has no count that could be weakened")
            weaker = f"{in_parentheses(count)} + 1"
            found.append(Mutant(file, line, f"weaken {shown}", *span, text[slice(*span)], weaker))
    return found


# ---- marks: shift, swap ----


def read_mark(mark, count=1):
    """A mark as (exact text, [(begin, end) of each index in it, …]); MutationError if it does not mark `count` indices."""
    if "[[" not in mark:
        raise MutationError(f"the mark “{mark}” marks nothing: put the index in double brackets")
    exact, spans, position = "", [], 0
    while (opening := mark.find("[[", position)) >= 0:
        exact += mark[position:opening]
        depth, closing = 0, opening + 2
        while closing < len(mark) and not (depth == 0 and mark.startswith("]]", closing)):
            depth += (mark[closing] == "[") - (mark[closing] == "]")
            closing += 1
        index, position = mark[opening + 2 : closing], closing + 2
        if closing >= len(mark) or not index.strip():
            break
        subscript = re.search(r"[\w\])]$", exact)  # nothing else can follow
        exact += "[" if subscript else ""
        spans.append((len(exact), len(exact) + len(index)))
        exact += index + ("]" if subscript else "")
    if opening >= 0 or len(spans) != count:
        raise MutationError(f"the mark “{mark}” does not mark exactly {'one index' if count == 1 else f'{count} places'}")
    return exact + mark[position:], spans


def marked_places(file, text, mark, occurrences, count):
    """[[(begin, end) in the text of each index], …] for each place where a mark's text stands; MutationError if there are not as
    many as expected."""
    exact, spans = read_mark(mark, count)
    code = code_only(text)
    starts = [match.start() for match in re.finditer(rf"(?={re.escape(exact)})", text)]
    places = [[(at + begin, at + end) for begin, end in spans] for at in starts]
    places = [place for place in places if all(code[slice(*span)] == text[slice(*span)] for span in place)]  # not in a comment
    if len(places) != occurrences:
        raise MutationError(f"{file}: “{exact}” of the mark “{mark}” stands there {len(places)} times, not {occurrences}")
    return places


def find_marked(file, text, mark, occurrences=1):
    """The two shifts of a mark at each place where its text stands."""
    found = []
    for [span] in marked_places(file, text, mark, occurrences, 1):
        index = text[slice(*span)]
        for shift in ("+1", "-1"):
            shifted = f"({in_parentheses(index)} {shift[0]} 1)"
            found.append(Mutant(file, line_of(text, span[0]), f"shift {shift} {one_line(mark)}", *span, index, shifted))
    return found


def find_swapped(file, text, swap, occurrences=1):
    """The mutant of two marked parts that change places, at each place where the text stands."""
    found = []
    for (begin, middle), (again, end) in marked_places(file, text, swap, occurrences, 2):
        after = text[again:end] + text[middle:again] + text[begin:middle]
        found.append(Mutant(file, line_of(text, begin), f"swap {one_line(swap)}", begin, end, text[begin:end], after))
    return found


# ---- a step ----


def source_file(folder, name):
    """Where a file of the step in this folder stands, by its name in mutants.json."""
    return (folder.parents[1] if "/" in name else folder) / name


def sources_of(folder):
    """The sources of the step in this folder, and those that it shares with later steps, by their names in mutants.json."""
    shared = folder.parents[1] / "common" / "device" / folder.name.partition("_")[2]
    own = sorted(path.name for path in folder.iterdir() if path.suffix in SOURCES)
    return own + sorted(str(path.relative_to(folder.parents[1])) for path in shared.glob("*") if path.suffix in SOURCES)


def read_marks(folder):
    """The mutants.json of the step in this folder; MutationError for what it may not hold."""
    file = folder.parents[1] / "tests" / "steps" / folder.name / "mutants.json"
    if not file.is_file():
        raise MutationError(f"{folder.name} has no mutants.json")
    try:
        marks = json.loads(file.read_text())
        shapes, files = dict(marks["shapes"]), dict(marks["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise MutationError(f"{folder.name}/mutants.json cannot be read: {error!r}") from error
    for name, entry in files.items():
        if not source_file(folder, name).is_file():
            raise MutationError(f"{folder.name}/mutants.json names {name}, which does not exist")
        of_marks = [mark.get("shapes", []) for mark in entry.get("marks", []) if isinstance(mark, dict)]
        named = set(entry.get("shapes", [])).union(*of_marks)
        unknown = set(entry) - {"shapes", "marks", "equivalent"} or named - set(shapes)
        if unknown:
            raise MutationError(f"{folder.name}/mutants.json: {name}: unknown: {', '.join(sorted(unknown))}")
    forgotten = {name for name in sources_of(folder) if name.endswith(".cuh")} - set(files)
    if forgotten:
        raise MutationError(f"{folder.name}/mutants.json says nothing of {', '.join(sorted(forgotten))}")
    return marks


def numbered(mutants):
    """The mutants in order of their place; the second of the same name gets “, no. 2 of the line”, and so on."""
    seen, result = {}, []
    for mutant in sorted(mutants, key=lambda m: (m.begin, m.what)):
        count = seen[mutant.id] = seen.get(mutant.id, 0) + 1
        what = mutant.what if count == 1 else f"{mutant.what}, no. {count} of the line"
        result.append(replace(mutant, what=what))
    return result


def explained(mutants, reasons):
    """The mutants with the reasons why some are equivalent; MutationError for a reason that fits none."""
    for key in reasons:
        if not any(key in (mutant.what, f":{mutant.line} {mutant.what}") for mutant in mutants):
            raise MutationError(f"{mutants[0].file if mutants else 'a file'}: no mutant is called “{key}”")
    reason = lambda mutant: reasons.get(f":{mutant.line} {mutant.what}") or reasons.get(mutant.what)
    return [replace(mutant, equivalent=reason(mutant)) for mutant in mutants]


def find_in_file(file, text, entry, calls=None):
    """All mutants of one source text; `entry` is what mutants.json says of it."""
    found = find_calls(file, text, calls)
    for mark in entry.get("marks", []):
        mark = {"mark": mark} if isinstance(mark, str) else mark
        if set(mark) - {"occurrences", "shapes"} not in ({"mark"}, {"swap"}):
            raise MutationError(f"{file}: a mark has “mark” or “swap”, and perhaps “occurrences” or “shapes”, but this one is {mark}")
        shapes = tuple(mark.get("shapes", []))
        mark = {key: value for key, value in mark.items() if key != "shapes"}
        marked = (find_marked if "mark" in mark else find_swapped)(file, text, **mark)
        found += [replace(mutant, shapes=shapes) for mutant in marked]
    return explained(numbered(found), entry.get("equivalent", {}))


def find(folder):
    """(all mutants of a step, {shape: arguments}) for its folder."""
    marks = read_marks(folder)
    found = []
    sources = sources_of(folder)
    for name in sources:
        entry = marks["files"].get(name, {})
        shapes = tuple(entry.get("shapes", marks["shapes"]))
        for mutant in find_in_file(name, source_file(folder, name).read_text(), entry):
            found.append(replace(mutant, shapes=mutant.shapes or shapes))
    for name, entry in marks["files"].items():
        if "/" in name and name not in sources:
            text = source_file(folder, name).read_text()
            found += [replace(mutant, shapes=mutant.shapes or tuple(entry["shapes"])) for mutant in find_in_file(name, text, entry, {})]
    return found, marks["shapes"]

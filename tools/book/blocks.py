"""The parts of a page that are generated: quoted code (quotes.py), tables of results (tables/) and of predictions (prose.py)."""

import difflib
import re
import shlex

from tools.book import calls, prose, quotes, tables  # noqa: F401 (calls and prose register tables)
from tools.book.pages import Problem, files

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
RESULTS = re.compile(r"<!-- results: (?P<words>\S+(?: \S+)*) -->")
RESULTS_END = "<!-- /results -->"


class BlockError(Exception):
    """A block that cannot be generated; its text says why."""


def after_fence(lines, begin):
    """The line after the fenced block that begins there; BlockError if it does not end."""
    ticks = FENCE.match(lines[begin])[1]
    for number in range(begin + 1, len(lines)):
        if re.fullmatch(rf" {{0,3}}{ticks[0]}{{{len(ticks)},}}\s*", lines[number]):
            return number + 1
    raise BlockError("the fenced block does not end")


def quoted(root, lines, begin, comment):
    """The generated lines below a code comment, and the line after those that they replace."""
    wanted = quotes.fence(quotes.resolve(root, comment["path"], comment["name"], comment["lines"]))
    has_fence = begin + 1 < len(lines) and FENCE.match(lines[begin + 1])
    return wanted, after_fence(lines, begin + 1) if has_fence else begin + 1


def tabulated(root, lines, begin, comment, registry):
    """The same for a results comment; the end marker is not replaced."""
    if RESULTS_END not in lines[begin:]:
        raise BlockError(f"{RESULTS_END} is missing")
    name, *arguments = shlex.split(comment["words"])
    text = tables.make(root, name, arguments, registry)
    return ["", *text.splitlines(), ""] if text else [], lines.index(RESULTS_END, begin)


def regenerate(root, text, registry=None):
    """A page with all its generated parts made anew, and [(line, what went wrong), …] for those that could not be."""
    lines, result, failures = text.splitlines(), [], []
    number = 0
    while number < len(lines):
        line, begin = lines[number], number
        number += 1
        code, results = quotes.COMMENT.fullmatch(line), RESULTS.fullmatch(line)
        result.append(line)
        try:
            if code:
                wanted, number = quoted(root, lines, begin, code)
                result += wanted
            elif results:
                wanted, number = tabulated(root, lines, begin, results, registry)
                result += wanted
            elif FENCE.match(line):  # what stands in other code is no command
                number = after_fence(lines, begin)
                result += lines[begin + 1 : number]
            elif line.startswith(("<!-- code:", "<!-- results:")):
                failures.append((begin + 1, f"this comment is not understood: {line}"))
        except (BlockError, quotes.QuoteError, tables.TableError) as error:
            failures.append((begin + 1, str(error)))
    return "\n".join(result) + "\n", failures


def difference(name, old, new):
    """A unified diff from the page as it is to the page as it should be."""
    return "\n".join(
        difflib.unified_diff(old.splitlines(), new.splitlines(), name, f"{name}, as it should be", "", "", 2, "")
    )


def check_blocks(root, registry=None):
    """Pages whose quotations or tables differ from their sources, each with a diff."""
    problems = []
    for page in files(root, ".md"):
        name, text = str(page.relative_to(root)), page.read_text()
        fresh, failures = regenerate(root, text, registry)
        problems += [Problem(f"{name}:{line}", reason) for line, reason in failures]
        if fresh != text and not failures:
            problems.append(
                Problem(name, "differs from its sources; run tools/book update\n" + difference(name, text, fresh))
            )
    return problems


def update_blocks(root, registry=None):
    """Rewrites pages from their sources. Returns the names of those that changed, and what could not be made."""
    changed, problems = [], []
    for page in files(root, ".md"):
        name, text = str(page.relative_to(root)), page.read_text()
        fresh, failures = regenerate(root, text, registry)
        problems += [Problem(f"{name}:{line}", reason) for line, reason in failures]
        if fresh != text and not failures:
            page.write_text(fresh)
            changed.append(name)
    return changed, problems

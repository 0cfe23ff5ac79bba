"""What a page says: how many words, what it predicts and whether that came true, how long its quotations are.

A prediction is a paragraph, and further down in its section there is a paragraph that confronts it:

    **Expected.** 80 µs at 16,384 × 4096, because an element costs about 10 instructions in both passes together.

    **Measured: confirmed.** 80.5 µs. …

The verdict is one of VERDICTS. The table of a page's predictions is made from these paragraphs: `<!-- results: predictions docs/PAGE.md -->`.
"""

import re
from dataclasses import dataclass

from tools.book import quotes
from tools.book.pages import PARSER, Problem
from tools.book.tables import TableError, markdown, table

WORDS = {r"\d\d_\w+\.md": 2500, r"\d\d[bc]_\w+\.md": 3000}  # at most, of a core page and of a page of details
QUOTED_LINES = 20  # of a quotation, at most
VERDICTS = ("confirmed", "missed", "in part")
EXPECTED = "**Expected.** "
MEASURED = re.compile(r"\*\*Measured: (?P<verdict>[^*]*)\.\*\* ")
WORDS_A_MINUTE, LINES_A_MINUTE = 130, 10  # of a reader who wants to understand: prose and quoted code


def without_generated(text):
    """A page without its code, its generated tables, its pictures and its comments."""
    text = re.sub(r"^<!-- results: .*?^<!-- /results -->$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^( {0,3})(`{3,}|~{3,}).*?^ {0,3}\2`*\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)|</?\w+>", "", text, flags=re.DOTALL)


def words(text):
    """How many words a page has, formulas included; code, generated tables, what stands for a picture, and markup are none."""
    return sum(any(letter.isalnum() for letter in word) for word in without_generated(text).split())


def budget(name):
    """The most words that a page may have; None if nothing limits it."""
    return next((most for pattern, most in WORDS.items() if re.fullmatch(pattern, name)), None)


def quoted_lines(text):
    """[(line, how many lines), …] of a page's quotations."""
    found, lines = [], text.splitlines()
    for number, line in enumerate(lines[:-1]):
        if quotes.COMMENT.fullmatch(line) and lines[number + 1].startswith("```"):
            fence = re.match("`+", lines[number + 1])[0]
            found.append((number + 1, lines.index(fence, number + 2) - number - 2))
    return found


def check_words(root):
    """Core pages and pages of details that are too long, and quotations that are."""
    problems = []
    for page in sorted((root / "docs").glob("*.md")):
        name, text = f"docs/{page.name}", page.read_text()
        most, there = budget(page.name), words(text)
        if most is None:
            continue
        if there > most:
            problems.append(Problem(name, f"has {there} words; {most} at most"))
        problems += [
            Problem(f"{name}:{line}", f"quotes {count} lines; {QUOTED_LINES} at most")
            for line, count in quoted_lines(text)
            if count > QUOTED_LINES
        ]
    return problems


# ---- predictions ----


@dataclass
class Prediction:
    """What a section expects, what was measured (None: nothing confronts it) and the verdict."""

    section: str
    line: int
    expected: str
    measured: str | None = None
    verdict: str | None = None


def first_sentence(text):
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[^\d\s][.!?])\s|(?<=\d\.)\s(?=[A-Z])", " ".join(text.split()), maxsplit=1)[0].rstrip(".")


def quantity_of(text):
    """What an "Expected" says before it gives the reason."""
    return re.split(r",? because\b", first_sentence(text), maxsplit=1)[0]


def predictions(text):
    """(predictions of a page, [(line, what is wrong with one), …])."""
    found, problems, section, open_one = [], [], "", None
    tokens = PARSER.parse(text)
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            if int(token.tag[1]) <= 2:
                section, open_one = tokens[position + 1].content, None
        elif token.type == "inline" and tokens[position - 1].type == "paragraph_open":
            line = token.map[0] + 1
            measured = MEASURED.match(token.content)
            if token.content.startswith("**Expected"):
                if not token.content.startswith(EXPECTED):
                    problems.append((line, f"a prediction begins with “{EXPECTED.strip()}”"))
                if not re.search(r"\bbecause\b", token.content):
                    problems.append((line, "this prediction gives no reason (“because”)"))
                open_one = Prediction(section, line, quantity_of(token.content.removeprefix(EXPECTED)))
                found.append(open_one)
            elif measured:
                if open_one is None:
                    problems.append((line, "this measurement confronts no prediction of its section"))
                    continue
                if measured["verdict"] not in VERDICTS:
                    problems.append((line, f"the verdict “{measured['verdict']}” is none of {', '.join(VERDICTS)}"))
                open_one.measured, open_one.verdict = first_sentence(token.content[measured.end() :]), measured["verdict"]
                open_one = None
            elif token.content.startswith("**Measured"):
                problems.append((line, "a measurement begins with its verdict: “**Measured: confirmed.**”"))
    problems += [(one.line, "no measurement confronts this prediction") for one in found if one.verdict is None]
    return found, sorted(problems)


def check_predictions(root):
    """Predictions without a verdict, in pages that have a budget; and pages that predict, but show no table of it."""
    problems = []
    for page in sorted((root / "docs").glob("*.md")):
        if budget(page.name) is None:
            continue
        name, text = f"docs/{page.name}", page.read_text()
        found, wrong = predictions(text)
        problems += [Problem(f"{name}:{line}", reason) for line, reason in wrong]
        if found and f"<!-- results: predictions {name} -->" not in text:
            problems.append(Problem(name, f"has predictions, but not their table: <!-- results: predictions {name} -->"))
    return problems


@table("predictions")
def predictions_table(root, page):
    """What a page expected, what was measured, and the verdict: a row for each prediction."""
    if not (root / page).is_file():
        raise TableError(f"{page} does not exist")
    rows = []
    for one in predictions((root / page).read_text())[0]:
        where = re.sub(r"^Variants? (`[^`]+`(?:(?:, | and )`[^`]+`)*).*", r"\1", one.section)
        rows.append([where, *(cell.replace("|", "\\|") for cell in (one.expected, one.measured or "-", one.verdict or "-"))])
    return markdown(["where", "expected", "measured", "verdict"], rows)


# ---- how long it takes to read ----


def minutes(text):
    """Of reading, in steps of five: prose at WORDS_A_MINUTE, quotations at LINES_A_MINUTE."""
    needed = words(text) / WORDS_A_MINUTE + sum(count for _, count in quoted_lines(text)) / LINES_A_MINUTE
    return max(5, 5 * round(needed / 5))


@table("reading")
def reading_table(root):
    """The core path: its pages in order, the minutes that each takes, and the pages of details beside it."""
    rows = []
    for page in sorted((root / "docs").glob("[0-9][0-9]_*.md")):
        text = page.read_text()
        title = re.match(r"# (.*)", text)[1]
        beside = [
            f"[{re.match(r'# (.*)', more.read_text())[1]}]({more.name}), {minutes(more.read_text())} min"
            for more in sorted((root / "docs").glob(f"{page.name[:2]}[bc]_*.md"))
        ]
        rows.append([f"[{title}]({page.name})", minutes(text), "; ".join(beside) or "-"])
    return markdown(["core path", "minutes", "details, for a second reading"], rows, "lrl")

"""What a page says: words, predictions with their verdicts, minutes, quotations of a part of a region."""

import pytest

from tools.book import blocks, bookext, prose, quotes, tables


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "docs").mkdir()
    return tmp_path


def page(repository, text, name="docs/01_page.md"):
    (repository / name).write_text(text)
    return repository / name


def problems(check, repository):
    return [str(problem) for problem in check(repository)]


# ---- words ----


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# One two\n\nthree, four — five\n", 5),
        ("one\n\n```cuda\ncode is none\n```\n\n~~~\nnor this\n~~~\n\ntwo\n", 2),
        ("one\n\n````markdown\n```\nnone\n```\n````\n\ntwo\n", 2),
        ("<!-- results: times 01 -->\n\n| none | none |\n\n<!-- /results -->\n\none <!-- none --> two\n", 2),
        ("| a | b |\n|---|---:|\n| 1 | 2 |\n", 4),
        ("![not what a picture shows](images/a.svg)\n\none\n", 1),
        ("a [link text](other.md#some-heading) is two\n", 5),
        ("<details><summary>Hint</summary>\n\none\n\n</details>\n", 2),
        ("$$\nx = y\n$$\n", 2),
    ],
)
def test_words_are_those_that_a_reader_reads(text, count):
    assert prose.words(text) == count


@pytest.mark.parametrize(("name", "most"), [("01_page.md", 2500), ("01b_page.md", 3000), ("01c_page.md", 3000), ("glossary.md", None)])
def test_a_page_has_a_budget_by_its_name(repository, name, most):
    page(repository, "word " * (most or 9000), f"docs/{name}")
    assert problems(prose.check_words, repository) == []
    if most:
        page(repository, "word " * (most + 1), f"docs/{name}")
        assert problems(prose.check_words, repository) == [f"docs/{name}: has {most + 1} words; {most} at most"]


@pytest.mark.parametrize(("lines", "reason"), [(20, []), (21, ["docs/01_page.md:3: quotes 21 lines; 20 at most"])])
def test_a_quotation_is_short(repository, lines, reason):
    page(repository, "# A\n\n<!-- code: a.cuh#f -->\n```cuda\n" + "x;\n" * lines + "```\n")
    assert problems(prose.check_words, repository) == reason


# ---- predictions ----

SECTION = "# A\n\n<!-- results: predictions docs/01_page.md -->\n<!-- /results -->\n\n## Variant `fast`: quick\n\n{}\n"
RIGHT = "**Expected.** 80 µs, because of *x*. More.\n\ntext\n\n**Measured: confirmed.** 80.5 µs at\n4096 × 4096. Why: y."


def test_a_prediction_with_its_verdict_is_a_row_of_the_table(repository):
    page(repository, SECTION.format(RIGHT))
    assert problems(prose.check_predictions, repository) == []
    assert tables.make(repository, "predictions", ["docs/01_page.md"]).splitlines() == [
        "| where | expected | measured | verdict |",
        "| --- | --- | --- | --- |",
        "| `fast` | 80 µs | 80.5 µs at 4096 × 4096 | confirmed |",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("**Expected.** 80 µs, because of x.", "no measurement confronts this prediction"),
        (RIGHT + "\n\n**Expected.** 3, because.\n\n## Next\n\n**Measured: missed.** 4.", "no measurement confronts this prediction"),
        ("**Measured: missed.** 4.", "this measurement confronts no prediction of its section"),
        ("**Expected.** 80 µs.\n\n**Measured: missed.** 4.", "this prediction gives no reason (“because”)"),
        ("**Expected.** 1, because x.\n\n**Measured: nearly.** 4.", "the verdict “nearly” is none of confirmed, missed, in part"),
        ("**Expected.** 1, because x.\n\n**Measured.** 4.", "a measurement begins with its verdict"),
        ("**Expected:** 1, because x.\n\n**Measured: missed.** 4.", "a prediction begins with “**Expected.**”"),
    ],
)
def test_a_prediction_without_a_verdict_is_a_problem(repository, text, reason):
    page(repository, SECTION.format(text))
    assert any(reason in problem for problem in problems(prose.check_predictions, repository))


def test_a_page_with_predictions_shows_their_table(repository):
    page(repository, "# A\n\n" + RIGHT)
    assert problems(prose.check_predictions, repository) == [
        "docs/01_page.md: has predictions, but not their table: <!-- results: predictions docs/01_page.md -->"
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1.5 µs at dim 64. Then more.", "1.5 µs at dim 64"),
        ("4.2 of 7. Then.", "4.2 of 7"),
        ("Is it? Yes.", "Is it?"),
        ("no full stop", "no full stop"),
    ],
)
def test_the_first_sentence_ends_at_its_full_stop(text, sentence):
    assert prose.first_sentence(text) == sentence


# ---- minutes ----


def test_the_reading_table_has_the_core_path_with_its_details(repository):
    page(repository, "# 01 · One\n\n" + "word " * 1300)
    page(repository, "# 01b · More\n\nword\n", "docs/01b_more.md")
    page(repository, "# 01c · Still more\n\nword\n", "docs/01c_more.md")
    page(repository, "# Glossary\n", "docs/glossary.md")
    (row,) = tables.make(repository, "reading", []).splitlines()[2:]
    assert row == "| [01 · One](01_page.md) | 10 | [01b · More](01b_more.md), 5 min; [01c · Still more](01c_more.md), 5 min |"


# ---- a part of a region ----

SOURCE = "// [doc: all]\nint a;\nint b;\n// [doc: inner]\nint c;\n// [/doc: inner]\nint d;\n// [/doc: all]\n"


def test_lines_of_a_region_are_quoted_without_markers(repository):
    (repository / "a.cuh").write_text(SOURCE)
    quote = quotes.resolve(repository, "a.cuh", "all", "2-3")
    assert (quote.text, quote.first, quote.last) == ("int b;\nint c;", 3, 5)
    text = "<!-- code: a.cuh#all lines 4-4 -->\n```cuda\nold\n```\n"
    assert blocks.regenerate(repository, text) == ("<!-- code: a.cuh#all lines 4-4 -->\n```cuda\nint d;\n```\n", [])


@pytest.mark.parametrize("part", ["0-1", "2-1", "4-5"])
def test_lines_that_a_region_does_not_have_are_an_error(repository, part):
    (repository / "a.cuh").write_text(SOURCE)
    with pytest.raises(quotes.QuoteError, match=f"has the lines 1-4, not {part}"):
        quotes.resolve(repository, "a.cuh", "all", part)


# ---- equations ----


def test_an_equation_that_the_converter_does_not_know_is_an_error():
    assert "<mtable" in bookext.mathml(r"\begin{aligned} a &= b \\ c &= d \end{aligned}", "block")
    with pytest.raises(bookext.ExtensionError, match="a part that the converter does not know"):
        bookext.mathml(r"a & b", "inline")

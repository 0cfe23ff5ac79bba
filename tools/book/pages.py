"""The book's pages as Markdown: which there are, their links and headings, and whether everything hangs together."""

import json
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

PARSER = MarkdownIt("commonmark").enable("table")
HTML_LINK = re.compile(r"""<(?:img|a)\b[^>]*?\b(?:src|href)=["']([^"']+)["']""")
NOT_OURS = {"build", "__pycache__"}
# A forge's own page of a workflow, and its badge, as README.md may link to them: from where the forge shows that file.
WORKFLOW = re.compile(r"\.\./\.\./actions/workflows/([\w.-]+\.yml)(?:/badge\.svg)?")


@dataclass(frozen=True)
class Problem:
    """Something that has to be put right: where it is ("docs/index.md:12") and what it is."""

    where: str
    text: str

    def __str__(self):
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    slug: str
    line: int


def files(root, suffix):
    """All files of the repository with that suffix, sorted; hidden folders and build outputs are no part of it."""
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name not in NOT_OURS]
        found += [Path(folder, name) for name in names if name.endswith(suffix)]
    return sorted(found)


def plain(inline):
    """The text of an inline token without its markup."""
    return "".join(child.content for child in inline.children if child.type in ("text", "code_inline", "softbreak"))


def slugify(text):
    """A heading's anchor, by the rule that GitHub and MyST share."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def headings(text):
    """The headings of a page. The second one with the same slug gets -1 appended, and so on."""
    found, seen = [], {}
    tokens = PARSER.parse(text)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            title = plain(inline)
            slug = slugify(title)
            count = seen[slug] = seen.get(slug, -1) + 1
            found.append(Heading(int(opening.tag[1]), title, f"{slug}-{count}" if count else slug, opening.map[0] + 1))
    return found


def links(text):
    """(line, target) of every link and image of a page, those in raw HTML included; code is not looked into."""
    found = []
    for token in PARSER.parse(text):
        line = token.map[0] + 1 if token.map else 1
        if token.type == "html_block":
            found += [(line, target) for target in HTML_LINK.findall(token.content)]
        for child in token.children or []:
            if child.type == "html_inline":
                found += [(line, target) for target in HTML_LINK.findall(child.content)]
            elif child.type in ("link_open", "image"):
                found.append((line, child.attrs.get("href") or child.attrs.get("src") or ""))
    return found


def is_external(target):
    return re.match(r"[a-z][a-z0-9+.-]*:", target) is not None


def check_link(root, page, target):
    """Why a link of that page leads nowhere; None if it leads somewhere."""
    if is_external(target):
        return None
    workflow = WORKFLOW.fullmatch(target)
    if workflow and page.parent == root:
        return None if (root / ".github" / "workflows" / workflow[1]).is_file() else f"there is no workflow {workflow[1]}"
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_relative_to(root):
        return f"the link {target} leaves the repository"
    if not file.exists():
        return f"the link {target} leads to a file that does not exist"
    if anchor and file.suffix == ".md" and anchor not in {heading.slug for heading in headings(file.read_text())}:
        return f"the link {target} names a heading that {file.relative_to(root)} does not have"
    return None


def notebook_text(path):
    """The Markdown cells of a notebook, one after the other."""
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def check_links(root):
    """Dead links of all Markdown files and notebooks."""
    problems = []
    texts = {page: page.read_text() for page in files(root, ".md")}
    texts |= {notebook: notebook_text(notebook) for notebook in files(root, ".ipynb")}
    for page, text in texts.items():
        for line, target in links(text):
            reason = check_link(root, page, target)
            if reason:
                problems.append(Problem(f"{page.relative_to(root)}:{line}", reason))
    return problems


def contents(text):
    """The table of contents that an index page spells out: [(caption, [page, …]), …].

    It is a list of links under the heading "Contents"; third-level headings below it are captions.
    """
    groups, inside = [], False
    tokens = PARSER.parse(text)
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            title = plain(tokens[position + 1])
            inside = title == "Contents" if token.tag in ("h1", "h2") else inside
            if inside:
                groups.append((None if title == "Contents" else title, []))
        elif inside and token.type == "inline":
            targets = [child.attrs["href"] for child in token.children if child.type == "link_open"]
            groups[-1][1].extend(target for target in targets[:1] if re.fullmatch(r"[\w-]+\.md", target))
    return [(caption, pages) for caption, pages in groups if pages]


def check_contents(root):
    """Every page of the book has its place in the contents of docs/index.md, once."""
    index = root / "docs" / "index.md"
    listed = [page for _, group in contents(index.read_text()) for page in group]
    there = {page.name for page in (root / "docs").glob("*.md")} - {index.name}
    problems = [Problem("docs/index.md", f"the contents do not list {name}") for name in sorted(there - set(listed))]
    twice = sorted({name for name in listed if listed.count(name) > 1})
    return problems + [Problem("docs/index.md", f"the contents list {name} more than once") for name in twice]


def check_glossary(root):
    """Every term has one entry: a third-level heading, or a part of one between commas."""
    problems, bound = [], {}
    for heading in headings((root / "docs" / "glossary.md").read_text()):
        where = f"docs/glossary.md:{heading.line}"
        if heading.slug != slugify(heading.text):
            problems.append(Problem(where, f"“{heading.text}” has the same anchor as another entry"))
        for term in heading.text.split(", ") if heading.level == 3 else []:
            if term in bound:
                problems.append(Problem(where, f"“{term}” is bound at line {bound[term]} already"))
            bound.setdefault(term, heading.line)
    return problems

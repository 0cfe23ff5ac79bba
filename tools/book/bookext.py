"""What Sphinx has to know to make the site from the book's plain Markdown:

- the table of contents is the list in docs/index.md;
- a quotation stands beside the prose before it, where the window is wide, under a line that names its source;
- links to files and folders outside docs/ lead to pages of the site that show them;
- equations are MathML, which browsers show without a script.
"""

import html
import json
import re
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

from tools.book import pages, quotes

ROOT = Path(__file__).resolve().parents[2]
PROSE = (nodes.paragraph, nodes.bullet_list, nodes.enumerated_list, nodes.literal_block, nodes.math_block)
NARROW_CODE, NARROW_EQUATION = 40, 25  # characters of a line that fit into the column of prose
LARGEST_SHOWN = 200_000  # bytes of a file that gets a page


# ---- the table of contents ----


def add_toctrees(app, docname, source):
    """Appends to the index what Sphinx needs of the list that readers see there."""
    if docname != app.config.root_doc:
        return
    for caption, listed in pages.contents(source[0]):
        caption_line = f":caption: {caption}\n" if caption else ""
        entries = "\n".join(page.removesuffix(".md") for page in listed)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n{caption_line}\n{entries}\n```\n"


def shorten_glossary_toc(app, docname, doctree):
    """A hundred terms make no useful sidebar: only the groups stand there."""
    if docname == "glossary":
        app.env.metadata[docname]["tocdepth"] = 2


# ---- links to sources ----


def source_page(path):
    """The name of the page that shows a file or folder of the repository."""
    return f"code/{path.as_posix()}" if path.is_file() else f"code/{path.as_posix()}/contents"


def code_link(app, docname, path, line=None):
    """A relative address from a page to the page that shows `path` (absolute, within the repository)."""
    relative = path.relative_to(ROOT)
    app.shown_sources.add(path)
    target = f"code/{relative.as_posix()}" + ("/contents" if path.is_dir() else "")
    address = app.builder.get_relative_uri(docname, target)
    return f"{address}#L-{line}" if line and path.is_file() else address


class SourceLinks(SphinxTransform):
    """Turns links to files that are no pages of the book into links to the pages that show them."""

    default_priority = 5

    def apply(self, **kwargs):
        folder = Path(self.document["source"]).parent
        for node in list(
            self.document.findall(lambda n: isinstance(n, addnodes.download_reference | addnodes.pending_xref))
        ):
            target = node.get("reftarget", "").partition("#")[0]
            if node.get("refdomain") == "doc":  # a page without its suffix
                target += ".md"
            path = (folder / target).resolve() if target and not pages.is_external(target) else ROOT
            if (
                path == ROOT
                or not path.exists()
                or not path.is_relative_to(ROOT)
                or path.suffix == ".md"
                and path.parent == folder
            ):
                continue
            address = code_link(self.app, self.env.docname, path)
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=True))


# ---- prose beside code ----


def quoted_below(node):
    """The match of a code comment if that is what the node is."""
    return quotes.COMMENT.fullmatch(node.astext().strip()) if isinstance(node, nodes.raw) else None


def caption(app, docname, quote):
    """The line above a quotation: its file and lines, linked."""
    address = code_link(app, docname, ROOT / quote.path, quote.first)
    where = (
        f"{quote.path}, lines {quote.first}–{quote.last}"
        if quote.last > quote.first
        else f"{quote.path}, line {quote.first}"
    )
    link = nodes.reference("", where, refuri=address, internal=True)
    return nodes.paragraph("", "", link, classes=["source"])


def fits_beside(node):
    """Whether a node can stand in the narrow column: prose, short code, a short equation; no picture."""
    if isinstance(node, nodes.paragraph):
        return not all(isinstance(child, nodes.image) for child in node.children)
    if isinstance(node, nodes.literal_block):
        return max(map(len, node.astext().splitlines()), default=0) <= NARROW_CODE
    if isinstance(node, nodes.math_block):
        rows = mathml(node.astext(), "block").split("</mtr>")
        return max(len(re.sub(r"<[^>]*>|\s", "", row)) for row in rows) <= NARROW_EQUATION
    return isinstance(node, PROSE)


class Beside(SphinxTransform):
    """Puts each quotation and the prose before it, back to a heading or anything wide, side by side. Without prose it stands alone."""

    default_priority = 6

    def apply(self, **kwargs):
        for comment in [node for node in self.document.findall(nodes.raw) if quoted_below(node)]:
            self.place(comment)

    def place(self, comment):
        parent, position = comment.parent, comment.parent.index(comment)
        block = parent[position + 1]
        quote = quotes.resolve(ROOT, *quoted_below(comment).group("path", "name", "lines"))
        code = [caption(self.app, self.env.docname, quote), block]
        before = parent[position - 1] if position > 0 else None
        if (
            isinstance(before, nodes.container) and "beside" in before["classes"]
        ):  # a second quotation for the same prose
            before[1].extend(code)
            del parent[position : position + 2]
            return
        first = position
        while first > 0 and fits_beside(parent[first - 1]):
            first -= 1
        if first == position:
            parent[position : position + 2] = code
            return
        prose = nodes.container("", *parent[first:position], classes=["prose"])
        row = nodes.container("", prose, nodes.container("", *code, classes=["code"]), classes=["beside"])
        parent[first : position + 2] = [row]


# ---- pages that show sources ----


def notebook_as_text(path):
    """The cells of a notebook, in one Python-like text."""
    cells = json.loads(path.read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    prose = [cell["cell_type"] == "markdown" for cell in cells]
    return "\n\n".join(
        "\n".join(f"# {line}" for line in text.splitlines()) if p else text for text, p in zip(texts, prose)
    )


def source_html(path):
    """A file, highlighted; its line 12 has the anchor L-12."""
    text = notebook_as_text(path) if path.suffix == ".ipynb" else path.read_text()
    name = {".cuh": "a.cu", ".ipynb": "a.py"}.get(path.suffix, path.name)
    try:
        lexer = get_lexer_for_filename(name)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(text, lexer, HtmlFormatter(lineanchors="L", linenos="inline", anchorlinenos=True, wrapcode=True))


def is_shown(path):
    """Whether a file gets a page: text of a reasonable size."""
    if path.stat().st_size > LARGEST_SHOWN:
        return False
    try:
        path.read_text()
    except UnicodeDecodeError:
        return False
    return True


def visible_entries(folder):
    return [
        entry
        for entry in sorted(folder.iterdir())
        if not entry.name.startswith(".") and entry.name not in pages.NOT_OURS
    ]


def with_entries(paths):
    """The paths, and everything in those that are folders."""
    todo, done = list(paths), set()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        if path.is_dir():
            todo += visible_entries(path)
    return sorted(done)


def folder_html(folder):
    """What a folder holds, as links."""
    items = []
    for entry in visible_entries(folder):
        name = html.escape(entry.name)
        if entry.is_dir():
            items.append(f'<li><a href="{name}/contents.html">{name}/</a></li>')
        elif is_shown(entry):
            items.append(f'<li><a href="{name}.html">{name}</a></li>')
        else:
            items.append(f"<li>{name}</li>")
    return f"<ul>{''.join(items)}</ul>"


def source_pages(app):
    """The pages that Sphinx shall add: every linked file, every linked folder with all that it holds."""
    for path in with_entries(app.shown_sources):
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir() or is_shown(path):
            content = folder_html(path) if path.is_dir() else source_html(path)
            page = f"code/{name}/contents" if path.is_dir() else f"code/{name}"
            body = f'<section class="source-page"><h1>{html.escape(name)}</h1>{content}</section>'
            yield page, {"title": name, "body": body, "parents": [], "toc": ""}, "page.html"


# ---- equations ----


def mathml(latex, display):
    """An equation as MathML. What the converter passes through without understanding it is an error that shows the equation."""
    markup = convert(latex.replace("{aligned}", "{align*}"), display=display)
    if "<mi>&</mi>" in markup or "\\" in markup:
        raise ExtensionError(f"this equation has a part that the converter does not know: {latex}")
    return markup


def inline_equation(translator, node):
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def equation(translator, node):
    translator.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app):
    app.shown_sources = set()
    app.add_html_math_renderer("mathml", (inline_equation, None), (equation, None))
    app.connect("source-read", add_toctrees)
    app.connect("doctree-read", lambda app, doctree: shorten_glossary_toc(app, app.env.docname, doctree))
    app.connect("html-collect-pages", source_pages)
    app.add_transform(SourceLinks)
    app.add_transform(Beside)
    return {"parallel_read_safe": False}

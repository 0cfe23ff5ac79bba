"""The book in a real browser: headless Chromium opens every page, as wide as a desktop and as a phone, in both themes.

page_checks.js says what has to hold on a page. Pages with one fault each, made here, show that every check can fail.
"""

import functools
import http.server
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import ROOT
from playwright.sync_api import sync_playwright

from tools.measure.proofs import SOURCES_IN_THE_BROWSER

pytestmark = pytest.mark.long

CHECKS = (Path(__file__).parent / "page_checks.js").read_text()
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
PAGES += ["search", "genindex"]
DESKTOP, PHONE = 1440, 390
THEMES = ["light", "dark"]


def chromium():
    """The installed browser; None without one. Ubuntu's package is a stub that only says how to get the snap."""
    for name in ("chromium", "google-chrome"):
        path = shutil.which(name)
        command = [path or "false", "--version"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.fixture(scope="session")  # asked for first: without one, the site is not made
def browser():
    path = chromium()
    if path is None:
        pytest.skip(
            "no browser: install Debian's packages chromium and fonts-dejavu-extra (tools/bootstrap --browser), or Google Chrome"
        )
    # What is outside cannot be reached.
    options = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


class Window:
    """A window of the browser, and what went wrong in it since it was asked."""

    def __init__(self, browser, width, theme=None, system="light"):
        self.width, self.theme = width, theme
        phone = width == PHONE
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            is_mobile=phone,
            has_touch=phone,
            color_scheme=system,
        )
        if theme:
            self.context.add_init_script(f"localStorage.setItem('theme', '{theme}')")
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.base, self.wrong = "", []
        self.page.on("console", self.heard)
        self.page.on(
            "pageerror", lambda error: self.wrong.append(f"a script failed: {error}")
        )
        self.page.on("request", self.requested)
        self.page.on(
            "requestfailed",
            lambda request: self.wrong.append(f"did not come: {request.url}"),
        )
        self.page.on("response", self.came)

    def __str__(self):
        return f"{self.width} pixels, {self.theme}"

    def heard(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(
                f"the console shows: {message.text} ({message.location['url']})"
            )

    def requested(self, request):
        if not request.url.startswith((self.base, "data:")):
            self.wrong.append(f"asks for {request.url}")

    def came(self, response):
        if response.status >= 400:
            self.wrong.append(f"{response.status} for {response.url}")

    def open(self, base, page):
        self.base = f"{base}/"
        self.page.goto(f"{base}/{page}")

    def close(self):
        self.context.close()

    def problems(self):
        """Everything that is wrong with the open page."""
        found = self.page.evaluate(
            CHECKS, {"width": self.width, "beside": self.width == DESKTOP}
        )
        found, self.wrong = self.wrong + found, []
        return found


@pytest.fixture(scope="module")
def windows(browser):
    every = [(width, theme) for theme in THEMES for width in (DESKTOP, PHONE)]
    opened = [Window(browser, width, theme) for width, theme in every]
    yield opened
    assert [window.wrong for window in opened if window.wrong] == []  # what came late


def in_all(windows, base, page):
    """{window: its problems with that page}, of those that have any."""
    found = {}
    for window in windows:
        window.open(base, page)
        if problems := window.problems():
            found[str(window)] = problems
    return found


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def serve():
    """A function that makes a folder a site on this machine; it returns the address."""
    servers = []

    def start(folder):
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
        )
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def book(site, serve):
    return serve(site)


# ---- the book ----


def test_the_pages_below_are_all_pages_of_the_book(browser, site):
    assert sorted(path.stem for path in site.glob("*.html")) == sorted(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_right_on_a_desktop_and_on_a_phone_in_both_themes(
    windows, book, page
):
    assert in_all(windows, book, f"{page}.html") == {}


def test_pages_that_show_sources_are_right(windows, book, site):
    """A long one of each kind of file, and a folder with many files."""
    names = {path: f"{path}contents" if path.endswith("/") else path for path in SOURCES_IN_THE_BROWSER}
    assert {Path(path).suffix for path in names} == {"", ".cu", ".cuh", ".py", ".ipynb", ".json"}
    for name in names.values():
        assert in_all(windows, book, f"code/{name}.html") == {}, name


@pytest.mark.parametrize("served", [True, False], ids=["from a server", "from files"])
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_search_finds_ldmatrix_in_step_02(browser, book, site, served, width):
    base, window = book if served else site.as_uri(), Window(browser, width)
    window.open(base, "index.html")
    assert window.problems() == []
    if width == PHONE:
        window.page.locator(".nav-overlay-icon").first.tap()
    field = window.page.locator(".sidebar-search")
    field.fill("ldmatrix")
    field.press("Enter")
    window.page.wait_for_url(f"{base}/search.html?q=ldmatrix*")
    window.page.wait_for_selector(
        "#search-results .search-summary:has-text('matching')"
    )
    results = window.page.locator("#search-results li > a")
    addresses = [link.get_attribute("href") for link in results.all()]
    of_step_02 = [
        where for where in addresses if where.startswith("02_tiled_gemm.html")
    ]
    assert of_step_02, addresses
    results.nth(addresses.index(of_step_02[0])).click()
    window.page.wait_for_url(f"{base}/02_tiled_gemm.html*")
    assert window.page.locator("article :text('ldmatrix')").count() > 0
    if not served:  # no file may read others: results come without excerpts, and the console complains
        window.wrong.clear()
    assert window.problems() == []
    window.close()


def test_files_need_no_server(windows, site):
    """`make docs` says: open build/docs/index.html."""
    assert in_all(windows, site.as_uri(), "02_tiled_gemm.html") == {}


COLOURS = "() => ['body', 'article p', 'pre', 'pre .c1', 'code', 'a'].map((e) => { const s = getComputedStyle(document.querySelector(e)); return [s.color, s.backgroundColor]; })"


@pytest.mark.parametrize("theme", THEMES)
def test_a_reader_who_chose_no_theme_gets_the_systems(browser, windows, book, theme):
    chosen = next(window for window in windows if window.theme == theme)
    chosen.open(book, "02_tiled_gemm.html")
    unchosen = Window(browser, DESKTOP, system=theme)
    unchosen.open(book, "02_tiled_gemm.html")
    assert unchosen.page.evaluate(COLOURS) == chosen.page.evaluate(COLOURS)
    assert chosen.problems() == unchosen.problems() == []
    unchosen.close()


# ---- the checks: a page that is right, and one fault at a time ----

PICTURE = "<svg xmlns='http://www.w3.org/2000/svg' width='90' height='60'><path d='M0 0h90v60H0z' fill='#fff'/><path d='M9 9h30v30H9z'/></svg>"
RIGHT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Right</title><link rel="icon" href="data:,">
<style>
body { margin: 0 16px; font: 16px sans-serif; color: #222; background: #fff; }
[data-theme="dark"] { color: #ddd; background: #111; }
pre, .table, .math { overflow-x: auto; }
.c1 { color: #595959; }
[data-theme="dark"] .c1 { color: #999; }
math { font-family: "Latin Modern Math", "DejaVu Math TeX Gyre", math; }
mtd { text-align: -webkit-right; }
@media (min-width: 1000px) { .beside { display: grid; grid-template-columns: 20em minmax(0, 1fr); align-items: start; } }
.code { position: sticky; top: 0; }
</style></head>
<body><script>document.body.dataset.theme = localStorage.getItem("theme")</script><article>
<h1>Title</h1><p id="first">Text of the page.</p>
<div class="table"><table><tr><td>WIDE</td></tr></table></div>
<div class="beside"><div class="prose"><p>The prose of the row.</p><p>The last paragraph.</p></div><div class="code"><pre><span class="c1">// The code: WIDE</span></pre></div></div>
<div class="math"><math display="block"><msub><mi>x</mi><mi>i</mi></msub><mo>=</mo><mn>WIDE</mn></math></div>
<math><mtable><mtr><mtd columnalign="right"><mi>a</mi></mtd></mtr><mtr><mtd columnalign="right"><mn>1234</mn></mtd></mtr></mtable></math>
<p><img src="picture.svg" alt="What can be seen."></p>
</article></body></html>""".replace("WIDE", "W" * 200)

STYLE, IMAGE = "</style>", 'src="picture.svg"'
# Where a fault has to be found: of two windows, a light desktop and a dark phone.
EVERYWHERE = [0, 1]
WIDE = LIGHT = [0]
NARROW = DARK = [1]
FAULTS = {
    "a picture from elsewhere": (IMAGE, 'src="http://example.org/a.svg"', "asks for http://example.org/a.svg", EVERYWHERE),
    "a font from elsewhere": (STYLE, '@font-face { font-family: f; src: url("https://example.org/f"); } body { font-family: f; } </style>', "asks for https://example.org/f", EVERYWHERE),
    "a connection in advance": ("<style>", '<link rel="preconnect" href="https://example.org"><style>', "a link of the head leads elsewhere", EVERYWHERE),
    "a script that is not there": ("<style>", '<script src="gone.js"></script><style>', "404 for", EVERYWHERE),
    "an error in the console": ("<article>", '<script>console.error("oh")</script><article>', "the console shows: oh", EVERYWHERE),
    "a warning in the console": ("<article>", '<script>console.warn("oh")</script><article>', "the console shows: oh", EVERYWHERE),
    "a script that fails": ("<article>", "<script>gone()</script><article>", "a script failed: gone is not defined", EVERYWHERE),
    "no icon": ('<link rel="icon" href="data:,">', "", "the page has no icon", EVERYWHERE),
    "a wide table": ('<div class="table">', "<div>", "sticks out of the window: <table>", EVERYWHERE),
    "a wide table that is cut off": ('<div class="table">', '<div style="overflow: hidden">', "sticks out of the window: <table>", EVERYWHERE),
    "wide code": ("pre, .table", ".table", "sticks out of the window: <span.c1>", EVERYWHERE),
    "a wide equation": (", .math", "", "sticks out of the window: <mn>", EVERYWHERE),
    "a long word": ("Text of the page", "T" * 60, "sticks out of the window: <p>", NARROW),
    "a wide box": ("</article>", '</article><div style="width: 2000px; height: 1px"></div>', "the page is wider than the window", EVERYWHERE),
    "no layout for phones": ('<meta name="viewport" content="width=device-width">', "", "is laid out for 980 pixels", NARROW),
    "code below its prose": ("display: grid", "display: block", "code is not at the right of its prose", WIDE),
    "code at the left": (".code {", ".code { order: -1;", "code is not at the right of its prose", WIDE),
    "code beside prose on a phone": ("(min-width: 1000px)", "(min-width: 0)", "code is not below its prose", NARROW),
    "hidden code": (STYLE, ".code { visibility: hidden; } </style>", "is not visible in its row: <pre>", EVERYWHERE),
    "code without a box": (STYLE, ".code pre { display: none; } </style>", "is not visible in its row: <pre>", EVERYWHERE),
    "transparent code": (STYLE, ".code { opacity: 0; } </style>", "is not visible in its row: <pre>", EVERYWHERE),
    "code behind a bar": ("<article>", '<div style="position: fixed; inset: 0; z-index: 1; background: #fff"></div><article>', "is not visible in its row: <pre>", EVERYWHERE),
    "code outside of the window": (STYLE, ".code { position: relative; left: 3000px; } </style>", "is not visible in its row: <pre>", EVERYWHERE),
    "a row without prose": ("<p>The prose of the row.</p><p>The last paragraph.</p>", "", "a row lacks prose or code", EVERYWHERE),
    "a row without code": ("pre>", "div>", "a row lacks prose or code", EVERYWHERE),
    "code far from its paragraph": (".code { position: sticky; top: 0; }", ".prose p { margin-bottom: 1500px; }", "code is not in the window with its paragraph", WIDE),
    "code too wide for the prose": ("<p>The prose of the row.</p>", f"<pre>{'W' * 60}</pre>", "does not fit into the column of prose: <pre>", WIDE),
    "a picture in the prose": ("<p>The prose of the row.</p>", '<img src="picture.svg" alt="What can be seen.">', "does not fit into the column of prose: <img>", WIDE),
    "an empty equation": ("<mi>a</mi>", '<mi style="font-size: 0">a</mi>', "an equation is not drawn", EVERYWHERE),
    "an equation that is not understood": ("<mi>a</mi>", "<merror><mi>a</mi></merror>", "an equation is an error", EVERYWHERE),
    "no font for equations": ('"Latin Modern Math", "DejaVu Math TeX Gyre", math', "DejaVu Sans", "an index is on the line", EVERYWHERE),
    "an equation that is not aligned": (STYLE, "mtd { text-align: -webkit-left; } </style>", "the rows of an equation are not aligned", EVERYWHERE),
    "grey text": ('<p id="first">', '<p id="first" style="color: #808080">', "text is hard to read, 3.95 to 1", LIGHT),
    "transparent text": ('<p id="first">', '<p id="first" style="color: rgb(0 0 0 / 40%)">', "text is hard to read", EVERYWHERE),
    "faint text": ('<p id="first">', '<p id="first" style="opacity: 0.4">', "text is hard to read", EVERYWHERE),
    "comments like in the other theme": ('[data-theme="dark"] .c1', ".other .c1", "text is hard to read, 2.7", DARK),
    "a colour of another kind": ('<p id="first">', '<p id="first" style="color: oklch(0.4 0.1 20)">', "a colour that this test cannot read", EVERYWHERE),
    "a picture that is not there": (IMAGE, 'src="gone.svg"', "a picture is not shown: gone.svg", EVERYWHERE),
    "a picture without words": ('alt="What can be seen."', 'alt=""', "a picture has no text", EVERYWHERE),
    "a transparent picture": (IMAGE, 'src="transparent.svg"', "a picture has no ground of its own", EVERYWHERE),
    "an empty picture": (IMAGE, 'src="empty.svg"', "nothing can be read in a picture", EVERYWHERE),
}  # fmt: skip


@pytest.fixture(scope="module")
def small_site(tmp_path_factory, serve):
    """A folder with the pictures of the pages below, and its address."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "picture.svg").write_text(PICTURE)
    (folder / "transparent.svg").write_text(PICTURE.replace("#fff", "none"))
    (folder / "empty.svg").write_text(PICTURE.replace("M9 9h30v30H9z", ""))
    return folder, serve(folder)


def test_a_page_that_is_right_has_no_problems(windows, small_site):
    folder, address = small_site
    (folder / "right.html").write_text(RIGHT)
    assert in_all(windows, address, "right.html") == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_where_it_is(windows, small_site, fault):
    folder, address = small_site
    right, wrong, expected, where = FAULTS[fault]
    assert right in RIGHT
    page = folder / f"{fault.replace(' ', '_')}.html"
    page.write_text(RIGHT.replace(right, wrong))
    two = windows[0], windows[-1]
    found = in_all(two, address, page.name)
    named = [
        i
        for i, window in enumerate(two)
        if any(expected in problem for problem in found.get(str(window), []))
    ]
    assert named == where, found

"""Sphinx's configuration of the book. `make docs` builds it; tools/book/bookext.py does what is special about it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

project = "FlashSteps"
author = "The FlashSteps authors"
language = "en-GB"
extensions = ["myst_parser", "sphinx_copybutton", "tools.book.bookext"]
root_doc = "index"

myst_enable_extensions = ["dollarmath"]  # $…$ and $$ … $$, as on a forge; bookext.py makes MathML of it, so that no script is needed
html_math_renderer = "mathml"
myst_heading_anchors = 4  # [text](page.md#some-heading) works as it does on a forge
highlight_language = "none"

html_theme = "furo"
html_title = "FlashSteps"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_favicon = "_static/favicon.svg"  # without one, browsers ask for /favicon.ico
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

"""Tables made from committed results. A page asks for one with two comments, and what stands between them is generated:

    <!-- results: NAME [ARGUMENT …] -->
    <!-- /results -->

`@table("NAME")` registers the function that makes it. It gets the repository's root and the arguments, reads what it needs, and returns
Markdown. It raises TableError for arguments or files that it cannot serve. `@measured_table("NAME")` is the same for what ran on a device: the
function gets Results in place of the root, and a line below the table names the device. The last argument on=DEVICE chooses it.
"""

import inspect

from tools.measure.committed import ResultError as TableError
from tools.measure.committed import Results

TABLES = {}


def table(name):
    """Registers a function as the maker of the tables of that name."""

    def register(function):
        if name in TABLES:
            raise ValueError(f"two functions are registered for the table {name}")
        TABLES[name] = function
        return function

    return register


def measured_table(name):
    """The same for a table of what ran on a device: it gets Results in place of the root."""

    def register(function):
        function.measured = True
        return table(name)(function)

    return register


def ran_on(devices):
    """The line below a table."""
    return "*Simulated.*" if devices == ["sim"] else f"*Measured on {' and '.join(f'one {device.upper()}' for device in devices)}.*"


def make(root, name, arguments, tables=None):
    """The Markdown of one table."""
    tables = TABLES if tables is None else tables
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise TableError(f"no function is registered for the table “{name}” (there are: {known})")
    function, source, words = tables[name], root, arguments
    if getattr(function, "measured", False):
        asked = arguments[-1].removeprefix("on=") if arguments and arguments[-1].startswith("on=") else None
        source, words = Results(root, asked), arguments[:-1] if asked else arguments
    try:
        inspect.signature(function).bind(source, *words)
    except TypeError as error:
        raise TableError(f"the table {name} does not take the arguments {arguments}") from error
    text = function(source, *words).strip("\n")
    return f"{text}\n\n{ran_on(source.used)}" if source is not root and text.startswith("|") else text


def markdown(header, rows, align=""):
    """A Markdown table. `align`: one letter a column, l or r; numbers read best aligned right."""
    align = align.ljust(len(header), "l")
    rule = ["---:" if letter == "r" else "---" for letter in align]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in [header, rule, *rows])

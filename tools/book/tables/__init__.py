"""Tables made from committed results, by subject; registry.py says how a page asks for one."""

from tools.book.tables import (  # noqa: F401 (they register tables)
    cliffs,
    machine,
    model,
    mutants,
    peers,
    profiles,
    rungs,
    simulator,
    times,
)
from tools.book.tables.registry import TABLES, TableError, make, markdown, table

__all__ = ["TABLES", "TableError", "make", "markdown", "table"]

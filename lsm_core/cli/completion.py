"""Shell completion: verbs, flags and table names, without opening a table.

The shells' scripts are Typer's (`dredge --install-completion`). They call `dredge` with the words so far in the
environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

import typer

VARIABLE: Final = "_DREDGE_COMPLETE"
"""Environment variable that the completion scripts of the shells set."""
_MOST: Final = 500
_HARMLESS: Final = re.compile(r"[\w-]+")
"""Pattern of names that completion may offer. The shell evaluates names as code, so no name with other characters is
offered.
"""


def read_verb(environment: Mapping[str, str]) -> str | None:
    """Return the verb of the command line under completion, or None if the verb is not complete yet."""
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is open
        words = line.split()
    at = environment.get("COMP_CWORD", "")
    done = int(at) > 1 if at.isdigit() else len(words) > 2 or (len(words) == 2 and line.endswith(" "))
    return words[1] if done and len(words) > 1 else None


def table_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return up to 500 table names that begin with a text, from the command's own warehouse.

    The list is empty if the warehouse cannot be listed.
    """
    warehouse = str(ctx.params.get("warehouse") or os.environ.get("DREDGE_WAREHOUSE", ""))
    if not warehouse:
        return []
    names: list[str] = []
    try:
        for database, table in _list_names(warehouse, list(ctx.params.get("catalog_option") or ()), incomplete):
            name = f"{database}.{table}"
            if name.startswith(incomplete) and _HARMLESS.fullmatch(database) and _HARMLESS.fullmatch(table):
                names.append(name)
            if len(names) >= _MOST:
                break
    except Exception:  # noqa: BLE001  (a shell cannot show errors; the verb itself does)
        return names
    return names


def _list_names(warehouse: str, options: list[str], incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield (database, table) for tables whose name may begin with ``incomplete``.

    A local folder is listed without the engine, whose import alone takes longer.

    Args:
        warehouse: address of the warehouse.
        options: catalog options of the command.
        incomplete: beginning of a table name.
    """
    database, dot, _ = incomplete.partition(".")
    path = warehouse.removeprefix("file://")
    if "://" not in path and not options and not os.environ.get("DREDGE_CATALOG_OPTIONS", "").strip():
        folders = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(".db"))
        for folder in folders:
            name = folder.removesuffix(".db")
            if name == database if dot else name.startswith(database):
                tables = sorted(entry.name for entry in os.scandir(os.path.join(path, folder)))
                yield from ((name, table) for table in tables if os.path.isdir(f"{path}/{folder}/{table}/schema"))
        return
    from lsm_core.options import parse_catalog_options
    from lsm_core.table import Catalog

    catalog_options = parse_catalog_options(os.environ.get("DREDGE_CATALOG_OPTIONS", ""), "DREDGE_CATALOG_OPTIONS")
    catalog_options |= dict(option.split("=", 1) for option in options if "=" in option)
    catalog = Catalog(warehouse, catalog_options)
    for name in catalog.list_databases():
        if name == database if dot else name.startswith(database):
            yield from ((name, table) for table in catalog.list_tables(name))

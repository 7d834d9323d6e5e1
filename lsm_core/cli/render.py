"""Output on stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import typer

_WIDE = 2_000
_UNSEEN = {
    code: repr(chr(code))[1:-1] if not chr(code).isprintable() else f"\\u{code:04x}"
    for code in (
        *range(32),
        *range(127, 160),
        *(0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, 0xFEFF),
        *range(0x2028, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFFF9, 0xFFFC),
        *range(0xE0000, 0xE0080),
    )
}
"""Escape sequence by character, for control, bidi and invisible characters."""
_UNSEEN_IN_LINES = {code: text for code, text in _UNSEEN.items() if chr(code) != "\n"}
_UNSEEN_IN_JSON = re.compile("[" + "".join(re.escape(chr(code)) for code in _UNSEEN if code >= 127) + "]")


Columns: TypeAlias = Mapping[str, str | Callable[[Mapping[str, Any]], Any]]
"""Columns of a table by title: each value is a key of the document, or a function that returns the cell."""


def print_json(value: Any) -> None:
    """Print one JSON document; values without a JSON form (dates, decimals, NaN, infinity) are printed as text."""
    plain = json.loads(json.dumps(value, default=str), parse_constant=str)
    print_json_text(json.dumps(plain, indent=2, ensure_ascii=False))


def print_json_text(text: str) -> None:
    """Print JSON text; characters that would control the terminal are escaped as JSON, so the values stay the same."""
    typer.echo(_writable(_UNSEEN_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text)))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table with numbers aligned to the right. File names and reasons are never shortened."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
    kept = [["-" if value is None else value for value in row] for row in rows]
    for index, column in enumerate(columns):
        cells = [row[index] for row in kept if row[index] != "-"]
        numeric = bool(cells) and all(isinstance(cell, (int, float)) for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in kept:
        # Text, not str: names may hold square brackets, which rich would read as markup.
        table.add_row(*(Text(f"{value:,}" if isinstance(value, int) else visible(str(value))) for value in row))
    # Piped output is for grep: do not wrap it at 80 columns.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(table)


def print_documents(title: str, documents: Sequence[Mapping[str, Any]], columns: Columns, *, as_json: bool) -> None:
    """Print mappings as JSON for programs, or as a table for people.

    If there are no mappings, people get one line that says so.

    Args:
        title: title of the table.
        documents: mappings of field to value, one for each row of the table.
        columns: by title of a column, the field that it shows, or a function from a mapping to the cell.
        as_json: whether to print JSON.
    """
    if as_json:
        print_json(documents)
        return
    if not documents:
        say(f"{title}: none")
        return
    cells = columns.values()
    rows = [[document[cell] if isinstance(cell, str) else cell(document) for cell in cells] for document in documents]
    print_table(title, list(columns), rows)


def visible(text: str) -> str:
    """Return text on one line with control, bidi and invisible characters escaped, because names are not trusted."""
    return _writable(text.translate(_UNSEEN))


def visible_lines(text: str) -> str:
    """Return text with control, bidi and invisible characters escaped, but with its line breaks."""
    return _writable(text.translate(_UNSEEN_IN_LINES))


def _writable(text: str) -> str:
    """Return text with lone surrogates escaped as in JSON; folder names that are not UTF-8 contain them."""
    return text.encode("utf-8", "backslashreplace").decode()


def duration_text(span_ms: int) -> str:
    """Return a duration in its largest unit: "36 d", "2.5 h", "0 s"."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if span_ms >= size:
            return f"{round(span_ms / size, 1):g} {unit}"
    return f"{round(span_ms / 1000, 1):g} s"


def say(text: str) -> None:
    """Print text and keep its line breaks; control, bidi and invisible characters are escaped."""
    typer.echo(visible_lines(text))

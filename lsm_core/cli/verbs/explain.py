"""The verb that explains where the values of one row come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, TableArgument, Warehouse, open_table
from lsm_core.clock import utc_text
from lsm_core.errors import ColumnNotFound, InvalidFilter

if TYPE_CHECKING:
    from lsm_core.maintenance import RowExplanation
    from lsm_core.table import Table

Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="id=7 or dt=2024-01-01,id=7; the value alone for one column. null in a nullable key column; "
        '"null" in quotes is a text.',
        show_default=False,
    ),
]
SnapshotOption = Annotated[
    int | None, typer.Option("--snapshot", help="Snapshot to explain (default: the newest).", show_default=False)
]
ColumnOption = Annotated[
    str | None, typer.Option("--column", help="What every version did for this column.", show_default=False)
]
_LONGEST = 60
_NULL: Final = "null"


def explain(
    warehouse: Warehouse,
    table: TableArgument,
    key: Key,
    column: ColumnOption = None,
    snapshot: SnapshotOption = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Explain one row: its versions, newest first, and the version that supplied each column, with the reason."""
    opened = open_table(warehouse, table, clock)
    story = _explain_row(opened, key, snapshot)
    if column is not None and column not in opened.schema.field_names:
        raise InvalidFilter(
            f"table {opened.name} has no column '{column}'; it has {', '.join(opened.schema.field_names)}"
        )
    if as_json:
        document: Any = story.to_object()
        if column is not None:
            document = next((origin for origin in document["columns"] if origin["column"] == column), None)
        print_json(document)
        return
    say(f"{story.table} {_text(story.key)}: {story.summary}")
    if not story.exists and "=" in key and list(story.key.values()) == [key]:
        say(
            f"there is no column '{key.partition('=')[0].strip()}', so '{key}' was taken for the value of "
            f"{next(iter(story.key))}"
        )
    if story.versions:
        columns = ["version", "kind", "level", "sequence", "file", "row", "written", "values", "remarks"]
        lines = []
        for v in story.versions:
            values = _text({name: value for name, value in v.values.items() if name not in story.key})
            remarks = "; ".join(text for text in (v.hidden and f"not read: {v.hidden}", v.note) if text)
            written = utc_text(v.written_ms)
            lines.append([v.number, v.kind, v.level, v.sequence, v.file, v.position, written, values, remarks])
        print_table("", columns, lines)
    if story.answer is None and story.versions:
        say("a read gives no row")
    if column is not None:
        for origin in story.columns:
            if origin.column == column:
                say(f"{column} = {_short(origin.value)}: {origin.why}")
                print_table("", ["version", "effect"], [[number, role] for number, role in origin.roles.items()])
    elif story.columns:
        rows = [[c.column, _short(c.value), ", ".join(map(str, c.versions)) or None, c.why] for c in story.columns]
        print_table("", ["column", "value", "from version", "why"], rows)


def _explain_row(table: Table, key: str, snapshot: int | None) -> RowExplanation:
    """Return the history of a row.

    Raises:
        InvalidFilter: the key is not valid. If the table has one key column, the message shows both accepted forms.
    """
    try:
        return table.explain_row(key_of(table, key), snapshot)
    except InvalidFilter as error:
        if "=" in key or len(table.primary_keys) != 1 or isinstance(error, ColumnNotFound):
            raise
        raise InvalidFilter(f"{error}; KEY is {table.primary_keys[0]}=VALUE, or the value alone") from error


def key_of(table: Table, text: str) -> dict[str, Any]:
    """Parse the key of the command line into texts by column.

    In a nullable key column, null means null, and "null" in quotes is the text.

    Raises:
        InvalidFilter: the text is no key of the table.
    """
    names = table.primary_keys
    column, sign, _ = text.partition("=")
    if len(names) == 1 and column.strip() not in table.schema.field_names:
        if sign and table.schema.field(names[0]).type.root.value not in {"CHAR", "VARCHAR"}:
            raise InvalidFilter(f"table {table.name} has no column '{column.strip()}'; its key is {names[0]}")
        return {names[0]: _key_value(table, names[0], text)}  # the value alone, which may hold "=" itself
    values_by_column: dict[str, Any] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not sign:
            raise InvalidFilter(f"table {table.name}: '{text}' is no key; write {','.join(f'{n}=...' for n in names)}")
        values_by_column[name.strip()] = _key_value(table, name.strip(), value.strip())
    return values_by_column


def _key_value(table: Table, column: str, text: str) -> str | None:
    """Return the value of a key column, in the form in which values are shown.

    Blank texts, and "null" as a text of a nullable column, are in quotes.
    """
    quoted = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else None
    nullable = table.schema.has_field(column) and table.schema.field(column).type.nullable
    if nullable and text.lower() == _NULL:
        return None
    return quoted if quoted is not None and (not quoted.strip() or (nullable and quoted.lower() == _NULL)) else text


def _text(values: Any) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    text = "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)
    if isinstance(value, str) and (not value.strip() or value == "null"):
        return f'"{value}"'  # what would pass for nothing, or for null
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

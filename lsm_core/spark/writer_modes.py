"""Settings of `df.write` that Spark does not pass to a Python format.

These are the modes `errorifexists` and `ignore`, and `partitionBy`. Spark refuses them before it calls the format.
`register` therefore makes `DataFrameWriter.save` send them as options of the format (`save-mode`, `partition-by`),
which may also be set directly. Writers of other formats are not changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.errors import InvalidOption, TableExists, TableNotFound, UnsupportedFeature
from lsm_core.json_text import parse_json
from lsm_core.metadata.store import TableStore
from lsm_core.options import find_key
from lsm_core.spark.spark_columns import arrow_of, names_in_table
from lsm_core.spark.spark_tasks import IN_CATALOG
from lsm_core.table import Catalog, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SAVE_MODE: Final = "save-mode"
PARTITION_BY: Final = "partition-by"
_ORIGINAL_CALLS: Final = "_dredge_asked"
_CREATED: Final = ("primary-key",)
"""Options of a created table, in addition to those of every table."""


class SaveMode(StrEnum):
    """Spark's save modes. Spark passes only APPEND and OVERWRITE to a Python format."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "errorifexists"


_NAMES: Final = {**{mode.value: mode for mode in SaveMode}, "error": SaveMode.ERROR, "default": SaveMode.ERROR}


def save_mode(options: Mapping[str, str]) -> SaveMode | None:
    """Return the mode of the option `save-mode`, or None if Spark's own mode applies.

    Args:
        options: The options of a write, keys in lower case.

    Returns:
        The mode, or None.

    Raises:
        InvalidOption: The option names no mode.
    """
    text = options.get(SAVE_MODE)
    if text is None:
        return None
    mode = _NAMES.get(text.strip().lower())
    if mode is None:
        raise InvalidOption(SAVE_MODE, text, ", ".join(_NAMES))
    return None if mode in (SaveMode.APPEND, SaveMode.OVERWRITE) else mode


def partition_columns(options: Mapping[str, str]) -> list[str] | None:
    """Return the columns of the option `partition-by` ("a,b", or a JSON list), or None without it.

    Raises InvalidOption.
    """
    text = options.get(PARTITION_BY)
    if text is None:
        return None
    if not text.startswith("["):
        return [name.strip() for name in text.split(",")]
    try:
        names = parse_json(text)
    except ValueError as error:
        raise InvalidOption(PARTITION_BY, text, "names with commas between, or a JSON list of names") from error
    return [str(name) for name in names]


def require_partitions(store: TableStore, columns: Sequence[str] | None) -> None:
    """Refuse a `partitionBy` that does not name the table's partition columns.

    Args:
        store: The table.
        columns: The columns that the write named; None if it named none.

    Raises:
        InvalidOption: The columns differ; the error names the table's partition columns.
    """
    keys = list(store.schema.partition_keys)
    if columns is not None and names_in_table(columns, store.schema) != keys:
        own = (
            f"the table's partition columns: {', '.join(keys)}"
            if keys
            else "no value, because the table has no partitions"
        )
        raise InvalidOption("partitionBy", ", ".join(columns), f"{own} (or leave it out)", store.name)


def create_unless_exists(
    catalog: Catalog, name: str, columns: StructType, options: Mapping[str, str], mode: SaveMode
) -> bool:
    """Create the table of a write with the mode `errorifexists` or `ignore` unless it exists.

    Args:
        catalog: The catalog of the table.
        name: The table's name.
        columns: The columns of the rows.
        options: The write's options: `primary-key` ("a,b"), `partition-by`, and options of the table (`bucket`,
            `merge-engine` ...).
        mode: Save mode of the write.

    Returns:
        Whether the table was created; False if it exists and the mode is `ignore`.

    Raises:
        TableExists: The table exists, and the mode is `errorifexists`.
        DredgeError: The table cannot be created with these columns and options.
    """
    with suppress(TableNotFound):
        catalog.table(name)
        if mode is SaveMode.IGNORE:
            return False
        raise TableExists(
            f"table {name} is there, and the mode is errorifexists, which is Spark's default: nothing was written; "
            "add rows with mode('append'), replace them with mode('overwrite')"
        )
    keys = [key.strip() for key in options.get("primary-key", "").split(",") if key.strip()]
    partitions = partition_columns(options) or []
    own = {key: text for key, text in options.items() if is_table_option(key) and key not in _CREATED}
    fields = arrow_of(columns, name)
    fields = pa.schema([field.with_nullable(field.name not in keys) for field in fields])
    catalog.create_table(name, Schema(fields, primary_keys=keys, partition_keys=partitions, options=own))
    return True


def is_table_option(key: str) -> bool:
    """Return whether a write may set the option ``key`` for a table that the write creates."""
    return key in _CREATED or find_key(key) is not None


# -- Spark's writers ---------------------------------------------------------------------------------------------------


def hand_on_modes(spark: SparkSession, name: str) -> None:
    """Make `df.write` send its mode and `partitionBy` as options if its format is ``name``.

    This changes the writers of all sessions of the same kind (classic or Connect). Their `saveAsTable` raises
    UnsupportedFeature for this format.

    Args:
        spark: The session.
        name: The name of the format.
    """
    kind: Any = type(spark.range(0).write)
    if getattr(kind, _ORIGINAL_CALLS, False):
        return
    setattr(kind, _ORIGINAL_CALLS, True)
    by_mode, by_format, by_columns, save = kind.mode, kind.format, kind.partitionBy, kind.save

    def noting(method: Callable[..., Any], key: str) -> Callable[..., Any]:
        """Wrap a method of Spark's writer so that each call also stores its arguments in the writer, under ``key``."""

        @wraps(method)
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            self.__dict__.setdefault("_dredge", {})[key] = arguments or tuple(named.values())
            return method(self, *arguments, **named)

        return call

    @wraps(save)
    def saved(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  (Spark's name)
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: N803  (Spark's name)
        **options: Any,
    ) -> None:
        calls = self.__dict__.get("_dredge", {})
        (source,) = (format,) if format is not None else calls.get("format", (None,))
        if str(source).lower() != name:
            save(self, path, format, mode, partitionBy, **options)
            return
        (chosen,) = (mode,) if mode is not None else calls.get("mode", (None,))
        chosen_mode = _NAMES.get(str(chosen or "error").lower())
        if chosen_mode in (SaveMode.IGNORE, SaveMode.ERROR):
            by_mode(self, "append")
            mode = None
            self.option(SAVE_MODE, chosen_mode.value)
        columns = partitionBy if partitionBy is not None else calls.get("columns", ())
        columns = [columns] if isinstance(columns, str) else list(columns)
        if len(columns) == 1 and isinstance(columns[0], (list, tuple)):
            columns = list(columns[0])
        if columns:
            by_columns(self)
            self.option(PARTITION_BY, json.dumps(columns))
        save(self, path, format, mode, None, **options)

    in_catalog = kind.saveAsTable

    @wraps(in_catalog)
    def as_table(self: Any, table: str, format: str | None = None, *arguments: Any, **named: Any) -> None:  # noqa: A002
        source = format if format is not None else self.__dict__.get("_dredge", {}).get("format", (None,))[0]
        if str(source).lower() == name:
            raise UnsupportedFeature(IN_CATALOG, table)
        in_catalog(self, table, format, *arguments, **named)

    kind.saveAsTable = as_table
    kind.mode, kind.format = noting(by_mode, "mode"), noting(by_format, "format")
    kind.partitionBy, kind.save = noting(by_columns, "columns"), saved

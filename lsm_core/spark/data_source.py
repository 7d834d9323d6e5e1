"""Spark data source `dredge`: `spark.read.format("dredge")`, `df.write.format("dredge")`, and SQL views over both.

The source never accepts filters that Spark pushes down. Spark (4.1 to 4.3) keeps the reader of the first filtered query
of a DataFrame and reuses this reader for later queries of the DataFrame. `df.where("k = 2").count()` followed by
`df.count()` would therefore count one key. The option `filter` prunes files and rows, and has the same effect in every
query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from lsm_core.errors import DredgeError, InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.json_text import parse_json
from lsm_core.metadata.manifests import COLUMNS as ROW_TRACKING
from lsm_core.metadata.manifests import tracks_rows, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.options import READING, find_key, is_catalog_option
from lsm_core.read import resolve
from lsm_core.read.table_versions import moment_ms, startup
from lsm_core.spark.driver_session import leave_note
from lsm_core.spark.overwrite_scope import DYNAMIC_OVERWRITE, REPLACE_WHERE, replace_condition
from lsm_core.spark.spark_columns import fields_of, require_schema, spark_ddl
from lsm_core.spark.spark_tasks import IN_CATALOG, raises_typed_errors, store_of, use_this_python
from lsm_core.spark.writer_modes import (
    PARTITION_BY,
    SAVE_MODE,
    create_unless_exists,
    hand_on_modes,
    is_table_option,
    partition_columns,
    require_partitions,
    save_mode,
)
from lsm_core.table import Catalog, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from lsm_core.format.schema import DataField
    from lsm_core.spark.spark_stream_read import StreamChoice
    from lsm_core.table.system.reader import ReadOnlyTable

FORMAT: Final = "dredge"
_PLACE: Final = ("warehouse", "table")
PUSH_FILTERS: Final = "push-filters"
"""Option of earlier versions that pushed Spark's conditions down; it is refused (see the docstring of the module)."""
_NO_PUSHED_FILTERS: Final = (
    "the option 'push-filters', with which frames used twice gave wrong answers: use the option 'filter', "
    "lsm_core.spark.read_table(..., filter=...) or `dredge sql`, which prune files by a filter too"
)
_SHORT: Final = {"tag": "scan.tag-name", "timestamp": "scan.timestamp", "versionasof": "scan.version"}
"""Paimon's reading options by their short names; a timestamp that consists of digits is epoch ms."""
TIMESTAMP_AS_OF: Final = "timestampasof"
"""Time in the format of SQL's `TIMESTAMP AS OF`; Spark passes keys in lower case."""
PATH: Final = "path"
"""Folder of a table, `<warehouse>/<database>.db/<table>`, for `load(path)` and `save(path)`.

The option replaces the options `warehouse` and `table`.
"""
READ_OPTIONS: Final = (*_PLACE, "columns", "snapshot-id", *_SHORT, TIMESTAMP_AS_OF, "branch", "filter", "limit")
TABLE_READ_OPTIONS: Final = READING
"""Prefixes of table options that a read may set (`scan.tag-name`, `incremental-between-scan-mode` ...)."""
MERGE_ON_READ: Final = "deletion-vectors.merge-on-read"
"""Table option that a read may set together with any option that chooses a version."""
PARTITION_OVERWRITE_MODE: Final = "partitionoverwritemode"
"""Spark's option for one write, with priority over the session's `spark.sql.sources.partitionOverwriteMode`.

Spark passes keys in lower case.
"""
COMMIT_OPTIONS: Final = ("commit-user", "commit-identifier")
"""Options with the user and number of a commit that must happen once; see `write_table`."""
ROW_KIND_COLUMN: Final = "row-kind-column"
"""Option with the name of the DataFrame's column that holds the row kinds."""
MERGE_SCHEMA: Final = ("write.merge-schema", "write.merge-schema.explicit-cast")
"""Paimon's options for the schema merging of a write.

The first option adds columns that only the DataFrame has, and widens types. The second option also merges types if
values may be lost.
"""
_SAVE_ADVICE: Final = "leave it out, or set the option 'write.merge-schema' to true, which adds it to the table"
_STREAM_ADVICE: Final = (
    "name the columns to follow in the option 'columns' of readStream, or set the option 'write.merge-schema' of "
    "writeStream to true, which adds it to the table; started again from its checkpoint, the query goes on"
)
WRITE_OPTIONS: Final = (
    *_PLACE,
    PARTITION_OVERWRITE_MODE,
    DYNAMIC_OVERWRITE,
    *COMMIT_OPTIONS,
    ROW_KIND_COLUMN,
    *MERGE_SCHEMA,
    REPLACE_WHERE.lower(),
    SAVE_MODE,
    PARTITION_BY,
)

_OF_STREAMS: Final = ("read.stream.", "read.changelog", "consumer", "streaming")
"""Prefixes of the options that apply to streams only."""


def register(spark: SparkSession) -> None:
    """Register the format `dredge` in a session, whose workers must be able to import `lsm_core`.

    A Spark job checks the workers only if the workers' Python differs from this process's Python or is unknown.

    Raises:
        SparkFailed: The workers lack `lsm_core`; the error names their Python and the missing package.
    """
    if not use_this_python(spark):
        from lsm_core.spark.table_reader import require_workers

        require_workers(spark)
    leave_note(spark)
    spark.dataSource.register(TableSource)
    hand_on_modes(spark, FORMAT)


def table_to_read(options: Mapping[str, str]) -> Table | ReadOnlyTable:
    """Open the table, branch or system table that a reader's options name, with its reading options applied.

    Args:
        options: Options of the data source, with keys in lower case.

    Raises:
        InvalidOption: A key is not an option of reads, or two options choose a version.
        TableNotFound: The warehouse does not have the table.
        UnsupportedFeature: The options are those of a table in Spark's own catalog, or contain `push-filters`.
    """
    reading = {key: text for key, text in options.items() if key.startswith(TABLE_READ_OPTIONS) and find_key(key)}
    for short, key in _SHORT.items():
        if options.get(short):
            digits = short == "timestamp" and options[short].isdigit()
            reading["scan.timestamp-millis" if digits else key] = options[short]
    if options.get(TIMESTAMP_AS_OF):
        if options.get("timestamp"):
            raise InvalidOption("timestampAsOf", options[TIMESTAMP_AS_OF], "nothing beside timestamp")
        moment = moment_ms(options.get("table", ""), "timestampAsOf", options[TIMESTAMP_AS_OF])
        reading["scan.timestamp-millis"] = str(moment)
    merging = {MERGE_ON_READ: options[MERGE_ON_READ]} if MERGE_ON_READ in options else {}
    accepted = f"{', '.join(READ_OPTIONS)}, {MERGE_ON_READ}, and the table's reading options (scan.*)"
    _check_keys(options, (*READ_OPTIONS, *reading, *merging), accepted)
    name, branch = options["table"], options.get("branch")
    if branch:
        if "$" in name:
            raise InvalidOption("branch", branch, f"the table alone beside it, not {name}")
        name = f"{name}$branch_{branch}"
    if options.get("snapshot-id") and reading:
        rival = next(iter(reading))
        raise InvalidOption(rival, reading[rival], "nothing beside snapshot-id: either of them chooses what is read")
    table = catalog_of(options).table(name)
    return table.copy({**reading, **merging}) if reading or merging else table


def table_to_write(options: Mapping[str, str]) -> TableStore:
    """Open the table or branch that a writer's options name, with `dynamic-partition-overwrite` applied if it is set.

    Args:
        options: Options of the data source, with keys in lower case.

    Raises:
        InvalidOption: A key is not an option of writes.
        TableNotFound: The warehouse does not have the table.
        UnsupportedFeature: The table is a system table.
    """
    reading = next((key for key in options if key in READ_OPTIONS[2:] or key.startswith(TABLE_READ_OPTIONS)), None)
    if reading is not None:
        raise InvalidOption(reading, options[reading], "nothing where rows are written: it is for reading")
    _check_keys(options, WRITE_OPTIONS, ", ".join(WRITE_OPTIONS))
    store = store_of(catalog_of(options).table(options["table"]))
    chosen = options.get(DYNAMIC_OVERWRITE)
    return store if chosen is None else store.copy({DYNAMIC_OVERWRITE: chosen})


def resolve_path(options: dict[str, str]) -> dict[str, str]:
    """Return options of the data source with `warehouse` and `table` in place of a table's `path`.

    Args:
        options: The options, keys in lower case.

    Returns:
        The options with the replacement; the unchanged options if `path` is not set.

    Raises:
        InvalidOption: The path is not the folder of a table in a warehouse, or `warehouse` and `table` name a table
            that is not at this path.
    """
    path = options.get(PATH)
    if path is None:
        return options
    shorter = path.strip().removeprefix("file://").rstrip("/")
    shorter = shorter.removeprefix("file:")
    folder, _, table = shorter.rpartition("/")
    warehouse, _, database = folder.rpartition("/")
    if not table or not database.removesuffix(".db") or not database.endswith(".db") or not warehouse:
        accepted = (
            "the folder of a table, <warehouse>/<database>.db/<table>, "
            "or the options 'warehouse' and 'table' in its place"
        )
        raise InvalidOption(PATH, path, accepted)
    own = {"warehouse": warehouse, "table": f"{database.removesuffix('.db')}.{table}"}
    for key, text in own.items():
        own_value = options.get(key, text)
        if own_value.removeprefix("file://").rstrip("/") != text:
            raise InvalidOption(
                key, own_value, f"nothing beside path, which names {own['table']} of {warehouse}", own["table"]
            )
    return {**{key: text for key, text in options.items() if key != PATH}, **own}


def catalog_of(options: Mapping[str, str]) -> Catalog:
    """Return the catalog that `warehouse` and the catalog options name (`metastore`, `uri`, `lock.enabled` ...)."""
    return Catalog(options["warehouse"], {key: text for key, text in options.items() if is_catalog_option(key)})


def _check_keys(options: Mapping[str, str], known: Collection[str], accepted: str) -> None:
    if not options or any(key.startswith("option.") for key in options):
        raise UnsupportedFeature(IN_CATALOG)
    if PUSH_FILTERS in options:
        raise UnsupportedFeature(_NO_PUSHED_FILTERS, options.get("table", ""))
    for key in options:
        if key not in known and not is_catalog_option(key):
            raise InvalidOption(key, options[key], f"options of the data source: {accepted}, and those of a catalog")
    for key in _PLACE:
        if not options.get(key):
            raise InvalidOption(key, options.get(key), "a data source needs the options 'warehouse' and 'table'")


def _switch(options: Mapping[str, str], key: str) -> bool:
    text = options.get(key, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(key, options[key], "true or false")
    return text == "true"


class TableSource(DataSource):
    """Spark data source of a Paimon table, branch or system table, with `READ_OPTIONS` and `WRITE_OPTIONS`.

    The options `warehouse` (path) and `table` ("db.name", "db.name$branch_dev", "db.name$files") name the table.
    Reads also accept:

    - the table's own reading options (`TABLE_READ_OPTIONS`)
    - `columns`: "a,b", default all; tables with row tracking also offer `_ROW_ID` and `_SEQUENCE_NUMBER`
    - `snapshot-id`: default the latest when the DataFrame is first used; the DataFrame keeps this snapshot
    - `filter`: SQL text ("k > 3"), JSON conditions [["k", ">", 3], ["s", "in", ["a"]]] joined by AND, or a list of such
      lists joined by OR
    """

    @raises_typed_errors
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(resolve_path({key.lower(): text for key, text in options.items()}))

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    @raises_typed_errors
    def schema(self) -> str:
        """Return the chosen columns as Spark DDL, with the types of the snapshot's schema.

        Raises:
            TableNotFound: The warehouse does not have the table.
            ColumnNotFound: The table does not have a column.
            InvalidOption: An option is unknown or invalid.
            SnapshotNotFound: The snapshot does not exist or has expired.
            UnsupportedFeature: The options are those of a table in Spark's own catalog.
        """
        if any(key.startswith(_OF_STREAMS) for key in self.options):
            return self._stream().ddl
        table = table_to_read(self.options)
        try:
            return spark_ddl(self._fields(table), table.name)
        except SnapshotNotFound:
            if not isinstance(table, Table) or _snapshot_id(self.options) is not None:
                raise
            # a stream's start may have expired since it began; a batch raises this error when it is used
            return self._stream().ddl

    def _stream(self) -> StreamChoice:
        """Return the table, columns, filter and row kind setting of a stream.

        The table has the schema of the stream's first snapshot, or the current schema if this snapshot has expired.

        Raises TableNotFound, InvalidOption, UnsupportedFeature for a system table or a Spark before 4.2.
        """
        name = self.options.get("table") or ""
        if find_spec("pyspark.sql.streaming.datasource") is None:
            raise UnsupportedFeature("readStream before Spark 4.2", name)
        from lsm_core.spark.spark_stream_read import OPTIONS, StreamChoice

        own = {key: text for key, text in self.options.items() if key.startswith(_OF_STREAMS)}
        unknown = next((key for key in own if key not in OPTIONS and not find_key(key)), None)
        if unknown is not None:
            raise InvalidOption(unknown, own[unknown], f"options of streams: {', '.join(OPTIONS)}", name)
        reading = {key: text for key, text in self.options.items() if key not in own}
        refused_option = next(
            (key for key in ("snapshot-id", "limit", "versionasof", TIMESTAMP_AS_OF) if reading.get(key)), None
        )
        if refused_option is not None:
            raise InvalidOption(
                refused_option, reading[refused_option], "no value in a stream; scan.snapshot-id sets its start", name
            )
        table = table_to_read(reading)
        if not isinstance(table, Table):
            raise UnsupportedFeature("readStream of a system table", table.name)
        store = table.store.copy({key: text for key, text in own.items() if key not in OPTIONS})
        with suppress(SnapshotNotFound, UnsupportedFeature):
            store = resolve(store).store
        return StreamChoice.of(store, _columns(reading), _filter(reading), own)

    def _fields(self, table: Table | ReadOnlyTable) -> tuple[DataField, ...]:
        """Return the chosen columns of ``table``, with the types of the snapshot's schema."""
        snapshot_id = _snapshot_id(self.options)
        if not isinstance(table, Table):
            return fields_of(table.schema_at(snapshot_id), _columns(self.options), table.name)
        store, columns, _ = _columns_to_read(table.store, self.options)
        return fields_of(store.schema, columns, table.name)

    @raises_typed_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of this table.

        Spark calls this method when a DataFrame is first used; a data source cannot check a user's schema earlier.

        Args:
            schema: Schema of the DataFrame, which a user may have set by `.schema()`.

        Raises:
            InvalidOption: The schema is not the schema of the table.
        """
        table = table_to_read(self.options)
        require_schema(schema, self._fields(table), table.name)
        from lsm_core.spark.table_reader import SystemTableReader, TableReader

        predicate, version = _filter(self.options), _snapshot_id(self.options)
        if not isinstance(table, Table):
            return SystemTableReader(table, _columns(self.options), predicate, version)
        limit = _limit(self.options)
        store, columns, tracked = _columns_to_read(table.store, self.options)
        return TableReader(store, columns, predicate, snapshot_id=version, limit=limit, tracked=tracked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of this table's changes.

        Spark would report an error raised here as its own bug. Errors of `StreamReader`, and those of :meth:`reader`
        about the schema, are therefore raised by the first call to the reader.

        Args:
            schema: Schema of the stream, which a user may have set by `.schema()`.
        """
        try:
            choice = self._stream()
            from lsm_core.spark.spark_stream_read import StreamReader

            choice.require(schema)
            return StreamReader(choice, self.options)
        except DredgeError as error:
            return RefusedStream(error)

    @raises_typed_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        """Return the writer that commits each epoch (micro-batch) of a streaming query once.

        Spark calls this method twice per epoch: for the tasks and for the commit. With `write.merge-schema`, only the
        first call changes the schema.

        Args:
            schema: Schema of the stream.
            overwrite: Whether each epoch replaces the whole table.

        Raises:
            InvalidOption: An option is invalid, or only batches accept it.
            InvalidSchema: Types cannot be merged.
        """
        from lsm_core.spark.spark_stream_write import OF_SPARK, OPTIONS, StreamWriter

        store = table_to_write({key: text for key, text in self.options.items() if key not in (*OPTIONS, *OF_SPARK)})
        of_batches = (
            *COMMIT_OPTIONS,
            ROW_KIND_COLUMN,
            PARTITION_OVERWRITE_MODE,
            DYNAMIC_OVERWRITE,
            REPLACE_WHERE.lower(),
        )
        refused_option = next((key for key in of_batches if key in self.options), None)
        if refused_option is not None:
            streams = ", ".join((*OPTIONS, *MERGE_SCHEMA))
            accepted = f"no value in a stream, which takes {streams} and a column _row_kind"
            raise InvalidOption(refused_option, self.options[refused_option], accepted, store.name)
        store, _ = self._merged(store, schema, _STREAM_ADVICE)
        return StreamWriter(store, schema.names, overwrite, self.options)

    @raises_typed_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of this table or branch, after a check of the frame's schema and the options.

        With the option `save-mode` a missing table is created first. If the table exists, `errorifexists` raises
        TableExists, and the writer for `ignore` writes nothing.

        Args:
            schema: Schema of the frame.
            overwrite: Whether the commit replaces rows: all rows, the written partitions, or those that `replaceWhere`
                chooses.

        Raises:
            InvalidOption: An option is invalid.
            InvalidSchema: Types of the frame cannot be merged into the table.
            ColumnNotFound: The table or the frame lacks a column.
            TableExists: See above.
        """
        from lsm_core.spark.spark_write import numbered_commit
        from lsm_core.spark.table_writer import NoWriter, TableWriter

        options = {key: text for key, text in self.options.items() if key not in (SAVE_MODE, PARTITION_BY)}
        chosen_mode = save_mode(self.options)
        if chosen_mode is not None:
            if overwrite:
                raise InvalidOption(
                    SAVE_MODE, chosen_mode.value, "mode('append') of Spark beside it", options.get("table", "")
                )
            own = {key for key in options if is_table_option(key) and key not in WRITE_OPTIONS}
            options = {key: text for key, text in options.items() if key not in own}
            _check_keys(options, WRITE_OPTIONS, ", ".join(WRITE_OPTIONS))
            if not create_unless_exists(catalog_of(options), options["table"], schema, self.options, chosen_mode):
                return NoWriter()
        store = table_to_write(options)
        require_partitions(store, partition_columns(self.options))
        numbered = numbered_commit(store, *(self.options.get(key) for key in COMMIT_OPTIONS))
        store, kinds = self._merged(store, schema)
        where = self.options.get(REPLACE_WHERE.lower())
        if where is not None:
            replace_condition(store, where)
            if not overwrite:
                raise InvalidOption(
                    REPLACE_WHERE, where, "mode('overwrite'): nothing is replaced by appending", store.name
                )
            mode = next((key for key in (PARTITION_OVERWRITE_MODE, DYNAMIC_OVERWRITE) if key in self.options), None)
            if mode is not None:
                raise InvalidOption(mode, self.options[mode], f"nothing beside {REPLACE_WHERE}", store.name)
        return TableWriter(store, overwrite, self.options.get(PARTITION_OVERWRITE_MODE), numbered, kinds, where)

    def _merged(
        self, store: TableStore, schema: StructType, advice: str = _SAVE_ADVICE
    ) -> tuple[TableStore, str | None]:
        """Return (table with the merged schema, name of the column of row kinds or None)."""
        from lsm_core.spark.spark_write import prepare_write

        merging, explicit = (_switch(self.options, key) for key in MERGE_SCHEMA)
        catalog = catalog_of(self.options) if merging else None
        kinds = self.options.get(ROW_KIND_COLUMN)
        return prepare_write(store, schema, kinds, catalog, explicit_casts=explicit, advice=advice)


class RefusedStream(DataSourceStreamReader):
    """Stream that cannot be read; every call of its methods raises the reason."""

    def __init__(self, error: DredgeError) -> None:
        self._error = error

    @raises_typed_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Raise the error that says why the stream cannot be read."""
        raise self._error

    @raises_typed_errors
    def latestOffset(self, *arguments: Any) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Raise the error that says why the stream cannot be read."""
        raise self._error

    @raises_typed_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error that says why the stream cannot be read."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error that says why the stream cannot be read."""
        raise self._error


def _as_read(store: TableStore, snapshot_id: int | None) -> TableStore:
    """Return the table with the schema of the version to read, or with the current schema if changes are read.

    The version is ``snapshot_id`` or, if that is None, the version that the options choose.
    """
    return store if snapshot_id is None and startup(store).changes else resolve(store, snapshot_id).store


def _columns_to_read(store: TableStore, options: Mapping[str, str]) -> tuple[TableStore, list[str], bool]:
    """Return the table, the chosen columns, and whether columns or filter use row tracking.

    If row tracking is used, the schema of the returned table includes its columns. Raises ColumnNotFound.
    """
    store = _as_read(store, _snapshot_id(options))
    names = _columns(options)
    columns = list(store.schema.field_names if names is None else names)
    tracked = tracks_rows(store)
    if tracked:
        from lsm_core.read import parse_filter

        with_ids = with_row_ids(store)
        predicate = parse_filter(_filter(options), with_ids.schema, store.name)
        tracked = bool({*columns, *(() if predicate is None else predicate.columns)}.intersection(ROW_TRACKING))
        store = with_ids if tracked else store
    fields_of(store.schema, columns, store.name)
    return store, columns, tracked


def _columns(options: Mapping[str, str]) -> list[str] | None:
    text = options.get("columns")
    if not text:
        return None
    if text.startswith("["):  # a JSON list, for names that hold a comma
        try:
            return [str(name) for name in parse_json(text)]
        except ValueError as error:
            raise InvalidOption("columns", text, "names with commas between, or a JSON list of names") from error
    return [name.strip() for name in text.split(",")]


def _filter(options: Mapping[str, str]) -> list[Any] | str | None:
    """Return the option `filter` for `parse_filter`: SQL text unchanged, or JSON as lists of tuples; None if unset."""
    text = options.get("filter")
    if not text:
        return None
    if not text.lstrip().startswith(("[", "{")):
        return text
    accepted = 'a condition in SQL (k > 3 AND s = \'a\'), or JSON: [["column", ">", 3], ...]'
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InvalidOption("filter", text, accepted) from error
    if not isinstance(value, list) or not all(isinstance(item, list) and item for item in value):
        raise InvalidOption("filter", text, accepted)
    if all(isinstance(item[0], list) for item in value):
        return [[tuple(condition) for condition in group] for group in value]
    return [tuple(condition) for condition in value]


def _limit(options: Mapping[str, str]) -> int | None:
    text = options.get("limit")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidOption("limit", text, "a number of rows")
    return int(text)


def _snapshot_id(options: Mapping[str, str]) -> int | None:
    text = options.get("snapshot-id")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption("snapshot-id", text, "a snapshot's number") from error

"""Reads of system tables, with the same arguments as reads of tables: columns, filter, limit and version."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from lsm_core.arrays import coded_table
from lsm_core.errors import ColumnNotFound, InvalidFilter, UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.options import whole_number
from lsm_core.read import parse_filter
from lsm_core.read.predicate import Predicate
from lsm_core.table.read_request import ReadRequest, RequestReader
from lsm_core.table.readable_table import ReadableTable
from lsm_core.table.system.view import Selection, fit_schema
from lsm_core.table.table import Table

PartReader = Callable[[Selection], Iterator[pa.Table]]
_VERBS: Final = frozenset(name for name, value in vars(Table).items() if callable(value) and name[0] != "_")


class ReadOnlyTable(ReadableTable):
    """Base of system tables: the reading methods of `Table` over rows that are computed from metadata."""

    if not TYPE_CHECKING:

        def __getattr__(self, verb: str) -> Callable[..., NoReturn]:
            """Return a function that raises UnsupportedFeature, for methods of `Table` that change the table."""
            if verb not in _VERBS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {verb!r}")

            def refuse(*_: object, **__: object) -> NoReturn:
                raise UnsupportedFeature(f"{verb} of a system table, which only has to_arrow and to_batches", self.name)

            return refuse

    @property
    def schema(self) -> TableSchema:
        """Schema of the system table, with the columns of Paimon; ``schema.arrow_schema`` is its Arrow form."""
        return self._open({})[0]

    def schema_at(self, snapshot_id: int | None) -> TableSchema:
        """Return the schema of the system table at a snapshot (None for the newest version).

        Raises:
            SnapshotNotFound: the snapshot does not exist.
            InvalidOption: the system table has no versions.
        """
        return self._open({"snapshot_id": snapshot_id})[0]

    @property
    def options(self) -> Mapping[str, str]:
        """Empty: system tables have no options of their own."""
        return {}

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """Empty: system tables have no keys of their own."""
        return ()

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Empty: system tables have no partitions of their own."""
        return ()

    @abstractmethod
    def _open(self, named: Mapping[str, Any]) -> tuple[TableSchema, PartReader]:
        """Return the schema of the system table at a version, and a function that yields the rows of this version.

        Args:
            named: arguments that choose a version, such as `snapshot_id` or `tag`; None for absent ones.

        Raises:
            SnapshotNotFound: the version does not exist.
            InvalidOption: the system table has no versions.
        """

    def _read_table(self, request: ReadRequest) -> pa.Table:
        schema, parts = self._read(request)
        rows = pa.concat_tables([schema.empty_table(), *parts])
        return coded_table(rows) if request.dictionaries else rows

    def _read_stream(self, request: ReadRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        schema, parts = self._read(request)
        if request.dictionaries:
            schema, parts = coded_table(schema.empty_table()).schema, map(coded_table, parts)
        return schema, (batch for part in parts for batch in part.to_batches())

    def _pin_version(self, version: Mapping[str, Any]) -> tuple[TableSchema, RequestReader]:
        return self._open(version)[0], lambda request: self._read_stream(request._replace(version=version))

    def _read(self, request: ReadRequest) -> tuple[pa.Schema, Iterator[pa.Table]]:
        columns, filter_argument, limit, version, _ = request
        schema, parts = self._open(version)
        if isinstance(columns, str):
            raise InvalidFilter(f"table {self.name}: columns must be a list of names, not the text {columns!r}")
        chosen = schema.field_names if columns is None else tuple(columns)
        for name in chosen:
            if not schema.has_field(name):
                raise ColumnNotFound(self.name, name, schema.field_names)
        if len(set(chosen)) != len(chosen):
            raise InvalidFilter(f"table {self.name}: the selection has a column twice: {', '.join(chosen)}")
        predicate = parse_filter(filter_argument, schema, self.name)
        left = None if limit is None else whole_number(limit, "limit", self.name, least=0)
        used = schema.field_names if predicate and predicate.by_position else predicate.columns if predicate else ()
        selection = Selection(frozenset((*chosen, *used)), predicate, filter_argument)
        ordered = [name for name in schema.field_names if name in selection]
        needed = pa.schema([schema.arrow_schema.field(name) for name in ordered])
        target = pa.schema([schema.arrow_schema.field(name) for name in chosen])
        return target, _limit_rows(parts(selection), needed, target, predicate, left)


def _limit_rows(
    parts: Iterator[pa.Table], needed: pa.Schema, target: pa.Schema, predicate: Predicate | None, left: int | None
) -> Iterator[pa.Table]:
    if left == 0:
        return
    for part in parts:
        kept = fit_schema(part, needed)
        if predicate is not None:
            kept = kept.filter(predicate.expression)
        kept = kept.select(target.names)
        if left is not None:
            kept = kept.slice(0, left)
            left -= kept.num_rows
        if kept.num_rows:
            yield kept
        if left == 0:
            return

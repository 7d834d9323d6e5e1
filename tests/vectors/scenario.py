"""Steps of a table scenario, each executed by the public API; an unsupported step skips the case with its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.read.changes import StreamScan
from lsm_core.types import DataType, parse, to_arrow
from tests.maintenance.tables import tag
from tests.vectors.cases import BadVectors, Case, not_yet
from tests.vectors.values import column, rows_of, same_rows, value, without_order

NAME: Final = "db.t"
# Keys of a step that are not its verb.
_DETAILS: Final = frozenset(
    {
        "expect",
        "expect_error",
        "expect_snapshot_count",
        "full_compact",
        "note",
        "options",
        "ordered",
        "prefix",
        "select",
        "set_columns",
        "snapshot",
        "unordered_columns",
    }
)
_LATER: Final = {"add_column": "schema change add_column"}
_PARTITIONS: Final = "scan.partitions"
"""Option of Flink's connector for partitions to read, like "dt=a,hh=1;dt=b"."""


class ChangelogNormalize:
    """Flink's operator of this name, which adds the previous rows to a stream that has only new rows.

    The operator keeps the newest row of each key. For a changed row, it emits -U with the previous row and +U with the
    new row. For an unchanged row, it emits nothing. For a deleted key, it emits -D with the previous row.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self.newest: dict[tuple[Any, ...], Case] = {}

    def completed(self, changes: pa.Table) -> pa.Table:
        """Return the changes that the operator emits for ``changes``."""
        records: list[Case] = []
        for row in changes.to_pylist():
            kind, key = row.pop("_ROW_KIND"), tuple(row[name] for name in self.keys)
            if kind in ("-U", "-D"):
                before = self.newest.pop(key, None)
                records += [{"_ROW_KIND": "-D", **before}] if before else []
                continue
            before, self.newest[key] = self.newest.get(key), row
            if before is None:
                records.append({"_ROW_KIND": "+I", **row})
            elif before != row:
                records += [{"_ROW_KIND": "-U", **before}, {"_ROW_KIND": "+U", **row}]
        return pa.Table.from_pylist(records, changes.schema)


class Scenario:
    """The table of a case, and the steps that change or read the table."""

    def __init__(self, catalog: Catalog, case: Case) -> None:
        self.catalog, self.definition, self.steps = catalog, case["table"], case["steps"]
        self.kinds: dict[str, DataType] = {name: parse(kind) for name, kind in self.definition["columns"]}
        self.stream: StreamScan | None = None
        self.normalize: ChangelogNormalize | None = None
        self.verbs: dict[str, Callable[[Case], None]] = {
            "write": self.write,
            "overwrite": self.overwrite,
            "delete_where": self.delete_where,
            "update_where": self.update_where,
            "truncate": self.truncate,
            "compact": self.compact,
            "tag": self.tag,
            "set": self.set_options,
            "expire": self.expire,
            "query": self.query,
            "audit_log": self.audit_log,
            "binlog": self.binlog,
            "open_stream": self.open_stream,
            "changes": self.changes,
            "delta_of_last_snapshot": self.delta_of_last_snapshot,
            "buckets": self.buckets,
            "stored_row_count": self.stored_row_count,
            "snapshot_count": self.snapshot_count,
        }

    @property
    def table(self) -> Table:
        return self.catalog.table(NAME)

    def create(self) -> Table:
        columns = [pa.field(name, to_arrow(kind), nullable=kind.nullable) for name, kind in self.kinds.items()]
        keys, partitions = self.definition.get("primary_key") or (), self.definition.get("partition_by") or ()
        options = {key: str(text) for key, text in (self.definition.get("options") or {}).items()}
        return self.catalog.create_table(NAME, Schema(pa.schema(columns), keys, partitions, options))

    def create_and_write(self) -> None:
        """Create the table and execute the first write, or write no rows if the case has no write."""
        table = self.create()
        first: list[list[Any]] = next((step["write"] for step in self.steps if "write" in step), [])
        table.write(self.rows(first), row_kinds=self.row_kinds(first))

    def run_all(self) -> None:
        """Create the table and execute every step."""
        self.create()
        for step in self.steps:
            self.run(step)

    def run(self, step: Case) -> None:
        verb, *others = sorted(set(step) - _DETAILS) or [""]
        if others or verb not in {*self.verbs, *_LATER}:
            raise BadVectors(f"a step with unknown fields: {', '.join([verb, *others])}")
        if verb in _LATER:
            not_yet(_LATER[verb])
        action = self.verbs[verb]
        if "expect_error" not in step:
            action(step)
            return
        try:
            with pytest.raises(DredgeError) as caught:
                action(step)
        except pytest.fail.Exception as error:
            raise AssertionError(f"{step} must fail: {step['expect_error']}") from error
        assert not isinstance(caught.value, UnsupportedFeature)

    # -- changing data ---------------------------------------------------------------------------------------------

    def rows(self, listed: list[list[Any]]) -> pa.Table:
        cols = [column([row[i + 1] for row in listed], kind) for i, kind in enumerate(self.kinds.values())]
        return pa.table(cols, names=list(self.kinds))

    def row_kinds(self, listed: list[list[Any]]) -> pa.Array:
        return pa.array([row[0] for row in listed], pa.string())

    def write(self, step: Case) -> None:
        table = self.table.copy(step.get("options") or {})
        table.write(self.rows(step["write"]), row_kinds=self.row_kinds(step["write"]))
        if step.get("full_compact"):
            table.compact(full=True)
        else:
            self.compact_as_writers_do(table)

    def compact_as_writers_do(self, table: Table) -> None:
        """Compact the table as Paimon's batch writers do after a write, which produces the changelog.

        Dredge's writers leave this compaction to maintenance in these tests.
        """
        options = table.store.options
        if table.store.has_primary_key and not options.write_only:
            if options.changelog_producer == "full-compaction":
                if not any("full_compact" in step for step in self.steps):
                    table.compact(full=True)
            elif options.needs_lookup:
                table.compact()

    def overwrite(self, step: Case) -> None:
        rows = step["overwrite"]
        table = self.table.copy(step.get("options") or {})
        table.write(self.rows(rows), self.row_kinds(rows), overwrite=True)

    def delete_where(self, step: Case) -> None:
        self.table.delete(self.filter(step["delete_where"]))
        self.compact_as_writers_do(self.table)

    def update_where(self, step: Case) -> None:
        values = {name: column([raw], self.kinds[name])[0] for name, raw in step["set_columns"].items()}
        self.table.update(self.filter(step["update_where"]), values)
        self.compact_as_writers_do(self.table)

    def truncate(self, step: Case) -> None:
        del step
        self.table.truncate()

    def set_options(self, step: Case) -> None:
        self.catalog.alter_table(NAME, [SchemaChange.set_option(key, text) for key, text in step["set"].items()])

    # -- looking after it ------------------------------------------------------------------------------------------

    def compact(self, step: Case) -> None:
        assert step["compact"] == "full"
        self.table.compact(full=True)

    def tag(self, step: Case) -> None:
        table = self.table
        latest = table.latest_snapshot()
        assert latest is not None
        tag(table, step["tag"], step.get("snapshot", latest.id))

    def expire(self, step: Case) -> None:
        self.table.expire_snapshots(older_than_ms=self.catalog.clock.now_ms() + 1, **step["expire"])
        if "expect_snapshot_count" in step:
            assert len(self.table.snapshots()) == step["expect_snapshot_count"]

    def buckets(self, step: Case) -> None:
        files = self.catalog.table(f"{NAME}$files").to_arrow()
        assert sorted(set(files.column("bucket").to_pylist())) == sorted(step["buckets"])

    def stored_row_count(self, step: Case) -> None:
        files = self.catalog.table(f"{NAME}$files").to_arrow()
        assert (pc.sum(files.column("record_count")).as_py() or 0) == step["stored_row_count"]

    def snapshot_count(self, step: Case) -> None:
        latest = self.table.latest_snapshot()
        assert (latest.id if latest else 0) == step["snapshot_count"]

    # -- reading ---------------------------------------------------------------------------------------------------

    def filter(self, where: list[list[Any]] | None) -> list[tuple[Any, ...]] | None:
        if not where:
            return None
        return [(name, op.replace("_", " "), *self._operands(name, rest)) for name, op, *rest in where]

    def _operands(self, name: str, rest: list[Any]) -> list[Any]:
        kind = self.kinds[name]
        return [[value(raw, kind) for raw in item] if isinstance(item, list) else value(item, kind) for item in rest]

    def _of_partition(self, text: str) -> list[list[Any]]:
        """Return the filter for `scan.partitions` with one partition; unnamed partition columns must be null."""
        assert ";" not in text and not text.startswith("max_"), text
        named = dict(pair.split("=") for pair in text.split(",") if pair)
        others = [name for name in self.definition.get("partition_by") or [] if named and name not in named]
        return [*([name, "=", value] for name, value in named.items()), *([name, "is_null"] for name in others)]

    def read(self, asked: Case) -> pa.Table:
        options = {key: str(text) for key, text in (asked.get("options") or {}).items()}
        where = [*(asked.get("where") or []), *self._of_partition(options.pop(_PARTITIONS, ""))]
        select, keys = asked.get("select"), asked.get("group_by") or []
        used = [*keys, *(name for name in map(_argument, asked.get("aggregate") or []) if name)]
        names = select if select is not None else list(dict.fromkeys(used)) or None
        return self.table.copy(options).to_arrow(columns=names, filter=self.filter(where))

    def query(self, step: Case) -> None:
        asked = step["query"]
        try:
            found = self.read(asked)
        except UnsupportedFeature as error:
            if not error.feature.startswith("read option"):
                raise
            not_yet(error.feature)
            return
        if "expect_error" in step:
            return
        if asked.get("aggregate"):
            same_rows(_aggregated(found, asked), [tuple(row) for row in step["expect"]])
            return
        kinds = [self.kinds[name] for name in found.column_names]
        listed = step["expect"]
        wanted = pa.table([column([row[i] for row in listed], k) for i, k in enumerate(kinds)], found.schema)
        places = [found.column_names.index(name) for name in step.get("unordered_columns") or []]
        ours, theirs = without_order(rows_of(found), places), without_order(rows_of(wanted), places)
        same_rows(ours, theirs, ordered=bool(step.get("ordered")))

    # -- what changed ----------------------------------------------------------------------------------------------

    def audit_log(self, step: Case) -> None:
        self.log(step["audit_log"], "audit_log", step["expect"])

    def binlog(self, step: Case) -> None:
        self.log(step["binlog"], "binlog", step["expect"])

    def log(self, asked: Case, view: str, expected: list[list[Any]]) -> None:
        log = self.catalog.table(f"{NAME}${view}").copy(asked.get("options") or {})
        found = log.to_arrow(columns=asked.get("columns"), filter=self.filter(asked.get("where")))
        same_rows(rows_of(found), [tuple(row) for row in expected])

    def open_stream(self, step: Case) -> None:
        self.stream_of(self.table.copy(step["open_stream"]))

    def stream_of(self, table: Table, from_snapshot: int | None = None) -> StreamScan:
        """Return a new stream; as in Flink, `ChangelogNormalize` completes the changes of a table without changelog."""
        self.stream, options = table.new_stream_scan(from_snapshot=from_snapshot), table.store.options
        whole = not table.primary_keys or options.changelog_producer != "none" or options.merge_engine == "first-row"
        self.normalize = None if whole else ChangelogNormalize(table.primary_keys)
        return self.stream

    def changes(self, step: Case) -> None:
        """Compare the changes since the last read of the stream; the default stream begins before the first write."""
        stream = self.stream or self.stream_of(self.table, from_snapshot=1)
        batches = []
        while (batch := stream.next()) is not None:
            batches.append(batch.to_arrow())
        if not step["changes"]:
            assert not batches
            return
        found = pa.concat_tables(batches)
        self.same_changes(self.normalize.completed(found) if self.normalize else found, step, step["changes"])

    def delta_of_last_snapshot(self, step: Case) -> None:
        newest = self.table.latest_snapshot()
        assert newest is not None
        found = self.table.incremental(newest.id - 1, newest.id, "delta")
        self.same_changes(found, step, step["delta_of_last_snapshot"])

    def same_changes(self, found: pa.Table, step: Case, listed: list[list[Any]]) -> None:
        names = step.get("select") or list(self.kinds)
        found = found.select(["_ROW_KIND", *names])
        columns = [column([row[i + 1] for row in listed], self.kinds[name]) for i, name in enumerate(names)]
        wanted = pa.table([pa.array([row[0] for row in listed], pa.string()), *columns], found.schema)
        if step.get("prefix"):
            assert found.num_rows > wanted.num_rows
            found = found.slice(0, wanted.num_rows)
        places = [found.column_names.index(name) for name in step.get("unordered_columns") or []]
        ours, theirs = without_order(rows_of(found), places), without_order(rows_of(wanted), places)
        same_rows(ours, theirs, ordered=bool(step.get("ordered")))


def _argument(aggregate: str) -> str | None:
    inside = aggregate.partition("(")[2].removesuffix(")").strip()
    return None if inside in ("", "*") else inside


def _aggregated(rows: pa.Table, asked: Case) -> list[tuple[Any, ...]]:
    """Return rows of the group columns and the aggregates; one row if there is no grouping."""
    keys = list(asked.get("group_by") or [])
    wanted: list[tuple[Any, ...]] = []
    for aggregate in asked["aggregate"]:
        function, name = aggregate.partition("(")[0].strip().lower(), _argument(aggregate)
        wanted.append(([], "count_all") if name is None else (name, function))
    grouped = rows.group_by(keys).aggregate(wanted)
    results = grouped.column_names
    names = [*keys, *(name for name in results if name not in keys)]
    return rows_of(grouped.select(names))

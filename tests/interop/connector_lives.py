"""Lives of tables that Spark SQL with Paimon's connector and Dredge change in turn.

A seed gives a table of one of `KINDS` and the statements of its life. Either engine executes the same SQL; Dredge also
executes its Python calls. After every step both engines read the same columns and rows, and the same changes since the
step before. The rows of deduplicating and append tables also equal a model of this module.
"""

from __future__ import annotations

import datetime
import decimal
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import DredgeError
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner
from lsm_core.types import TypeRoot, to_arrow, to_sql
from tests.support.peers import SparkConnector, SparkConnectorError

STEPS = 7
Row = dict[str, Any]
FIXED = {"bucket": "2"}
DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}
VECTORS = {"deletion-vectors.enabled": "true"}
PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
SNAPSHOTS = {"sequence.snapshot-ordering": "true", "write-only": "true"}
CLUSTERED = {"clustering.incremental": "true", "clustering.columns": "k,a", "clustering.strategy": "zorder"}
SUMS = {
    "merge-engine": "aggregation",
    "fields.a.aggregate-function": "sum",
    "fields.b.aggregate-function": "max",
    "fields.b.ignore-retract": "true",
    "fields.s.aggregate-function": "last_non_null_value",
    "fields.d.aggregate-function": "sum",
    "fields.f.aggregate-function": "min",
    "fields.f.ignore-retract": "true",
    "fields.t.aggregate-function": "last_value",
}


def _producer(name: str) -> dict[str, str]:
    return {"changelog-producer": name}


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        name: name of the kind.
        options: its options.
        keys: primary key without the partition column; empty for append tables.
        partitioned: whether the column `p` is the partition column.
        crosses: whether the partition column is no part of the primary key.
    """

    name: str
    options: Mapping[str, str]
    keys: tuple[str, ...] = ("k",)
    partitioned: bool = False
    crosses: bool = False

    @property
    def engine(self) -> str:
        """Merge engine; "append" for tables without a primary key."""
        return self.options.get("merge-engine", "deduplicate") if self.keys else "append"

    @property
    def producer(self) -> str:
        """Changelog producer."""
        return self.options.get("changelog-producer", "none")

    @property
    def hides(self) -> bool:
        """Whether rows become visible by a compaction only."""
        marks = bool(self.keys) and "deletion-vectors.enabled" in self.options
        return marks or self.options["bucket"] == "-2" or self.engine == "first-row"

    @property
    def modelled(self) -> bool:
        """Whether the rows are those of the model, whatever compactions there were."""
        plain = self.engine in ("deduplicate", "append") and "sequence.field" not in self.options
        return plain and not self.hides


KINDS = (
    Kind("fixed buckets", FIXED),
    Kind("fixed buckets, input changelog, by partition", FIXED | _producer("input"), partitioned=True),
    Kind("fixed buckets, lookup changelog", FIXED | _producer("lookup")),
    Kind("fixed buckets, full-compaction changelog", FIXED | _producer("full-compaction")),
    Kind("deletion vectors", FIXED | VECTORS),
    Kind("deletion vectors, lookup changelog, by partition", FIXED | VECTORS | _producer("lookup"), partitioned=True),
    Kind("sequence field, by partition", FIXED | {"sequence.field": "b"}, partitioned=True),
    Kind("sequence field, lookup changelog", FIXED | {"sequence.field": "b"} | _producer("lookup")),
    Kind("partial update", FIXED | PARTIAL),
    Kind("partial update, sequence group", FIXED | {"merge-engine": "partial-update", "fields.b.sequence-group": "a,s"}),
    Kind("partial update, lookup changelog", FIXED | PARTIAL | _producer("lookup")),
    Kind("aggregation", FIXED | SUMS),
    Kind("aggregation, full-compaction changelog", FIXED | SUMS | _producer("full-compaction"), partitioned=True),
    Kind("aggregation, deletion vectors", FIXED | SUMS | VECTORS),
    Kind("first row", FIXED | {"merge-engine": "first-row"}),
    Kind("first row, lookup changelog, by partition", FIXED | {"merge-engine": "first-row"} | _producer("lookup"), partitioned=True),
    Kind("dynamic buckets", DYNAMIC),
    Kind("dynamic buckets, lookup changelog, by partition", DYNAMIC | _producer("lookup"), partitioned=True),
    Kind("keys that change their partition", DYNAMIC, partitioned=True, crosses=True),
    Kind("postponed buckets", {"bucket": "-2"}, partitioned=True),
    Kind("append", {"bucket": "-1"}, ()),
    Kind("append, deletion vectors, by partition", {"bucket": "-1"} | VECTORS, (), partitioned=True),
    Kind("append, fixed buckets", FIXED | {"bucket-key": "k"}, ()),
    Kind("append, row tracking", {"bucket": "-1", "row-tracking.enabled": "true"}, ()),
    Kind("ordered by snapshots", FIXED | SNAPSHOTS),
    Kind("ordered by snapshots, full-compaction changelog", FIXED | SNAPSHOTS | _producer("full-compaction"), partitioned=True),
    Kind("ordered by snapshots, partial update", FIXED | SNAPSHOTS | PARTIAL, partitioned=True),
    Kind("append, incremental clustering, by partition", {"bucket": "-1"} | CLUSTERED, (), partitioned=True),
    Kind("append, incremental clustering, deletion vectors", {"bucket": "-1"} | CLUSTERED | VECTORS, ()),
)  # fmt: skip

COLUMNS = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("f", pa.float64()),
        ("t", pa.timestamp("us")),
    ]
)
_MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)
_DRAWS: dict[TypeRoot, Callable[[Random], Any]] = {
    TypeRoot.INT: lambda random: random.choice([None, -3, 0, 1, 2, 7]),
    TypeRoot.BIGINT: lambda random: random.choice([None, -(2**40), 0, 1, 2, 3, 2**40]),
    TypeRoot.VARCHAR: lambda random: random.choice([None, "", "x", "y", "it's", "日本"]),
    TypeRoot.DECIMAL: lambda random: random.choice([None, decimal.Decimal(random.randrange(-400, 400)) / 4]),
    TypeRoot.DOUBLE: lambda random: random.choice([None, -1.5, 0.0, 0.25, 1e30]),
    TypeRoot.TIMESTAMP: lambda random: random.choice([None, _MOMENT, _MOMENT.replace(year=1968, microsecond=0)]),
}
_ADDED = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64()}


def plain(value: Any) -> Any:
    """Return a value of Arrow as the connector's driver returns Spark's."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value.quantize(decimal.Decimal("0.01")))
    return value


def literal(value: Any, kind: str) -> str:
    """Return a value as SQL that both engines understand."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime.datetime):
        return f"CAST('{value}' AS {kind})"
    return f"CAST({value!r} AS {kind})" if isinstance(value, float) else f"CAST({value} AS {kind})"


_REFUSALS = {
    "dredge": {
        r"with DELETE, unless option": "retracts that the merge engine cannot take; Spark writes them",
        r"DELETE with merge engine first-row": "retracts that the merge engine cannot take; Spark writes them",
        r"the new values would not be read back": "updates that the merge engine does not keep; Spark writes them in vain",
        r"rows are not visible before a compaction": "changes of postponed rows; Spark changes the visible rows only",
    },
    "spark": {
        r"compact with KEY_DYNAMIC is not support": "compaction of keys that change their partition",
    },
}
"""Known differences of the engines: errors (patterns) of one engine for statements that the other executes."""


def known_refusal(who: str, refused: str) -> str | None:
    """Return the known difference that explains the error of one engine, or None."""
    return next((reason for pattern, reason in _REFUSALS[who].items() if re.search(pattern, refused)), None)


@dataclass(frozen=True)
class Condition:
    """A condition on one column, as SQL, as a filter of Dredge and as a function."""

    sql: str
    filter: tuple[str, str, Any]
    holds: Callable[[Row], bool]


@dataclass
class Change:
    """One statement.

    Attributes:
        sql: the statement, for both engines.
        call: the same by Dredge's Python calls, or None.
        model: its effect on the rows of the model; None for a statement that keeps the rows.
        breaks_changes: whether the changes no longer give the table from here on.
        breaks_history: whether older versions can no longer be returned to.
    """

    sql: str
    call: Callable[[Table], object] | None = None
    model: Callable[[list[Row]], list[Row]] | None = None
    breaks_changes: bool = False
    breaks_history: bool = False


@dataclass
class Life:
    """One table and its life, drawn from a seed."""

    seed: int
    warehouse: Path
    spark: SparkConnector
    told: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.kind = KINDS[self.seed % len(KINDS)]
        self.name = f"db.t{self.seed}"
        self.rows: list[Row] = []
        self.history: dict[int, list[Row]] = {}
        self.tags: dict[str, list[Row]] = {}
        self.waiting: list[Change] = []
        self.seen, self.added, self.replays = 0, 0, True

    # -- the two engines -----------------------------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        """The table, opened anew."""
        return Catalog(str(self.warehouse)).table(self.name)

    def by_spark(self, sql: str) -> list[list[Any]]:
        """Run a statement by Spark; return the rows."""
        return list(self.spark.call(self.warehouse, sql=sql)["rows"])

    def by_dredge(self, change: Change, *, called: bool) -> None:
        """Run a statement by Dredge: the SQL, or the Python call if ``called``."""
        if called and change.call is not None:
            change.call(self.table)
        else:
            StatementRunner(Session(Catalog(str(self.warehouse))), LocalEngine()).run(change.sql)

    # -- the life ------------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the table by one of the two."""
        random, kind = self.random, self.kind
        options = {
            **kind.options,
            "file.format": random.choice(["parquet", "parquet", "orc", "avro"]),
            "num-sorted-run.compaction-trigger": random.choice(["2", "3", "5"]),
        }
        if "row-tracking.enabled" in kind.options and options["file.format"] == "avro":
            options["file.format"] = "orc"  # Java cannot read row ids from Avro files (format.md)
        if random.random() < 0.2:
            options["target-file-size"] = "2 kb"
        keys = [*(["p"] if kind.partitioned and not kind.crosses else []), *kind.keys] if kind.keys else []
        partitions = ["p"] if kind.partitioned else []
        ours = random.random() < 0.5
        self.told.append(f"{'dredge' if ours else 'spark'} creates {kind.name}: {options}")
        if ours:
            Catalog(str(self.warehouse)).create_table(self.name, Schema(COLUMNS, keys, partitions, options))
            return
        columns = (
            "p STRING NOT NULL, k INT NOT NULL, a INT, b BIGINT, s STRING, d DECIMAL(10, 2), f DOUBLE, t TIMESTAMP_NTZ"
        )
        given = options | ({"primary-key": ",".join(keys)} if keys else {})
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        by = f" PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
        self.by_spark(f"CREATE TABLE {self.name} ({columns}){by} TBLPROPERTIES ({properties})")

    def live(self) -> Counter[str]:
        """Live all steps; return how often each engine did which statement."""
        self.create()
        for number in range(STEPS):
            self.step(self.insert() if number == 0 else self.drawn())
        while self.waiting:
            self.step(self.waiting.pop(0))
        if self.kind.producer in ("lookup", "full-compaction"):
            self.step(self.compaction(full=True))
            self.changes_give_the_rows()
        return self.counts

    def step(self, change: Change) -> None:
        """One statement by one of the two, and the comparison of both."""
        ours, called = self.random.random() < 0.5, self.random.random() < 0.5
        called = called and change.call is not None
        who = "dredge" if ours else "spark"
        self.told.append(f"{who}{' (call)' if ours and called else ''}: {change.sql}")
        before = None if self.kind.hides else self.rows
        refused = self._attempt(change, ours=ours, called=called)
        if refused:
            self.told.append(f"  refused: {refused}")
            self.counts[f"{who} refuses {self._verb(change)}"] += 1
            other = self._attempt(change, ours=not ours, called=called)
            if other:
                self.told.append(f"  refused by the other: {other}")
                change = Change("")
            else:
                reason = known_refusal(who, refused)
                assert reason, f"only {who} refuses {change.sql[:300]}: {refused}"
                self.counts[f"only {who} refuses: {reason}"] += 1
        else:
            self.counts[f"{who} {self._verb(change)}"] += 1
        if change.breaks_changes:
            self.replays = False
        if change.breaks_history:
            self.history.clear()
        rows = self.rows_agree()
        if change.model is not None and self.kind.modelled:
            expected = sorted((tuple(map(plain, row.values())) for row in change.model(self._dicts())), key=repr)
            assert rows == expected, f"both read {rows}\nexpected {expected}"
        elif change.model is None and before is not None and self.kind.engine in ("deduplicate", "append"):
            kept = sorted((tuple(map(plain, row.values())) for row in before), key=repr)
            assert rows == kept or change.breaks_history, f"{change.sql} changed the rows\n{kept}\nto {rows}"
        self.rows = self._read_dicts()
        self.changes_agree()
        newest = self.table.latest_snapshot()
        if newest is not None:
            self.history[newest.id] = self.rows

    def _dicts(self) -> list[Row]:
        return [dict(row) for row in self.rows]

    def _verb(self, change: Change) -> str:
        words = change.sql.split()
        return (
            words[1].split("(")[0]
            if words[0] == "CALL"
            else " ".join(words[:1] + (words[3:4] if words[0] == "ALTER" else words[1:2]))
        )

    def _attempt(self, change: Change, *, ours: bool, called: bool) -> str:
        try:
            if ours:
                self.by_dredge(change, called=called)
            else:
                self.by_spark(change.sql)
        except (DredgeError, SparkConnectorError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    # -- comparing -----------------------------------------------------------------------------------------------------

    def rows_agree(self) -> list[tuple[Any, ...]]:
        """Assert that both read the same columns and rows; return the rows in an order of their own."""
        answer = self.spark.call(self.warehouse, sql=f"SELECT * FROM {self.name}")
        found = self.table.to_arrow()
        assert found.column_names == answer["columns"], f"Dredge has {found.column_names}, Spark {answer['columns']}"
        ours = sorted((tuple(map(plain, row.values())) for row in found.to_pylist()), key=repr)
        theirs = sorted((tuple(row) for row in answer["rows"]), key=repr)
        assert ours == theirs, f"Dredge reads {ours}\nSpark reads {theirs}"
        if self.kind.options.get("row-tracking.enabled"):
            tracked = self.spark.call(
                self.warehouse, sql=f"SELECT * FROM `{self.name.replace('.', '`.`')}$row_tracking`"
            )
            numbered = Catalog(str(self.warehouse)).table(f"{self.name}$row_tracking").to_arrow()
            numbered = numbered.select(tracked["columns"]).to_pylist()
            ids = sorted((tuple(map(plain, row.values())) for row in numbered), key=repr)
            assert ids == sorted((tuple(row) for row in tracked["rows"]), key=repr), (
                f"Dredge numbers {ids}\nSpark {tracked['rows']}"
            )
        return ours

    def _read_dicts(self) -> list[Row]:
        return list(self.table.to_arrow().to_pylist())

    def changes_agree(self) -> None:
        """Assert that both read the same changes since the step before."""
        newest = self.table.latest_snapshot()
        last = 0 if newest is None else newest.id
        first, self.seen = self.seen, last
        if newest is None or first >= last or first + 1 < min(snapshot.id for snapshot in self.table.snapshots()):
            return
        ours, theirs = self.changes(first, last)
        assert ours == theirs, (
            f"changes of ({first}, {last}]: only Dredge has {list((ours - theirs).items())[:8]}\n"
            f"only Spark has {list((theirs - ours).items())[:8]}"
        )

    def changes(self, first: int, last: int) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
        """Return the changes after snapshot ``first`` up to ``last``, with their kinds, read by Dredge and by Spark."""
        between = {"incremental-between": f"{first},{last}"}
        log = Catalog(str(self.warehouse)).table(f"{self.name}$audit_log").copy(between).to_arrow()
        name = f"`{self.name.replace('.', '`.`')}$audit_log`"
        answer = self.spark.call(self.warehouse, table=name, options=between)
        assert log.column_names == answer["columns"]
        ours = Counter(tuple(map(plain, row.values())) for row in log.to_pylist())
        return ours, Counter(tuple(row) for row in answer["rows"])

    def changes_give_the_rows(self) -> None:
        """Assert that all changes from nothing give the rows, if no statement went around the changelog."""
        if not self.replays or min(snapshot.id for snapshot in self.table.snapshots()) > 1:
            return
        net: Counter[tuple[Any, ...]] = Counter()
        for (kind, *values), count in self.changes(0, self.seen)[0].items():
            net[tuple(values)] += count if kind in ("+I", "+U") else -count
        rows = Counter(tuple(map(plain, row.values())) for row in self.rows)
        net = Counter({row: count for row, count in net.items() if count})
        assert net == rows, f"changes give {net}\nrows are {rows}"

    # -- drawing -------------------------------------------------------------------------------------------------------

    def drawn(self) -> Change:
        """A statement of any sort that the kind has."""
        kind, random = self.kind, self.random
        if self.waiting:
            return self.waiting.pop(0)
        sorts: dict[Callable[[], Change | None], float] = {
            self.insert: 4, self.update: 2, self.delete: 2, self.merge: 2, self.overwrite: 1, self.alteration: 2,
            self.compaction: 3, self.tag: 1, self.rollback: 0.7, self.expiry: 0.7, self.truncation: 0.3,
            self.manifests: 0.4, self.orphans: 0.4,
        }  # fmt: skip
        if kind.options["bucket"] == "2":
            sorts[self.rescale] = 1
        if kind.partitioned:
            sorts[self.dropped_partition] = 0.5
        if kind.engine == "append" and kind.options["bucket"] == "-1":
            sorts[self.sort] = 1
        while True:
            [chosen] = random.choices(list(sorts), list(sorts.values()))
            change = chosen()
            if change is not None:
                return change

    @property
    def types(self) -> dict[str, Any]:
        """Columns of the table, in order."""
        return {one.name: one.type for one in self.table.schema.fields}

    def value(self, name: str) -> Any:
        """A value of a column."""
        if name == "p":
            return self.random.choice(["x", "y"])
        if name == "k":
            return self.random.randrange(12)
        return _DRAWS[self.types[name].root](self.random)

    def new_rows(self) -> list[Row]:
        """Rows with different keys, in the columns of the table."""
        keys = self.random.sample(range(12), self.random.choice([1, 2, 4, 9]))
        return [{name: key if name == "k" else self.value(name) for name in self.types} for key in keys]

    def values_of(self, rows: Sequence[Row]) -> str:
        """Return rows as a list of SQL."""
        kinds = {name: _sql_type(kind) for name, kind in self.types.items()}
        return ", ".join("(" + ", ".join(literal(row[n], kinds[n]) for n in kinds) + ")" for row in rows)

    def arrow_of(self, rows: Sequence[Row]) -> pa.Table:
        """Return rows as Arrow."""
        fields = [pa.field(name, to_arrow(kind), kind.nullable) for name, kind in self.types.items()]
        return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))

    def identity(self, row: Row) -> tuple[Any, ...]:
        """The key of a row."""
        return tuple(row[name] for name in self.key_columns)

    @property
    def key_columns(self) -> list[str]:
        """Columns that identify a row; of append tables, `k`."""
        return ["p", "k"] if self.kind.partitioned and not self.kind.crosses and self.kind.keys else ["k"]

    def stored(self, rows: list[Row], new: Sequence[Row]) -> list[Row]:
        """Return the rows after an insert."""
        replaced = {self.identity(row) for row in new} if self.kind.keys else set()
        return [*(row for row in rows if self.identity(row) not in replaced), *new]

    def insert(self) -> Change:
        """INSERT INTO."""
        new = self.new_rows()
        data = self.arrow_of(new)
        return Change(
            f"INSERT INTO {self.name} VALUES {self.values_of(new)}",
            lambda table: table.write(data),
            lambda rows: self.stored(rows, new),
        )

    def overwrite(self) -> Change:
        """INSERT OVERWRITE of a partition or of the whole table."""
        new = self.new_rows()
        data = self.arrow_of(new)
        if not self.kind.partitioned:
            text = f"INSERT OVERWRITE {self.name} VALUES {self.values_of(new)}"
            return Change(text, lambda table: table.write(data, overwrite={}), lambda _: list(new), breaks_changes=True)
        for row in new:
            row["p"] = "x"
        without = [{name: value for name, value in row.items() if name != "p"} for row in new]
        kinds = {name: _sql_type(kind) for name, kind in self.types.items() if name != "p"}
        texts = ", ".join("(" + ", ".join(literal(row[n], kinds[n]) for n in kinds) + ")" for row in without)
        named = self.arrow_of(new)
        return Change(
            f"INSERT OVERWRITE {self.name} PARTITION (p = 'x') VALUES {texts}",
            lambda table: table.write(named, overwrite={"p": "x"}),
            lambda rows: self.stored([row for row in rows if row["p"] != "x"], new),
            breaks_changes=True,
        )

    def condition(self) -> Condition:
        """A condition on one column."""
        random = self.random
        name = random.choice(["k", "k", "a", "s", *(["p"] if self.kind.partitioned else [])])
        if name not in self.types:
            name = "k"
        if name in ("a", "s") and random.random() < 0.3:
            return Condition(f"{name} IS NULL", (name, "is null", None), lambda row: row[name] is None)
        value = self.value(name)
        value = {"a": 1, "s": "x"}[name] if value is None else value
        kind = _sql_type(self.types[name])
        if name in ("k", "a") and random.random() < 0.5:
            return Condition(
                f"{name} < {literal(value, kind)}",
                (name, "<", value),
                lambda row: row[name] is not None and row[name] < value,
            )
        return Condition(f"{name} = {literal(value, kind)}", (name, "=", value), lambda row: row[name] == value)

    def free(self) -> list[str]:
        """Columns that statements may set."""
        ordering = {"b"} if "sequence.field" in self.kind.options or self.kind.name.endswith("group") else set()
        return [name for name in self.types if name not in {"p", "k"} | ordering]

    def update(self) -> Change:
        """UPDATE."""
        where, name = self.condition(), self.random.choice(self.free())
        value = self.value(name)
        kind = _sql_type(self.types[name])
        return Change(
            f"UPDATE {self.name} SET {name} = {literal(value, kind)} WHERE {where.sql}",
            lambda table: table.update([where.filter], {name: value}),
            lambda rows: [{**row, name: value} if where.holds(row) else row for row in rows],
        )

    def delete(self) -> Change:
        """DELETE."""
        where = self.condition()
        return Change(
            f"DELETE FROM {self.name} WHERE {where.sql}",
            lambda table: table.delete([where.filter]),
            lambda rows: [row for row in rows if not where.holds(row)],
            breaks_changes=self.kind.producer in ("lookup", "full-compaction") and self.kind.partitioned,
        )

    def merge(self) -> Change:
        """MERGE INTO, with an update of some columns and an insert, sometimes with a delete."""
        new, sets = self.new_rows(), self.random.sample(self.free(), 2)
        deletes = self.random.random() < 0.3
        kinds = {name: _sql_type(kind) for name, kind in self.types.items()}
        source = " UNION ALL ".join(
            "SELECT " + ", ".join(f"{literal(row[name], kinds[name])} AS {name}" for name in kinds) for row in new
        )
        on = " AND ".join(f"t.{name} = s.{name}" for name in self.key_columns)
        gone = "WHEN MATCHED AND s.k < 3 THEN DELETE " if deletes else ""
        assigned = ", ".join(f"t.{name} = s.{name}" for name in sets)
        text = (
            f"MERGE INTO {self.name} AS t USING ({source}) AS s ON {on} {gone}WHEN MATCHED THEN UPDATE SET {assigned} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(kinds)}) VALUES ({', '.join(f's.{name}' for name in kinds)})"
        )
        by_key = {self.identity(row): row for row in new}

        def model(rows: list[Row]) -> list[Row]:
            held = {self.identity(row) for row in rows}
            kept = []
            for row in rows:
                match = by_key.get(self.identity(row))
                if match is None:
                    kept.append(row)
                elif not (deletes and match["k"] < 3):
                    kept.append({**row, **{name: match[name] for name in sets}})
            return [*kept, *(row for key, row in by_key.items() if key not in held)]

        return Change(text, None, model)

    def alteration(self) -> Change:
        """ALTER TABLE: a column is added, renamed, widened, dropped, or an option is set."""
        random, types = self.random, self.types
        sort = random.choice(["add", "add", "rename", "widen", "drop", "set", "unset"])
        added = [name for name in types if name.startswith("x")]
        alter = f"ALTER TABLE {self.name}"
        if sort == "rename" and added:
            self.added += 1
            old, new = random.choice(added), f"x{self.added}"
            model = lambda rows: [{new if key == old else key: v for key, v in row.items()} for row in rows]  # noqa: E731
            return Change(f"{alter} RENAME COLUMN {old} TO {new}", None, model, breaks_history=True)
        if sort == "widen":
            narrow = [name for name in [*added, "a"] if name in types and types[name].root is TypeRoot.INT]
            if narrow:
                name = random.choice(narrow)
                return Change(f"{alter} ALTER COLUMN {name} TYPE BIGINT", breaks_history=True)
        if sort == "drop" and added:
            old = random.choice(added)
            model = lambda rows: [{key: v for key, v in row.items() if key != old} for row in rows]  # noqa: E731
            return Change(f"{alter} DROP COLUMN {old}", None, model, breaks_history=True)
        if sort == "set":
            key, value = random.choice(
                [("snapshot.num-retained.max", "30"), ("file.compression", "snappy"), ("page-size", "32 kb")]
            )
            return Change(f"{alter} SET TBLPROPERTIES ('{key}' = '{value}')")
        if sort == "unset":
            return Change(f"{alter} UNSET TBLPROPERTIES ('target-file-size')")
        self.added += 1
        name, kind = f"x{self.added}", random.choice(list(_ADDED))
        places = {"": len(types), " FIRST": 0, " AFTER k": list(types).index("k") + 1}
        place = random.choice(list(places))

        def with_column(rows: list[Row]) -> list[Row]:
            names = list(types)
            names.insert(places[place], name)
            return [{one: row.get(one) for one in names} for row in rows]

        return Change(f"{alter} ADD COLUMNS ({name} {kind}{place})", None, with_column, breaks_history=True)

    def compaction(self, *, full: bool | None = None) -> Change:
        """CALL sys.compact."""
        full = self.random.random() < 0.6 if full is None else full
        return Change(
            f"CALL sys.compact(table => '{self.name}', compact_strategy => '{'full' if full else 'minor'}')",
            lambda table: table.compact(full=full),
        )

    def sort(self) -> Change:
        """A sort compaction."""
        order = self.random.choice(["order", "zorder", "hilbert"])
        return Change(
            f"CALL sys.compact(table => '{self.name}', order_strategy => '{order}', order_by => 'k,b')",
            lambda table: table.compact(order_by=["k", "b"], strategy=order),
            breaks_changes=True,
        )

    def rescale(self) -> Change:
        """CALL sys.rescale: another number of buckets, which the option gets in the next step.

        Until then Spark checks only the number of the buckets that it writes, and writes a second number beside it.
        Dredge does not rescale partitions with changes that no changelog has yet, so a compaction comes first.
        """
        number = self.random.choice([1, 2, 3, 4])
        whole = Change(f"CALL sys.rescale(table => '{self.name}', bucket_num => {number})", breaks_changes=True)
        part = Change(whole.sql.replace(")", ", partitions => 'p=x')"), breaks_changes=True)
        in_parts = self.kind.partitioned and self.random.random() < 0.3
        late = self.kind.producer in ("lookup", "full-compaction")
        changes = [*([self.compaction(full=True)] if late else []), *([part] if in_parts else []), whole]
        self.waiting = [*changes[1:], Change(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('bucket' = '{number}')")]
        return changes[0]

    def tag(self) -> Change | None:
        """A tag is created, or deleted."""
        if self.table.latest_snapshot() is None:
            return None
        if self.tags and self.random.random() < 0.4:
            name, _ = self.tags.popitem()
            return Change(f"CALL sys.delete_tag(table => '{self.name}', tag => '{name}')")
        name = f"tag{len(self.told)}"
        self.tags[name] = self.rows
        return Change(f"CALL sys.create_tag(table => '{self.name}', tag => '{name}')")

    def rollback(self) -> Change | None:
        """CALL sys.rollback: back to an earlier step."""
        newest = self.table.latest_snapshot()
        held = {snapshot.id for snapshot in self.table.snapshots()}
        targets = [number for number in self.history if number in held and newest is not None and number < newest.id]
        if not targets:
            return None
        target = self.random.choice(targets)
        rows = self.history[target]
        self.tags.clear()
        self.seen = min(self.seen, target)
        return Change(
            f"CALL sys.rollback(table => '{self.name}', version => '{target}')",
            lambda table: table.rollback_to(target),
            lambda _: rows,
            breaks_changes=True,
            breaks_history=True,
        )

    def expiry(self) -> Change:
        """CALL sys.expire_snapshots."""
        return Change(
            f"CALL sys.expire_snapshots(table => '{self.name}', retain_max => {self.random.choice([1, 3])}, retain_min => 1, "
            "older_than => '2099-01-01 00:00:00')",
            breaks_changes=True,
        )

    def truncation(self) -> Change:
        """TRUNCATE TABLE."""
        return Change(f"TRUNCATE TABLE {self.name}", lambda table: table.truncate(), lambda _: [], breaks_changes=True)

    def dropped_partition(self) -> Change:
        """A partition is dropped."""
        return Change(
            f"ALTER TABLE {self.name} DROP IF EXISTS PARTITION (p = 'x')",
            lambda table: table.drop_partitions([{"p": "x"}]),
            lambda rows: [row for row in rows if row["p"] != "x"],
            breaks_changes=True,
        )

    def manifests(self) -> Change:
        """CALL sys.compact_manifest."""
        return Change(f"CALL sys.compact_manifest(table => '{self.name}')")

    def orphans(self) -> Change:
        """CALL sys.remove_orphan_files, of all that is older than now."""
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        return Change(f"CALL sys.remove_orphan_files(table => '{self.name}', older_than => '{now}')")


def _sql_type(kind: Any) -> str:
    """Return the type in Spark's spelling."""
    text = str(to_sql(kind)).removesuffix(" NOT NULL")
    if kind.root is TypeRoot.TIMESTAMP:
        return "TIMESTAMP_NTZ"
    return "STRING" if kind.root is TypeRoot.VARCHAR else text


def live_a_life(seed: int, warehouse: Path, spark: SparkConnector) -> Counter[str]:
    """Live the life of a seed; return how often each engine did which statement.

    Raises:
        AssertionError: a comparison or a step failed; the message has the seed and the statements.
    """
    life = Life(seed, warehouse, spark)
    try:
        return life.live()
    except (AssertionError, DredgeError, SparkConnectorError, pa.ArrowException) as error:
        story = "\n".join(life.told)
        reason = f"{type(error).__name__}: {error}"
        raise AssertionError(f"DREDGE_LIVES_SEED={seed}:\n{story[:12000]}\n{reason[:6000]}") from error


__all__ = ["KINDS", "Life", "live_a_life"]

"""Random histories of table pairs: each operation is executed on one table by Spark and on its twin in this process.

After every step, both tables have the same rows. Spark's reads (versions, columns, filters, changes) equal the reads in
this process. If one side refuses an operation, the other side refuses the operation, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import DredgeError
from lsm_core.options.table_options import PAIMON_VERSION, PaimonVersion
from lsm_core.spark import call, compact_table, delete_keys, delete_where, read_table, update_where, write_table
from lsm_core.types import RowKind, to_arrow
from tests.merge.random_tables import ANY, JAVA_POOLS, Pool, RandomTable, random_table
from tests.spark.tables import canonical

STEPS = 5
_BYTES_OF_A_FILE = "2 kb"
_TESTED = ("INT", "INT NOT NULL", "STRING", "STRING NOT NULL", "BIGINT", "DOUBLE", "DATE")
"""Types of the columns for which filters are generated."""
_MICROSECONDS: Pool = lambda rng: rng.choice([-1, 0, 1_700_000_000_000_001])  # noqa: E731


@dataclass
class Drawn:
    """Definition of a random table, with generators of its values."""

    columns: RandomTable
    primary_keys: list[str]
    partition_keys: list[str]
    options: dict[str, str]

    @property
    def fields(self) -> pa.Schema:
        """Arrow schema of the columns."""
        held = self.columns.schema.fields
        return pa.schema([pa.field(item.name, to_arrow(item.type), item.type.nullable) for item in held])

    @property
    def adds_only(self) -> bool:
        """Whether the table is an append table, whose rows have no kinds."""
        return not self.primary_keys

    @property
    def order_counts(self) -> bool:
        """Whether the merge order can change results; then both sides must write the same files."""
        return self.options.get("merge-engine") in ("partial-update", "aggregation")


NEWER = ("primary-key.nullable", "sequence.snapshot-ordering")
"""Options of the kinds of primary-key tables that Paimon 2.0 and 2.1 added."""


def drawn_newer(random: Random, option: str) -> Drawn:
    """Return a random table with one of the options `NEWER`; of its keys one in four values may be null."""
    while True:
        table = drawn(random)
        unfit = "sequence.field" in table.options or table.options["bucket"] == "-2"
        if table.primary_keys and not (unfit and option == "sequence.snapshot-ordering"):
            break
    table.options[option] = "true"
    if option == "sequence.snapshot-ordering":
        table.options["write-only"] = "true"
    else:
        for name in table.primary_keys:
            table.columns.types[name] = table.columns.types[name].removesuffix(" NOT NULL")
    return table


def drawn(random: Random) -> Drawn:
    """Return a random table: any merge engine, bucket mode and file format, with or without partitions."""
    layout = random.choice(["fixed", "fixed", "fixed", "dynamic", "cross-partition", "postpone", "append", "append"])
    if layout == "append":
        found = RandomTable({}, values=JAVA_POOLS)
        for name in "abcd"[: random.randint(1, 4)]:
            found.column(name, random.choice(ANY))
        found.column("n", "INT")
    else:
        while True:
            found = random_table(random, JAVA_POOLS)
            # keys that get buckets as they come: the two need not give them the same ones
            ordered = layout == "cross-partition" and "sequence.field" in found.options  # there are no such tables
            if not ordered and (layout == "fixed" or found.options["merge-engine"] in ("deduplicate", "first-row")):
                break
    for name in [name for name in found.names if found.types[name] == "TIMESTAMP(9)"]:
        found.types[name], found.pools[name] = "TIMESTAMP(6)", _MICROSECONDS  # Spark counts microseconds
    keys, partitions = list(found.keys), []
    if layout == "cross-partition" or random.random() < 0.4:
        kind = random.choice(["INT NOT NULL", "STRING NOT NULL"]) if keys else random.choice(["INT", "STRING"])
        pool: Pool = {"I": lambda rng: rng.choice([0, 1]), "S": lambda rng: rng.choice(["x", "a=b/c d", "é"])}[kind[0]]
        found.column("p", kind, pool)
        partitions = ["p"]
        keys = keys if layout == "cross-partition" or not keys else ["p", *keys]
    options = found.options
    options["bucket"] = {"fixed": random.choice(["1", "2"]), "postpone": "-2"}.get(layout, "-1")
    options["file.format"] = random.choice(["parquet", "parquet", "parquet", "orc", "avro"])
    options["num-sorted-run.compaction-trigger"] = random.choice(["2", "3"])
    if layout in ("dynamic", "cross-partition"):
        options["dynamic-bucket.target-row-num"] = random.choice(["3", "1000"])
    if random.random() < 0.2:
        options["target-file-size"] = _BYTES_OF_A_FILE
    if keys and random.random() < 0.5:
        options[PAIMON_VERSION] = random.choice(list(PaimonVersion))
    engine = options.get("merge-engine")
    if keys and layout != "postpone":
        producers = ["none", "lookup"] if engine == "first-row" else ["none", "none", "input", "lookup"]
        options["changelog-producer"] = random.choice(producers)
        if engine != "first-row" and random.random() < 0.2:
            options["deletion-vectors.enabled"] = "true"
    elif not keys and random.random() < 0.3:
        options["deletion-vectors.enabled"] = "true"
    return Drawn(found, keys, partitions, options)


class Life:
    """Random history of a table and its twin, generated from a seed."""

    def __init__(self, seed: int, root: Path, spark: Any, option: str = "") -> None:
        self.random, self.spark = Random(seed), spark
        self.table = drawn_newer(self.random, option) if option else drawn(self.random)
        self.told: list[str] = []
        self.name = f"db.t{seed}"
        self.roots = root / "spark", root / "here"
        for place in self.roots:
            catalog = Catalog(str(place))
            catalog.create_database("db", ignore_if_exists=True)
            schema = Schema(self.table.fields, self.table.primary_keys, self.table.partition_keys, self.table.options)
            catalog.create_table(self.name, schema)
        self._tell(f"create {dict(zip(self.table.columns.names, self.table.fields.types, strict=True))}")
        self._tell(f"  keys {self.table.primary_keys}, by {self.table.partition_keys}, {self.table.options}")
        self.versions: list[tuple[int, int]] = []
        """Pairs of snapshot ids of both tables with the same rows."""
        self.steps = 0

    @property
    def there(self) -> Table:
        """Table that Spark changes, opened without cached state."""
        return Catalog(str(self.roots[0])).table(self.name)

    @property
    def here(self) -> Table:
        """Twin that this process changes, opened without cached state."""
        return Catalog(str(self.roots[1])).table(self.name)

    def live(self) -> int:
        """Execute all steps; return their number. The history ends early if the rows can no longer be computed."""
        for number in range(STEPS):
            self.step(first=number == 0)
            self.steps += 1
            if not self.agree():
                break
        return self.steps

    def step(self, *, first: bool) -> None:
        """Execute one random operation on both tables; the first one is a write."""
        deeds = [self._write] * 5 + [self._overwrite] + [self._compact] * 3
        engine = self.table.options.get("merge-engine", "deduplicate")
        if engine == "deduplicate" and self.table.options["bucket"] != "-2":
            deeds += [self._delete, self._update] + [self._delete_keys] * (not self.table.adds_only)
        (self._write if first else self.random.choice(deeds))()

    # -- deeds ---------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        rows, kinds = self._rows()
        # the format starts processes of Python for every use, which is most of what a life costs
        doors = ["write_table"] * 4 + ["save", "insert"]
        door = self.random.choice(doors[: 5 if kinds is not None else None])
        self._tell(f"{door} {rows.to_pylist()} {kinds}")

        def there() -> None:
            frame = self._frame(rows, kinds, pieces=1 if door != "write_table" and self.table.order_counts else 2)
            if door == "write_table":
                write_table(frame, self.there)
            elif door == "save":
                frame.write.format("dredge").options(**self._place()).mode("append").save()
            else:
                options = ", ".join(f"{key} '{text}'" for key, text in self._place().items())
                self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW life USING dredge OPTIONS ({options})")
                frame.createOrReplaceTempView("arrived")
                self.spark.sql("INSERT INTO life SELECT * FROM arrived")

        self._both(there, lambda: self.here.write(rows, kinds))

    def _overwrite(self) -> None:
        rows, kinds = self._rows()
        scope: dict[str, Any] = {}
        if self.table.partition_keys and self.random.random() < 0.5:
            scope = {"p": self.table.columns.pools["p"](self.random)}
            field = rows.schema.field("p")
            named = pa.array([scope["p"]] * rows.num_rows, field.type)
            rows = rows.set_column(rows.schema.get_field_index("p"), field, named)
        door = "write_table" if scope else self.random.choice(["write_table", "save"])
        self._tell(f"overwrite {scope} by {door} {rows.to_pylist()} {kinds}")

        def there() -> None:
            frame = self._frame(rows, kinds, pieces=1)
            if door == "write_table":
                write_table(frame, self.there, overwrite=scope)
            else:
                target = frame.write.format("dredge").options(**self._place())
                target.option("partitionOverwriteMode", "dynamic").mode("overwrite").save()

        self._both(there, lambda: self.here.write(rows, kinds, overwrite=scope))

    def _compact(self) -> None:
        full, called = self.random.random() < 0.5, self.random.random() < 0.3
        self._tell(f"compact, full={full}, called={called}")

        def there() -> None:
            if called:
                how = "full" if full else "minor"
                text = f"sys.compact(table => '{self.name}', compact_strategy => '{how}')"
                call(self.spark, text, catalog=Catalog(str(self.roots[0])))
            else:
                compact_table(self.spark, self.there, full=full)

        self._both(there, lambda: self.here.compact(full=full))

    def _delete(self) -> None:
        chosen = self._filter()
        self._tell(f"delete where {chosen}")
        self._both(lambda: delete_where(self.spark, self.there, chosen), lambda: self.here.delete(chosen))

    def _update(self) -> None:
        free = [
            column
            for column in self.table.columns.names
            if column not in (*self.table.primary_keys, *self.table.partition_keys)
        ]
        free = [
            column for column in free if self.table.columns.types[column] in _TESTED and column not in self._ordering()
        ]
        if not free:
            return
        name, chosen = self.random.choice(free), self._filter()
        field = self.table.fields.field(name)
        values = {name: pa.scalar(self.table.columns.value(self.random, name), field.type).as_py()}
        self._tell(f"update {values} where {chosen}")
        self._both(
            lambda: update_where(self.spark, self.there, chosen, values), lambda: self.here.update(chosen, values)
        )

    def _delete_keys(self) -> None:
        rows, _ = self._rows()
        keys = rows.select(self.table.primary_keys)
        self._tell(f"delete keys {keys.to_pylist()}")
        groups = [
            [(name, "is null") if value is None else (name, "=", value) for name, value in row.items()]
            for row in keys.to_pylist()
        ]
        self._both(lambda: delete_keys(self.spark.createDataFrame(keys), self.there), lambda: self.here.delete(groups))

    def _both(self, there: Callable[[], object], here: Callable[[], object]) -> None:
        """Execute an operation on both sides; assert that both succeed or raise an error of the same name."""
        refused = ""
        try:
            here()
        except DredgeError as error:
            refused = type(error).__name__
            self._tell(f"  refused: {error}")
        try:
            there()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            assert refused and refused in text, f"only Spark refuses this, or for another reason: {text[:3000]}"
        else:
            assert not refused, f"Spark does what is refused here: {refused}"

    # -- comparing -----------------------------------------------------------------------------------------------------

    def agree(self) -> bool:
        """Assert that both tables have the same rows, also for Spark; return False if neither can be computed."""
        failed = []
        found: list[list[str]] = []
        for table in (self.there, self.here):
            try:
                found.append(canonical(table.to_arrow()))
            except DredgeError as error:
                failed.append(type(error).__name__)
        assert len(failed) != 1, f"only one of them can be read: {failed}"
        if failed:
            return False
        assert found[0] == found[1], f"through Spark {found[0]}\nhere {found[1]}"
        newest = [table.latest_snapshot() for table in (self.there, self.here)]
        if newest[0] is not None and newest[1] is not None:
            self.versions.append((newest[0].id, newest[1].id))
        self._read_by_spark(found[0])
        return True

    def _read_by_spark(self, rows: list[str]) -> None:
        """Read all rows, a random selection or changes by Spark, and compare with a read in this process."""
        if self.random.random() < 0.4:
            result = canonical(read_table(self.spark, self.there).toArrow())
            assert result == rows, f"Spark reads {result}\nof {rows}"
            return
        by_format = self.random.random() < 0.3
        table, asked = self.there, self._asked()
        self._tell(f"  read {asked}, by the format: {by_format}")
        result = canonical(
            (self._by_format(**asked) if by_format else read_table(self.spark, table, **asked)).toArrow()
        )
        between = asked.pop("incremental", None)
        if between is None:
            expected = table.to_arrow(**asked)
        else:
            expected = table.copy({"incremental-between": f"{between[0]},{between[1]}"}).to_arrow(**asked)
        assert result == canonical(expected), f"Spark reads {result}\nhere that is {canonical(expected)}"
        if "snapshot_id" in asked:
            twin = dict(self.versions).get(asked["snapshot_id"])
            if twin is not None:
                assert result == canonical(self.here.to_arrow(**{**asked, "snapshot_id": twin}))

    def _asked(self) -> dict[str, Any]:
        """Return random arguments of a read: columns, a filter, and a snapshot or a range of changes."""
        names, random = self.table.columns.names, self.random
        asked: dict[str, Any] = {}
        if random.random() < 0.5:
            asked["columns"] = random.sample(names, random.randint(1, len(names)))
        if random.random() < 0.6:
            asked["filter"] = self._filter()
        newest = self.versions[-1][0] if self.versions else 0
        if newest and random.random() < 0.5:
            asked["snapshot_id"] = random.randint(1, newest)
        elif newest and random.random() < 0.5:
            asked["incremental"] = tuple(sorted(random.choices(range(newest + 1), k=2)))
        return asked

    def _by_format(self, **asked: Any) -> Any:
        options = self._place()
        if "columns" in asked:
            options["columns"] = json.dumps(asked["columns"])
        if "filter" in asked:
            options["filter"] = json.dumps(asked["filter"], default=str)
        if "snapshot_id" in asked:
            options["snapshot-id"] = str(asked["snapshot_id"])
        if "incremental" in asked:
            options["incremental-between"] = ",".join(map(str, asked["incremental"]))
        return self.spark.read.format("dredge").options(**options).load()

    # -- drawing -------------------------------------------------------------------------------------------------------

    def _rows(self) -> tuple[pa.Table, pa.Array | None]:
        """Return random rows, and their kinds or None if all rows are inserted."""
        random, held = self.random, self.table.columns
        count = random.choice([1, 3, 8, 30])
        required = {field.name for field in self.table.fields if not field.nullable}
        made = [
            {name: held.pools[name](random) if name in required else held.value(random, name) for name in held.names}
            for _ in range(count)
        ]
        columns = [pa.array([row[field.name] for row in made], field.type) for field in self.table.fields]
        rows = pa.Table.from_arrays(columns, schema=self.table.fields)
        if self.table.adds_only or set(held.kinds) == {0} or random.random() < 0.3:
            return rows, None
        return rows, pa.array([RowKind(random.choice(held.kinds)).text for _ in range(count)])

    def _frame(self, rows: pa.Table, kinds: pa.Array | None, pieces: int) -> Any:
        """Convert rows and kinds to a Spark data frame, in one partition if ``pieces`` is 1."""
        given = rows if kinds is None else rows.append_column("_row_kind", kinds)
        frame = self.spark.createDataFrame(given)
        return frame.coalesce(1) if pieces == 1 else frame

    def _filter(self) -> list[Any]:
        """Return a random filter: a list of conditions, or a list of groups of conditions."""
        groups = [
            [self._test() for _ in range(self.random.choice([1, 1, 2]))] for _ in range(self.random.choice([1, 1, 2]))
        ]
        return groups if len(groups) > 1 else groups[0]

    def _test(self) -> tuple[str, str, Any]:
        random, held = self.random, self.table.columns
        named = [name for name in held.names if held.types[name] in _TESTED]
        name = random.choice(named)
        if random.random() < 0.15:
            return name, random.choice(["is null", "is not null"]), None
        kind = self.table.fields.field(name).type
        value, other = (pa.scalar(held.pools[name](random), kind).as_py() for _ in range(2))
        if held.types[name] == "DATE":
            return name, random.choice(["is null", "is not null"]), None
        if held.types[name] == "DOUBLE" and not math.isfinite(value):  # JSON has no such numbers
            value = 0.5
        if random.random() < 0.2 and held.types[name] != "DOUBLE":
            return name, "in", [value, other]
        return name, random.choice(["=", "<", "<=", ">", ">="]), value

    def _ordering(self) -> set[str]:
        return {
            name for key, text in self.table.options.items() if key.startswith("sequence.") for name in text.split(",")
        }

    def _place(self) -> dict[str, str]:
        return {"warehouse": str(self.roots[0]), "table": self.name}

    def _tell(self, text: str) -> None:
        self.told.append(text)


def live_a_life(seed: int, root: Path, spark: Any, option: str = "") -> int:
    """Execute the random history of a seed; return the number of steps.

    Args:
        seed: the seed.
        root: folder of the two warehouses.
        spark: the session.
        option: one of `NEWER`, which the table has; "" for none.

    Raises:
        AssertionError: a comparison or step failed; the message has the seed and the executed operations.
    """
    life = None
    try:
        life = Life(seed, root, spark, option)
        return life.live()
    except Exception as error:
        story = "\n".join(life.told if life is not None else ())
        raise AssertionError(f"seed {seed}:\n{story[:6000]}\n{type(error).__name__}: {error}") from error

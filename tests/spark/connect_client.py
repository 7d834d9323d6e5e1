"""Client of a Spark Connect server in its own process: executes all kinds of operations and prints results as JSON.

A process with a classic session cannot have a Connect session.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from lsm_core import Catalog, Schema, Table
from lsm_core.cli.app import run
from lsm_core.errors import DredgeError
from lsm_core.spark import (
    call,
    delete_keys,
    delete_where,
    read_table,
    spark_session,
    stop_session,
    update_where,
    upsert,
    write_table,
)
from tests.spark.random_lives import live_a_life

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def place(root: Path, name: str) -> dict[str, str]:
    """Return the data source options that name a table."""
    return {"warehouse": str(root), "table": name}


def made(root: Path, name: str, **options: str) -> Table:
    """Create a table of two columns; in option names, _ stands for a dash."""
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    values = {"bucket": "2", **{key.replace("_", "-"): text for key, text in options.items()}}
    return catalog.create_table(name, Schema(FIELDS, primary_keys=["k"], options=values))


def held(table: Table) -> dict[int, str]:
    """Return the values of a table by key."""
    return {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}


def streams(spark: Any, root: Path) -> Any:
    """Copy a table's changes twice by `writeStream` and once by `foreachBatch`; return whether each copy is equal."""
    table, copy = made(root, "db.followed", changelog_producer="input"), made(root, "db.copy")
    batches = made(root, "db.batches")
    changes = spark.readStream.format("dredge").options(**place(root, table.name), **{"read.changelog": "true"}).load()

    def follow() -> dict[int, str]:
        target = changes.writeStream.format("dredge").options(**place(root, copy.name))
        query = target.option("checkpointLocation", f"{root}/at").trigger(availableNow=True).start()
        query.awaitTermination(120)
        return held(copy)

    table.write(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}, FIELDS))
    result = [follow() == held(table)]
    table.write(pa.table({"k": [1, 2], "v": ["a2", "b"]}, FIELDS), row_kinds=pa.array(["+U", "-D"]))
    result.append(follow() == held(table) == {1: "a2", 3: "c"})

    def batch(frame: Any, number: int) -> None:
        write_table(frame, batches, commit_user="copies", commit_identifier=number)

    target = changes.writeStream.foreachBatch(batch).option("checkpointLocation", f"{root}/batches")
    target.trigger(availableNow=True).start().awaitTermination(120)
    result.append(held(batches) == held(table))
    return result


def reads(spark: Any, root: Path) -> Any:
    """Read a table with filters, columns, a snapshot and changes; return row counts and values."""
    table = made(root, "db.filtered")
    table.write(pa.table({"k": [1, 2, 3], "v": ["a", None, "c"]}, FIELDS))
    table.write(pa.table({"k": [3], "v": ["C"]}, FIELDS))
    source = spark.read.format("dredge").options(**place(root, table.name))
    return [
        source.option("filter", '[["k", ">", 1]]').load().count(),
        [row.v for row in read_table(spark, table, columns=["v"], filter=[("k", "=", 3)]).collect()],
        read_table(spark, table, snapshot_id=1).where("v = 'c'").count(),
        read_table(spark, table, incremental=(1, 2)).count(),
    ]


def procedures(spark: Any, root: Path) -> Any:
    """Execute procedures and statements that change rows; return their results and the rows."""
    table = Catalog(str(root)).table("db.filtered")
    spark.conf.set("spark.dredge.warehouse", str(root))
    result: list[Any] = call(spark, "CALL sys.create_tag('db.filtered', 'before')").lines
    result.append(len(call(spark, "sys.compact(table => 'db.filtered')").reports))
    try:
        call(spark, "sys.compact('db.none')")
    except DredgeError as error:
        result.append(type(error).__name__)
    delete_where(spark, table, [("k", "=", 1)])
    update_where(spark, table, [("k", "=", 2)], {"v": "two"})
    upsert(spark.sql("SELECT 4L k, 'four' v"), table)
    delete_keys(spark.sql("SELECT 3L k"), table)
    return [*result, sorted(held(table).items())]


def queries(root: Path) -> Any:
    """Run `dredge sql` with a valid and an invalid query; return exit codes with rows or number of error lines."""
    records: list[Any] = []
    for text in (
        "SELECT k, v FROM db.filtered VERSION AS OF 'before' WHERE k > 1 ORDER BY k",
        "SELECT v + 1 FROM db.filtered",
    ):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = run(["sql", text, "--warehouse", str(root), "--json"])
        records.append([code, json.loads(out.getvalue())["rows"] if code == 0 else len(err.getvalue().splitlines())])
    return records


def main(root: Path, seeds: list[int]) -> None:
    """Execute all operations and print their results as one JSON line."""
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    spark = spark_session()
    changes = {
        "streams": streams(spark, root),
        "reads": reads(spark, root),
        "procedures": procedures(spark, root),
        "queries": queries(root),
        "lives": [live_a_life(seed, root / "lives", spark) for seed in seeds],
    }
    print("ANSWER:" + json.dumps(changes), flush=True)
    stop_session(spark)


if __name__ == "__main__":
    assert "DREDGE_SPARK_REMOTE" in os.environ
    main(Path(sys.argv[1]), [int(text) for text in sys.argv[2:]])

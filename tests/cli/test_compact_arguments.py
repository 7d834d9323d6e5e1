"""`dredge compact` and `dredge maintain` with the arguments of Paimon's own compaction jobs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.clock import FixedClock
from tests.cli.shell import Shell
from tests.maintenance.tables import HOUR, NOW, catalog, rows


def test_compact_takes_partitions_without_new_data_and_the_words_of_paimon(shell: Shell) -> None:
    late = Catalog(shell.place, clock=FixedClock(NOW + HOUR))
    late.table("db.t").write(rows([1], v=9, dt="b"))
    plan = shell(
        "compact", "db.t", "--partition-idle-time", "90 min", "--compact-strategy", "full", "--dry-run", "--json"
    )
    assert [item["partition_text"] for item in plan.json["items"]] == ["dt=a"] and plan.json["items"][0]["full"]
    nothing = shell("compact", "db.t", "--partition-idle-time", "7d", "--dry-run", "--json")
    assert nothing.json["items"] == [] and nothing.json["declined"][0]["text"].endswith("without new data for 7d")
    assert (
        "would compact"
        in shell("compact", "db.t", "--compact-strategy", "minor", "--where", "dt = 'a'", "--dry-run").out
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--compact-strategy", "big"), "'compact_strategy' of table db.t cannot be 'big'"),
        (("--full", "--compact-strategy", "minor"), "'compact_strategy'"),
        (("--partition-idle-time", "7 weeks"), "'partition_idle_time' of table db.t cannot be '7 weeks'"),
        (("--order-strategy", "zorder"), "'clustering.columns' names none"),
        (("--where", "v > 3"), "'v' is not a partition column"),
    ],
)
def test_what_compact_cannot_do_is_one_clear_error(shell: Shell, arguments: tuple[str, ...], named: str) -> None:
    answer = shell("compact", "db.t", *arguments)
    assert answer.code == 1 and named in answer.err and answer.out == ""


def test_a_sort_by_strategy_alone_follows_the_clustering_columns(shell: Shell) -> None:
    fields = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    options = {"bucket": "-1", "clustering.columns": "b, a"}
    table = catalog(shell.place.parent).create_table("db.heap", Schema(fields, [], [], options))
    for start in range(3):
        table.write(pa.table({"a": [start, 5], "b": [9 - start, 1]}, fields))
    plan = shell("compact", "db.heap", "--order-strategy", "auto", "--dry-run", "--json").json
    assert (plan["items"][0]["order_by"], plan["items"][0]["strategy"]) == (["b", "a"], "zorder")
    plan = shell("compact", "db.heap", "--order-strategy", "order", "--order-by", "a", "--dry-run", "--json").json
    assert (plan["items"][0]["order_by"], plan["items"][0]["strategy"]) == (["a"], "order")
    assert shell("compact", "db.heap", "--strategy", "order", "--set", "clustering.strategy=hilbert").code == 0
    assert table.store is not None and table.to_arrow().column("b").to_pylist() == [1, 1, 1, 7, 8, 9]


def test_maintain_takes_each_table_by_itself_where_it_is_asked_to(shell: Shell) -> None:
    other = catalog(shell.place.parent).create_table(
        "db.a", Schema(pa.schema([pa.field("k", pa.int64(), nullable=False)]), ["k"], [], {"bucket": "1"})
    )
    for key in range(6):
        other.write(pa.table({"k": [key]}, other.schema.arrow_schema))
    result = shell("maintain", "db", "--mode", "divided", "--action", "compact", "--max-tables", "1", "--json").json
    assert [(line["table"], line["outcome"]) for line in result["lines"]] == [("db.a", "done")]
    assert [(item["subject"], item["reason"]) for item in result["declined"]] == [("db.t", "later")]
    result = shell("maintain", "db", "--mode", "divided", "--action", "compact").out
    assert "db.t: compact: done" in result
    assert "--resume goes on" in shell("maintain", "--resume", "0" * 32, "--mode", "divided").err
    assert shell("maintain", "db", "--mode", "both").code == 2


def test_a_partition_of_a_table_without_partitions_is_refused_in_plain_words(shell: Shell) -> None:
    catalog = Catalog(shell.place, clock=FixedClock(NOW))
    catalog.create_table("db.plain", Schema(pa.schema([("v", pa.int64())])))
    answer = shell("compact", "db.plain", "--partition", "dt=1")
    assert answer.code == 1 and "(none)" not in answer.err
    assert answer.err.strip().endswith("accepted: no partition: db.plain is not partitioned")

"""Calls as the pages of Paimon's Spark and Flink document them: by position and by name, in both engines' spellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.errors import InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.sql.procedures import NOT_OFFERED, PROCEDURES, prepare_call

OPTIONS = {"sink.parallelism": "4"}

BOUND: list[tuple[str, dict[str, Any]]] = [
    # compact: Spark's order, Flink's order, Flink's short form, Flink 1.18 with blanks in place of omitted arguments
    ("compact('d.t')", {}),
    ("compact('d.t', 'p=0;p=1')", {"partitions": [{"p": "0"}, {"p": "1"}]}),
    ("compact('d.t', 'p=0', 'minor')", {"partitions": [{"p": "0"}], "compact_strategy": "minor"}),
    ("compact('d.t', '', '', 'zorder', 'a,b')", {"order_strategy": "zorder", "order_by": ["a", "b"]}),
    ("compact('d.t', 'zorder', 'a,b')", {"order_strategy": "zorder", "order_by": ["a", "b"]}),
    (
        "compact('d.t', 'p=0', 'zorder', 'a,b', 'sink.parallelism=4')",
        {"partitions": [{"p": "0"}], "order_strategy": "zorder", "order_by": ["a", "b"], "options": OPTIONS},
    ),
    ("compact('d.t', '', '', '', 'sink.parallelism=4')", {"options": OPTIONS}),
    (
        "compact('d.t', '', '', '', 'sink.parallelism=4', 'dt>10 and h<20')",
        {"options": OPTIONS, "where": "dt>10 and h<20"},
    ),
    (
        "compact('d.t', '', '', '', 'sink.parallelism=4', '', '60s', 'full')",
        {"options": OPTIONS, "partition_idle_time": 60_000, "compact_strategy": "full"},
    ),
    ("compact(table => 'd.t', buckets => '0-3,7')", {"buckets": [0, 1, 2, 3, 7]}),
    ("compact('d.t', compact_strategy => 'minor')", {"compact_strategy": "minor"}),
    # compact_database
    ("compact_database()", {}),
    ("compact_database('db1|db2', 'combined')", {"mode": "combined"}),
    ("compact_database('db1', 'divided', '.*', 'ignore')", {"mode": "divided"}),
    ("compact_database('db1', '', '', '', 'sink.parallelism=4')", {"table_options": OPTIONS}),
    ("compact_database('db1', '', '', 'sink.parallelism=4')", {"options": OPTIONS}),
    (
        "compact_database(including_databases => 'a', mode => 'combined', table_options => 'sink.parallelism=4')",
        {"mode": "combined", "table_options": OPTIONS},
    ),
    # manifests
    (
        "compact_manifest('d.t', manifest_sort_enabled => true, manifest_sort_max_rewrite_size => '1 gb')",
        {"manifest_sort_enabled": True, "manifest_sort_max_rewrite_size": "1 gb"},
    ),
    # tags
    (
        "create_tag(`table` => 'd.t', tag => 'g', snapshot_id => cast(10 as bigint), time_retained => '1 d')",
        {"tag": "g", "snapshot": 10, "time_retained": "1 d"},
    ),
    ("create_tag('d.t', 'g', 10)", {"tag": "g", "snapshot": 10}),
    ("replace_tag(table => 'd.t', tag => 'g', snapshot_id => 5)", {"tag": "g", "snapshot": 5}),
    ("rename_tag(`table` => 'd.t', tagName => 'a', targetTagName => 'b')", {"tag": "a", "target_tag": "b"}),
    ("rename_tag('d.t', 'a', target_tag => 'b')", {"tag": "a", "target_tag": "b"}),
    (
        "create_tag_from_watermark('d.t', 'g', 1724404318750, '1 d')",
        {"tag": "g", "watermark": 1724404318750, "time_retained": "1 d"},
    ),
    # rollbacks
    ("rollback_to('d.t', 10)", {"snapshot_id": 10}),
    ("rollback_to('d.t', 'g')", {"tag": "g"}),
    ("rollback_to('d.t', '10')", {"tag": "10"}),
    ("compact('d.t', '', 'minor')", {"compact_strategy": "minor"}),
    ("rollback_to_as_latest('d.t', cast(null as string), 10)", {"snapshot_id": 10}),
    ("rollback_to_as_latest('d.t', 'g', cast(null as bigint))", {"tag": "g"}),
    ("rollback_to_as_latest(`table` => 'd.t', snapshot_id => 10)", {"snapshot_id": 10}),
    # expiry
    ("expire_snapshots('d.t', 2)", {"retain_max": 2}),
    ("expire_changelogs('d.t', true)", {"delete_all": True}),
    ("expire_changelogs('d.t', 4, 2, '2024-01-01 12:00:00', 2)", {"retain_max": 4, "retain_min": 2, "max_deletes": 2}),
    (
        "expire_partitions('d.t', '1 d', 'yyyy-MM-dd', '$dt', 'values-time')",
        {"timestamp_formatter": "yyyy-MM-dd", "timestamp_pattern": "$dt", "expire_strategy": "values-time"},
    ),
    (
        "expire_partitions('d.t', '1 d', 'yyyy-MM-dd', 'update-time', 'partition.expiration-max-num=2')",
        {"timestamp_formatter": "yyyy-MM-dd", "expire_strategy": "update-time"},
    ),
    ("drop_partition('d.t', 'dt=2024-07-01')", {"partitions": [{"dt": "2024-07-01"}]}),
    ("drop_partition('d.t', 'dt=1,h=2', 'dt=3')", {"partitions": [{"dt": "1", "h": "2"}, {"dt": "3"}]}),
    # rescale: Spark's `partitions`, Flink's `partition`
    (
        "rescale(table => 'd.t', bucket_num => 16, partitions => 'dt=1,hh=08')",
        {"partitions": [{"dt": "1", "hh": "08"}]},
    ),
    (
        "rescale(`table` => 'd.t', bucket_num => 16, `partition` => 'dt=1,hh=08')",
        {"partitions": [{"dt": "1", "hh": "08"}]},
    ),
    ("rescale('d.t', 16, 'dt=1', 2, 4)", {"partitions": [{"dt": "1"}], "scan_parallelism": 2, "sink_parallelism": 4}),
    ("rescale('d.t', 16, '', 'dt > 1')", {"where": "dt > 1"}),
    # consumers
    (
        "reset_consumer(`table` => 'd.t', consumer_id => 'm', next_snapshot_id => cast(10 as bigint))",
        {"consumerId": "m", "nextSnapshotId": 10},
    ),
    ("clear_consumers(table => 'd.t', including_consumers => '', excluding_consumers => 'm1.*')", {}),
    # repair and files
    ("repair()", {}),
    ("repair('d.t,e,d.u')", {"database_or_table": "d.t,e,d.u"}),
    ("repair(`table` => 'd.t')", {"database_or_table": "d.t"}),
    ("repair_earliest_snapshot(`table` => 'd.t', snapshot_id => 10)", {"snapshot_id": 10}),
    ("remove_unexisting_files('d.*', 'true', '3')", {"dry_run": True, "parallelism": 3}),
    ("remove_unexisting_manifests(`table` => 'd.t$branch_rt')", {}),
    (
        "remove_orphan_files('d.*', '2023-10-31 12:00:00', 'true', '5', 'local')",
        {"dry_run": True, "parallelism": 5, "mode": "local"},
    ),
    (
        "merge_branch(`table` => 'd.t', source_branch => 'a', target_branch => 'b')",
        {"source_branch": "a", "target_branch": "b"},
    ),
    ("merge_branch('d.t', 'a')", {"source_branch": "a"}),
    ("rewrite_file_index('d.t')", {}),
    ("rewrite_file_index('d.t', 'pt=a')", {"partitions": [{"pt": "a"}]}),
    ("rewrite_file_index(table => 'd.t', where => \"day = '2025-08-17'\")", {"where": "day = '2025-08-17'"}),
    ("rewrite_file_index('d.t', \"day = '2025-08-17'\")", {"where": "day = '2025-08-17'"}),
    ("rewrite_file_index('d.t', 'day > 3')", {"where": "day > 3"}),
    # columns
    (
        "alter_column_default_value(`table` => 'd.t', `column` => 'status', default_value => 'active')",
        {"column": "status", "default_value": "active"},
    ),
    ("create_branch(`table` => 'd.t$branch_b', branch => 'c', tag => 'g')", {"branch": "c", "tag": "g"}),
]


@pytest.mark.parametrize(("text", "expected"), BOUND, ids=[text for text, _ in BOUND])
def test_a_documented_call_is_bound(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    call = prepare_call(Catalog(str(tmp_path)), f"CALL paimon.sys.{text};")
    patterns = ("including", "excluding", "table", "older_than", "expiration_time")
    others = {
        name: value for name, value in call.arguments.items() if name not in expected and not name.startswith(patterns)
    }
    assert {name: call.arguments[name] for name in expected} == expected
    # `options` of the second documented order of expire_partitions is the only further argument
    assert set(others) <= {"retain_max", "bucket_num", "options"} and ("options" not in others or "update-time" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compact_database('a', '', 'x')", "arguments by name: these values fit"),
        ("create_tag('d.t', 'g', tag => 'h')", "one value for the argument tag"),
        ("rename_tag('d.t', 'g', tagName => 'h')", "one value for the argument tag"),
        ("repair('a', 'b')", r"sys\.repair\(\[database_or_table\]\)"),
        ("compact('d.t', buckets => '3-1')", "whole numbers or ranges"),
        ("compact('d.t', buckets => '0-99999999')", "whole numbers or ranges"),
        ("remove_unexisting_files(table => 'd.t', dry_run = true)", "write => between the argument dry_run"),
        ("compakt('d.t')", "perhaps sys.compact"),
        ("drop_partition('d.t', 'dt=1', null)", "'partitions' cannot be"),
        ("query_statistics('d.t')", "perhaps sys.query_service"),
        ("creat_global_indx('d.t')", "perhaps sys.create_global_index"),
    ],
)
def test_a_call_that_fits_nothing_is_refused_with_advice(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=message):
        prepare_call(Catalog(str(tmp_path)), f"CALL sys.{text}")


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_a_procedure_that_is_not_offered_says_why(name: str, tmp_path: Path) -> None:
    assert name not in PROCEDURES
    with pytest.raises(UnsupportedFeature, match=f"sys.{name}: .{{20,}}"):
        prepare_call(Catalog(str(tmp_path)), f"CALL sys.{name}()")


def test_the_new_procedures_on_a_table(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("d")
    fields = pa.schema([pa.field("dt", pa.string()), pa.field("k", pa.int64()), pa.field("v", pa.string())])
    table = catalog.create_table("d.t", Schema(fields, partition_keys=["dt"], options={"write-only": "true"}))
    for number, watermark in enumerate((None, 5, 9)):
        rows = pa.table({"dt": ["a", "b"], "k": [number] * 2, "v": ["x", "y"]}, fields)
        table.write(rows, watermark=watermark)

    def call(text: str) -> list[str]:
        return prepare_call(catalog, f"CALL sys.{text}").apply().lines

    call("create_tag_from_watermark('d.t', 'w', 6)")
    assert catalog.table("d.t").tags()["w"].snapshot.id == 3
    with pytest.raises(SnapshotNotFound, match="a watermark of 10 or later"):
        call("create_tag_from_watermark('d.t', 'x', 10)")
    call("create_tag('d.t', 'last', 3)")
    call("create_tag_from_watermark('d.t', 'first', 1)")
    assert catalog.table("d.t").tags()["first"].snapshot.id == 2
    call("rollback_to_as_latest('d.t', cast(null as string), 1)")
    assert catalog.table("d.t").to_arrow().num_rows == 2
    assert call("drop_partition('d.t', 'dt=none')") == ["nothing to do"]
    call("drop_partition('d.t', 'dt=b')")
    assert catalog.table("d.t").to_arrow().column("dt").to_pylist() == ["a"]
    call("alter_column_default_value('d.t', 'v', 'unset')")
    catalog.table("d.t").write(pa.table({"dt": ["c"], "k": [7]}))
    assert "unset" in catalog.table("d.t").to_arrow().column("v").to_pylist()
    indexing = "rewrite_file_index('d.t', 'dt=a')"
    with pytest.raises(InvalidOption, match="ALTER TABLE first"):
        call(indexing)
    catalog.alter_table("d.t", [SchemaChange.set_option("file-index.bloom-filter.columns", "k")])
    assert "the indexes of 1 files of d.t were written" in call(indexing)[0]
    call("repair_earliest_snapshot('d.t', 2)")
    assert (tmp_path / "d.db/t/snapshot/EARLIEST").read_text() == "2"
    for number in (0, 99):
        with pytest.raises(SnapshotNotFound, match=f"no snapshot {number}; its snapshots are"):
            call(f"repair_earliest_snapshot('d.t', {number})")
    call("repair()")
    assert (tmp_path / "d.db/t/snapshot/EARLIEST").read_text() == "1"
    assert prepare_call(catalog, "CALL sys.remove_unexisting_files('d.*', true)").apply().plans[0].table == "d.t"

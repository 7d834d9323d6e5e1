"""Gates: whatever Dredge cannot keep up is refused by name before anything is written, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import DataField
from lsm_core.metadata import (
    Purpose,
    TableStore,
    manifests,
    require_compactable,
    require_readable,
    require_writable,
    unsupported,
)
from lsm_core.metadata.store import write_schema
from lsm_core.metadata.support import require_plain_files
from lsm_core.types import parse
from tests.metadata.tables import entry, make_store, publish, table_of
from tests.support.data import golden_names, unpack_golden

READ, WRITE, COMPACT = Purpose


@pytest.mark.parametrize(
    ("options", "feature", "first_refused"),
    [
        ({"file.format": "lance"}, "file format 'lance'", READ),
        ({"file.format.per.level": "0:csv"}, "file format 'csv' in a table with a primary key: Paimon .* wrong", READ),
        ({"file.format": "row"}, "file format 'row' in a table with a primary key: .*'file.format' = 'parquet'", READ),
        ({"changelog-file.format": "text"}, "file format 'text' in a table with a primary key", WRITE),
        ({"pk-clustering-override": "true"}, "not sorted by key", READ),
        ({"pk-clustering-override": "true", "deletion-vectors.enabled": "true"}, "not sorted by key", COMPACT),
        ({"bucket": "-2", "changelog-producer": "input"}, "postponed buckets", WRITE),
        ({"data-evolution.enabled": "true"}, "data evolution without", READ),
        ({"type": "format-table"}, "format-table", READ),
        ({"scan.fallback-snapshot-branch": "b"}, "fallback branches", READ),
        ({"sequence.snapshot-ordering": "true", "bucket": "-2"}, "postponed buckets .* 'sequence", WRITE),
        ({"file-index.ngram.columns": "v"}, "file index 'ngram'", WRITE),
        (
            {"data-file.external-paths": "file:/x", "data-file.external-paths.strategy": "round-robin"},
            "DREDGE_EXTERNAL_ROOTS",
            WRITE,
        ),
        ({"global-index.external-path": "file:/x"}, "global-index.external-path", WRITE),
        ({"metadata.iceberg.storage": "hive-catalog", "metadata.iceberg.glue.skip-archive": "true"}, "AWS Glue", WRITE),
        ({"metadata.iceberg.storage": "rest-catalog"}, "'rest-catalog', .* REST catalog", WRITE),
        ({"commit.callbacks": "com.example.Callback"}, "commit callbacks", WRITE),
    ],
)
def test_an_option_that_asks_for_more_is_refused(
    tmp_path: Path, options: dict[str, str], feature: str, first_refused: Purpose
) -> None:
    store = make_store(tmp_path, options=options)
    if first_refused is READ:
        _refuses(require_readable, store, feature)
    else:
        require_readable(store)
    if first_refused is COMPACT:
        require_writable(store)
    else:
        _refuses(require_writable, store, feature)
    _refuses(require_compactable, store, feature)


def _refuses(gate: object, store: TableStore, feature: str) -> None:
    with pytest.raises(UnsupportedFeature, match=feature) as caught:
        gate(store)  # type: ignore[operator]
    assert caught.value.table == "db.t"


def test_formats_whose_files_do_not_name_their_columns_are_accepted_where_java_reads_them(tmp_path: Path) -> None:
    texts, append = {"v": "STRING"}, {"bucket": "-1"}
    accepted = [make_store(tmp_path / "keyed", options={"file.format": "json"})]
    for name in ("row", "csv", "json", "text"):
        accepted.append(make_store(tmp_path / name, texts, keys=(), options={**append, "file.format": name}))
    for store in accepted:
        for gate in (require_readable, require_writable, require_compactable):
            gate(store)
    tracking = {**append, "file.format": "row", "row-tracking.enabled": "true"}
    _refuses(require_readable, make_store(tmp_path / "tracked", keys=(), options=tracking), "'row' with 'row-tracking")
    wide = make_store(tmp_path / "wide", keys=(), options={**append, "file.format": "text"})
    _refuses(require_readable, wide, "'text' in a table with more than one text column")


def test_what_is_supported_passes_every_gate(tmp_path: Path) -> None:
    kinds = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "VARCHAR(9)", "DATE", "DECIMAL(38, 9)", "TIMESTAMP(0)", "TIMESTAMP(6)",
             "CHAR(3)", "BINARY(4)", "BYTES", "TIME(3)", "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "ARRAY<MAP<STRING, INT>>", "MULTISET<STRING>")  # fmt: skip
    fields = {"k": "BIGINT NOT NULL", **{f"c{i}": kind for i, kind in enumerate(kinds)}}
    options = {
        "sequence.field": "c4,c9",
        "write-only": "true",
        "snapshot.num-retained.min": "3",
        "partition.expiration-time": "7 d",
        "file.format.per.level": "0:avro,5:orc",
        "file-index.bloom-filter.columns": "c4",
    }
    fixed = make_store(tmp_path / "a", fields, options=options)
    append = make_store(tmp_path / "b", fields, keys=(), options={"bucket": "-1"})
    partitioned = make_store(tmp_path / "c", fields, keys=("k", "c9"), partitions=("c9",))
    telling = [
        make_store(tmp_path / producer, fields, options={**options, "changelog-producer": producer})
        for producer in ("input", "lookup", "full-compaction")
    ]
    looking = make_store(tmp_path / "d", fields, options={**options, "force-lookup": "true"})
    for store in (fixed, append, partitioned, *telling, looking):
        for gate in (require_readable, require_writable, require_compactable):
            gate(store)
        assert unsupported(store, Purpose.COMPACT) == []


def test_append_tables_with_buckets_are_kept_up(tmp_path: Path) -> None:
    store = make_store(tmp_path, keys=(), options={"bucket": "4", "bucket-key": "k"})
    for gate in (require_readable, require_writable, require_compactable):
        gate(store)


def test_append_tables_with_buckets_need_a_bucket_key(tmp_path: Path) -> None:
    store = make_store(tmp_path, keys=(), options={"bucket": "4"})
    require_readable(store)
    for gate in (require_writable, require_compactable):
        _refuses(gate, store, "no bucket-key")


def test_keys_without_all_partition_columns_are_not_written_into_postponed_buckets(tmp_path: Path) -> None:
    fields, keys = {"dt": "STRING", "k": "BIGINT NOT NULL"}, (["k"], ["dt"])
    for bucket in ("2", "-1"):
        require_compactable(make_store(tmp_path / bucket, fields, *keys, options={"bucket": bucket}))
    store = make_store(tmp_path / "postponed", fields, *keys, options={"bucket": "-2"})
    require_readable(store)
    _refuses(require_compactable, store, "cross-partition")


@pytest.mark.parametrize("kind", ["GEOMETRY", "BLOB", "ARRAY<GEOMETRY>", "MAP<INT, ARRAY<BLOB>>"])
def test_columns_of_other_types_are_refused_by_name_however_deep(tmp_path: Path, kind: str) -> None:
    store = make_store(tmp_path, {"k": "BIGINT NOT NULL", "odd": kind})
    _refuses(require_readable, store, f"column 'odd' of type {kind[:4]}")


def test_files_of_an_older_schema_are_kept_up_but_not_shown_to_plain_readers(tmp_path: Path) -> None:
    first = make_store(tmp_path)
    snapshot = publish(first, 1, None, table_of(entry(first, "a.parquet")))
    fields = (*first.schema.fields, DataField(2, "w", parse("INT")))
    assert write_schema(first.file_io, first.root, replace(first.schema, id=1, fields=fields, highest_field_id=2))
    store = first.refresh()
    for gate in (require_readable, require_writable, require_compactable):
        gate(store)
    live = manifests.live_entries(store, snapshot)
    require_plain_files(first, snapshot, live)
    with pytest.raises(UnsupportedFeature, match=r"older schema \(id 0, now 1\)"):
        require_plain_files(store, snapshot, live)
    with pytest.raises(UnsupportedFeature, match="another format"):
        require_plain_files(first, snapshot, table_of(entry(first, "a.orc")))


def test_files_of_another_format_are_refused_even_when_the_option_has_changed(tmp_path: Path) -> None:
    first = make_store(tmp_path, options={"file.format": "lance"})
    publish(first, 1, None, table_of(entry(first, "a.lance")))
    assert write_schema(first.file_io, first.root, replace(first.schema, id=1, options={"bucket": "2"}))
    _refuses(require_readable, first.refresh(), "file format 'lance'")
    publish(first, 2, None, table_of())
    require_readable(first.refresh())


@pytest.mark.skipif(not {"dv_pk", "dynamic_bucket"} <= set(golden_names()), reason="another golden folder was named")
def test_indexes_in_use_are_noticed_whatever_the_options_say(tmp_path: Path) -> None:
    from lsm_core.storage import LocalFileIO

    for name, option, feature, gate in (
        ("dv_pk", "deletion-vectors.enabled", "deletion vectors", require_writable),
        ("dynamic_bucket", "bucket", "hash index", require_compactable),
    ):
        root = unpack_golden(name, tmp_path / name)
        store = TableStore.open(LocalFileIO(), str(root), "db.t")
        options = {k: v for k, v in store.schema.options.items() if k != option} | (
            {"bucket": "2"} if option == "bucket" else {}
        )
        schema = replace(store.schema, options=options)
        disguised = TableStore(store.file_io, store.root, "db.t", schema, identity=store.identity)
        _refuses(gate, disguised, feature)

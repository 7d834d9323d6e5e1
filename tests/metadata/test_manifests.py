"""Manifests: what is written comes back, pruning loses nothing, damage is told by file, many files stay quick."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, InvalidData, StorageFull, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, encode_row
from lsm_core.format.manifest import (
    ENTRY_SCHEMA,
    IndexManifestEntry,
    ManifestEntry,
    decode_index_manifest,
    decode_manifest,
    encode_index_manifest,
    encode_manifest_list,
    table_to_entries,
)
from lsm_core.metadata import TableStore, bucket_groups, manifests, snapshots, tree_files
from lsm_core.metadata.manifests import fast_decode
from lsm_core.storage import FaultyFileIO, InjectedFault, Kept, LocalFileIO
from tests.metadata.tables import entry, make_store, publish, table_of
from tests.support.references import all_references, metadata_references
from tests.support.samples import examples

PARTITIONED = {"dt": "STRING", "k": "BIGINT NOT NULL", "v": "DOUBLE"}


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return make_store(tmp_path)


def names(entries: pa.Table) -> list[str]:
    found: list[str] = entries.column("file_name").to_pylist()
    return sorted(found)


def test_adds_and_deletes_cancel_across_base_and_delta(store: TableStore) -> None:
    base = table_of(entry(store, "a"), entry(store, "b"), entry(store, "c", level=1))
    upgrade = (entry(store, "b", kind=1), entry(store, "b", level=2))
    snapshot = publish(store, 1, base, table_of(entry(store, "a", kind=1), *upgrade, entry(store, "d")))
    live = manifests.live_entries(store, snapshot)
    assert live.schema == ENTRY_SCHEMA
    assert [(e.file.file_name, e.file.level) for e in table_to_entries(live)] == [("c", 1), ("b", 2), ("d", 0)]
    assert manifests.delta_entries(store, snapshot).num_rows == 4
    assert manifests.live_entries(store, snapshot, columns=["level", "file_name"]).column_names == [
        "level",
        "file_name",
    ]


def test_a_file_added_twice_is_corrupt(store: TableStore) -> None:
    snapshot = publish(store, 1, table_of(entry(store, "a")), table_of(entry(store, "a")))
    with pytest.raises(CorruptFile, match="a is added twice"):
        manifests.live_entries(store, snapshot)


def test_an_empty_commit_has_no_manifest(store: TableStore) -> None:
    assert manifests.write_manifests(store, ENTRY_SCHEMA.empty_table()) == []
    snapshot = publish(store, 1, None, ENTRY_SCHEMA.empty_table())
    assert manifests.live_entries(store, snapshot).num_rows == 0
    assert manifests.delta_entries(store, snapshot).schema == ENTRY_SCHEMA


ENTRIES = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "ä", ""]), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12
)


@given(
    ENTRIES, st.sets(st.sampled_from([None, "a", "b", "ä", "", "zz"])), st.sets(st.integers(0, 3)), st.integers(1, 5)
)
@settings(max_examples=examples(30), deadline=None)
def test_pruning_gives_what_filtering_gives(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str | None, int, int]],
    partitions: set[str | None],
    buckets: set[int],
    per_manifest: int,
) -> None:
    store = make_store(tmp_path_factory.mktemp("t"), PARTITIONED, ["dt", "k"], ["dt"])
    made = [entry(store, f"f{i}", 0, [dt], bucket, level) for i, (dt, bucket, level) in enumerate(rows)]
    metas = []
    for start in range(0, len(made), per_manifest):
        metas += manifests.write_manifests(store, table_of(*made[start : start + per_manifest]))
    name, size = manifests.write_list(store, metas)
    snapshot = replace(
        publish(store, 1, None, ENTRY_SCHEMA.empty_table()), base_manifest_list=name, base_manifest_list_size=size
    )
    wanted = [encode_row([dt], store.schema.partition_types) for dt in partitions]
    found = names(manifests.live_entries(store, snapshot, partitions=wanted, buckets=buckets, levels=[0, 2]))
    assert found == sorted(
        f"f{i}"
        for i, (dt, bucket, level) in enumerate(rows)
        if dt in partitions and bucket in buckets and level in (0, 2)
    )
    assert manifests.live_entries(store, snapshot).num_rows == len(rows)


def test_manifests_outside_the_wanted_range_are_not_read(tmp_path: Path) -> None:
    store = make_store(tmp_path, PARTITIONED, ["dt", "k"], ["dt"])
    metas = []
    for dt in ("2024-01-01", "2024-01-02", None):
        metas += manifests.write_manifests(
            store, table_of(entry(store, f"f-{dt}", partition=[dt]) if dt else null_entry(store))
        )
    name, size = manifests.write_list(store, metas)
    snapshot = replace(
        publish(store, 1, None, ENTRY_SCHEMA.empty_table()), base_manifest_list=name, base_manifest_list_size=size
    )
    Path(store.manifest_path(metas[0].file_name)).unlink()
    second = [encode_row(["2024-01-02"], store.schema.partition_types)]
    assert names(manifests.live_entries(store, snapshot, partitions=second)) == ["f-2024-01-02"]
    nulls = [encode_row([None], store.schema.partition_types)]
    assert names(manifests.live_entries(store, snapshot, partitions=nulls)) == ["f-null"]
    assert manifests.live_entries(store, snapshot, buckets=[7]).num_rows == 0
    with pytest.raises(CorruptFile, match=metas[0].file_name):
        manifests.live_entries(store, snapshot)


def null_entry(store: TableStore) -> ManifestEntry:
    made = entry(store, "f-null", partition=["x"])
    return replace(made, partition=encode_row([None], store.schema.partition_types))


def test_manifests_roll_at_the_target_size_and_keep_their_order(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"manifest.target-file-size": "4 kb"})
    entries = table_of(*(entry(store, f"data-{i:05}", bucket=i % 2, level=i % 6) for i in range(4000)))
    metas = manifests.write_manifests(store, entries)
    assert len(metas) > 3
    assert all(meta.file_size <= 4096 * 1.5 for meta in metas)
    assert all(meta.file_size == Path(store.manifest_path(meta.file_name)).stat().st_size for meta in metas)
    assert sum(meta.num_added_files for meta in metas) == 4000
    assert manifests.entries_of(store, metas).equals(entries)


def test_a_failed_write_leaves_no_manifest_behind(tmp_path: Path) -> None:
    made = make_store(tmp_path)
    entries = table_of(*(entry(made, f"data-{i:05}") for i in range(3000)))
    dynamic = {"manifest.target-file-size": "4 kb"}
    for step in range(1, 10):  # three manifests of three steps: create, write, close
        store = TableStore(FaultyFileIO(LocalFileIO(), step), made.root, "db.t", made.schema).copy(dynamic)
        with pytest.raises(InjectedFault):
            manifests.write_manifests(store, entries)
        assert list((tmp_path / "manifest").glob("*")) == []


def test_a_full_disk_is_named(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str) -> None:
        raise StorageFull(path)

    monkeypatch.setattr(store.file_io, "open_output", full)
    with pytest.raises(StorageFull, match="manifest-list-"):
        manifests.write_list(store, [])


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["base_manifest_list_size", "delta_manifest_list_size"])
def test_a_wrong_recorded_list_size_is_corrupt(store: TableStore, field: str) -> None:
    snapshot = publish(store, 1, table_of(entry(store, "a")), table_of(entry(store, "b")))
    for wrong in (1, getattr(snapshot, field) + 1):
        with pytest.raises(CorruptFile, match="bytes"):
            manifests.live_entries(store, replace(snapshot, **{field: wrong}))
    assert manifests.live_entries(store, replace(snapshot, **{field: None})).num_rows == 2


@pytest.mark.parametrize("big", [False, True])
def test_a_missing_or_cut_manifest_is_named(tmp_path: Path, big: bool) -> None:
    store = make_store(tmp_path)
    snapshot = publish(
        store, 1, None, table_of(*(entry(store, f"data-{i}-{i * 7919 % 1009}") for i in range(1500 if big else 3)))
    )
    meta = manifests.delta_list(store, snapshot)[0]
    assert (meta.num_added_files >= 500) is big
    path = Path(store.manifest_path(meta.file_name))
    whole = path.read_bytes()
    for damaged in (
        whole[:-5],
        whole[: len(whole) // 2],
        b"",
        whole + b"x",
        b"\x00" * len(whole),
        whole[:-20] + b"\x55" * 20,
    ):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile, match=meta.file_name):
            manifests.live_entries(store, snapshot)
    path.unlink()
    with pytest.raises(CorruptFile, match=rf"{meta.file_name}.*missing"):
        manifests.live_entries(store, snapshot)


def test_a_missing_or_cut_list_is_named(store: TableStore) -> None:
    snapshot = publish(store, 1, table_of(entry(store, "a")), table_of(entry(store, "b")))
    path = Path(store.manifest_path(snapshot.base_manifest_list))
    whole = path.read_bytes()
    for damaged in (whole[:40], b"", b"\x00" * len(whole)):
        path.write_bytes(damaged)
        for known in (snapshot, replace(snapshot, base_manifest_list_size=None)):
            with pytest.raises(CorruptFile, match=snapshot.base_manifest_list):
                manifests.live_entries(store, known)
    path.unlink()
    with pytest.raises(CorruptFile, match="missing"):
        all_references(store, snapshot)


def test_a_manifest_with_fewer_entries_than_recorded_is_corrupt(store: TableStore) -> None:
    metas = manifests.write_manifests(store, table_of(entry(store, "a")))
    with pytest.raises(CorruptFile, match="2"):
        manifests.read_manifest(store, replace(metas[0], num_added_files=2))


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "%2e%2e%2fx", ""])
def test_a_hostile_manifest_name_is_refused(store: TableStore, name: str) -> None:
    snapshot = publish(store, 1, None, table_of(entry(store, "a")))
    with pytest.raises(InvalidData):
        manifests.live_entries(store, replace(snapshot, base_manifest_list=name))


# -- the fast way --------------------------------------------------------------------------------------------------------


def test_both_decoders_agree_whatever_the_path(tmp_path: Path) -> None:
    for name in ("plain", "with space", "glob[1]*", "a{b,c}", "50%25"):
        store = make_store(tmp_path / name)
        made = [entry(store, f"data-{i}", kind=i % 2, level=i % 6, keys=(i, i + 5)) for i in range(5000)]
        full = replace(
            made[0].file, extra_files=("x.index", "y"), embedded_index=b"\x00\x01", external_path="/e/f", value_stats_cols=("k",),
            write_cols=("k", "v"), first_row_id=7, file_source=None, creation_time_ms=None, delete_row_count=None,
            value_stats=replace(made[0].file.value_stats, null_counts=(None, 3)), key_stats=replace(made[0].file.key_stats, null_counts=None),
        )  # fmt: skip
        entries = table_of(replace(made[0], file=full), *made[1:])
        (meta,) = manifests.write_manifests(store, entries)
        assert manifests.read_manifest(store, meta).equals(entries)
        fast = fast_decode(Path(store.manifest_path(meta.file_name)).read_bytes(), meta.file_name)
        assert fast is not None
        assert fast.equals(entries)


def test_a_large_manifest_is_narrowed_as_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path)
    entries = table_of(*(entry(store, f"data-{i}", level=i % 3) for i in range(2500)))
    (meta,) = manifests.write_manifests(store, entries)
    monkeypatch.setattr(manifests, "_SLICE_ROWS", 700)
    seen: list[int] = []

    def narrow(part: pa.Table) -> pa.Table:
        seen.append(part.num_rows)
        return part.filter(pc.equal(part.column("level"), 2)).select(["file_name", "kind"])

    found = manifests.read_manifest(store, meta, narrow)
    assert max(seen) <= 700 and sum(seen) == 2500
    assert found.equals(narrow(entries)) and found.num_rows == 833
    assert manifests.read_manifest(store, meta, lambda part: part.slice(0, 0)).num_rows == 0
    with pytest.raises(CorruptFile, match="holds 2500 entries, but its manifest list records 2501"):
        manifests.read_manifest(store, replace(meta, num_added_files=2501), narrow)


def with_union_root(data: bytes) -> bytes:
    """The Avro file as paimon-rust writes it: its root is a union of null and the record."""
    reader = fastavro.reader(io.BytesIO(data))
    out = io.BytesIO()
    fastavro.writer(out, ["null", reader.writer_schema], list(reader), codec="zstandard")
    return out.getvalue()


@pytest.mark.parametrize("count", [3, 1500])
def test_manifests_whose_root_is_a_union_are_read_as_paimon_rust_writes_them(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path)
    snapshot = publish(store, 1, None, table_of(*(entry(store, f"data-{i}", level=i % 3) for i in range(count))))
    expected = manifests.live_entries(store, snapshot)
    (meta,) = manifests.delta_list(store, snapshot)
    path, list_path = (Path(store.manifest_path(name)) for name in (meta.file_name, snapshot.delta_manifest_list))
    path.write_bytes(with_union_root(path.read_bytes()))
    changed = replace(meta, file_size=path.stat().st_size)
    list_path.write_bytes(with_union_root(encode_manifest_list([changed])))
    snapshot = replace(snapshot, delta_manifest_list_size=None)
    if count > 500:  # quick as ever: not a record by record
        monkeypatch.setattr(manifests, "_decode_small", None)
        monkeypatch.setattr(manifests, "decode_manifest", None)
    assert manifests.delta_list(store, snapshot) == [changed]
    assert manifests.live_entries(store, snapshot).equals(expected)


def test_a_null_entry_of_a_union_root_is_corrupt_for_both_decoders(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path)
    (meta,) = manifests.write_manifests(store, table_of(entry(store, "a"), entry(store, "b")))
    reader = fastavro.reader(io.BytesIO(Path(store.manifest_path(meta.file_name)).read_bytes()))
    out = io.BytesIO()
    fastavro.writer(out, ["null", reader.writer_schema], [*reader, None])
    with pytest.raises(CorruptFile, match=rf"{meta.file_name}.*null"):
        decode_manifest(out.getvalue(), meta.file_name)
    assert fast_decode(out.getvalue(), meta.file_name) is None
    assert meta.file_name in caplog.text


def test_neighbouring_small_manifests_are_decoded_together_as_each_alone(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [table_of(*(entry(store, f"data-{i}-{j}", level=i) for j in range(i + 1))) for i in range(4)]
    metas = [meta for table in tables for meta in manifests.write_manifests(store, table)]
    monkeypatch.setattr("lsm_core.format.manifest.decode_manifest", None)
    (decoded,) = manifests.iter_entries(store, metas)
    assert decoded.equals(pa.concat_tables(tables))
    assert manifests.entries_of(store, metas[1:3]).equals(pa.concat_tables(tables[1:3]))  # from the cache


def test_of_manifests_decoded_together_the_unreadable_manifest_is_named(store: TableStore) -> None:
    metas = [meta for i in range(3) for meta in manifests.write_manifests(store, table_of(entry(store, f"data-{i}")))]
    path = Path(store.manifest_path(metas[1].file_name))
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    out = io.BytesIO()
    fastavro.writer(out, reader.writer_schema, [{**record, "_VERSION": 9} for record in reader])
    path.write_bytes(out.getvalue())
    metas[1] = replace(metas[1], file_size=path.stat().st_size)
    with pytest.raises(UnsupportedFeature, match=metas[1].file_name):
        manifests.entries_of(store, metas)
    metas[2] = replace(metas[2], num_added_files=2)
    with pytest.raises(CorruptFile, match=metas[2].file_name):
        manifests.entries_of(store, metas[2:])


def test_a_filter_that_keeps_all_entries_copies_nothing(store: TableStore) -> None:
    entries = table_of(entry(store, "a", level=1), entry(store, "b", level=2))
    assert manifests.keep_rows(entries, [EMPTY_ROW], [0], [1, 2]) is entries
    assert names(manifests.keep_rows(entries, [EMPTY_ROW], [0], [2])) == ["b"]
    assert manifests.keep_rows(entries, [EMPTY_ROW], [1], [2]).num_rows == 0


def test_index_manifests_whose_root_is_a_union_are_read() -> None:
    entries = [IndexManifestEntry(0, EMPTY_ROW, 1, "HASH", "index-1", 8, 2)]
    assert decode_index_manifest(with_union_root(encode_index_manifest(entries)), "i") == entries


def test_a_hundred_thousand_files_are_planned_without_a_python_loop_over_them(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"manifest.target-file-size": "1 gb"})
    few = table_of(*(entry(store, f"data-{i}", bucket=i % 2, keys=(i, i)) for i in range(1000)))
    many = pa.concat_tables([few] * 100)
    place = pa.array([f"data-{i}.parquet" for i in range(many.num_rows)])
    many = many.set_column(many.column_names.index("file_name"), ENTRY_SCHEMA.field("file_name"), place)
    snapshot = publish(store, 1, None, many)
    live = manifests.live_entries(store, snapshot)
    assert live.num_rows == 100_000
    assert [(b, rows.num_rows) for _, b, _, rows in bucket_groups(live)] == [(0, 50_000), (1, 50_000)]


# -- references, groups, keys -----------------------------------------------------------------------------------------------


def test_references_hold_every_name_in_use(store: TableStore) -> None:
    with_index = entry(store, "a")
    with_index = replace(with_index, file=replace(with_index.file, extra_files=("a.index",)))
    snapshot = publish(
        store, 1, table_of(with_index, entry(store, "b")), table_of(entry(store, "b", kind=1), entry(store, "c"))
    )
    on_disk = {p.name for p in Path(store.manifest_dir).iterdir()}
    assert metadata_references(store, snapshot) == on_disk
    assert all_references(store, snapshot) == on_disk | {"a", "a.index", "b", "c"}


def test_buckets_are_grouped_and_keep_the_order_of_their_files(tmp_path: Path) -> None:
    store = make_store(tmp_path, PARTITIONED, ["dt", "k"], ["dt"])
    made = [entry(store, f"f{i}", partition=["ab"[i % 2]], bucket=i % 3) for i in range(60)]
    groups = bucket_groups(table_of(*made))
    assert len(groups) == 6
    assert [(p, b) for p, b, _, _ in groups] == sorted((p, b) for p, b, _, _ in groups)
    for partition, bucket, total, rows in groups:
        expected = [e.file.file_name for e in made if (e.partition, e.bucket) == (partition, bucket)]
        assert rows.column("file_name").to_pylist() == expected
        assert total == 2
    assert bucket_groups(ENTRY_SCHEMA.empty_table()) == []


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
@settings(max_examples=examples(20), deadline=None)
def test_keys_of_tree_files_order_as_the_keys_do(tmp_path_factory: pytest.TempPathFactory, keys: list[int]) -> None:
    store = make_store(tmp_path_factory.mktemp("t"))
    files = tree_files(store, table_of(*(entry(store, f"f{i}", level=i % 4, keys=(k, k)) for i, k in enumerate(keys))))
    by_bytes = [f.name for f in sorted(files, key=lambda f: (f.min_key, f.name))]
    assert by_bytes == [f"f{i}" for i, _ in sorted(enumerate(keys), key=lambda item: (item[1], f"f{item[0]}"))]
    assert [f.level for f in files] == [i % 4 for i in range(len(keys))]


def test_append_tables_have_empty_keys(tmp_path: Path) -> None:
    store = make_store(tmp_path, keys=())
    assert tree_files(store, table_of(entry(store, "a")))[0].min_key == b""
    assert snapshots.latest(store) is None


def test_manifests_that_are_decoded_together_come_one_by_one_and_a_damaged_one_is_named(store: TableStore) -> None:
    metas = [manifests.write_manifests(store, table_of(entry(store, f"{number}")))[0] for number in range(10)]
    parts = list(manifests.iter_manifests(store, metas))
    assert [names(part) for part in parts] == [[f"{number}"] for number in range(10)]
    assert all(part.equals(manifests.read_manifest(store, meta)) for part, meta in zip(parts, metas, strict=True))
    damaged = Path(store.manifest_path(metas[1].file_name))
    damaged.write_bytes(damaged.read_bytes().replace(b"Obj", b"Abj"))
    with pytest.raises(CorruptFile, match=metas[1].file_name):
        list(manifests.iter_manifests(store, metas))


def test_both_lists_of_a_snapshot_are_decoded_together_and_a_damaged_one_is_named(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = publish(store, 1, table_of(entry(store, "a")), table_of(entry(store, "b")))
    with monkeypatch.context() as patch:
        patch.setattr("lsm_core.format.manifest.decode_manifest_list", None)
        metas = manifests.data_manifests(store, snapshot)
    assert metas == [*manifests.base_list(store, snapshot), *manifests.delta_list(store, snapshot)] and len(metas) == 2
    path = Path(store.manifest_path(snapshot.delta_manifest_list))
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    out = io.BytesIO()
    fastavro.writer(out, reader.writer_schema, [{**record, "_VERSION": 9} for record in reader])
    path.write_bytes(out.getvalue())
    monkeypatch.setattr(manifests, "_decoded_lists", Kept(1 << 20))  # both are decoded again
    with pytest.raises(UnsupportedFeature, match=path.name):
        manifests.data_manifests(store, replace(snapshot, delta_manifest_list_size=path.stat().st_size))

"""A table's store: where things lie, what travels to other processes, and that nothing leads outside."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lsm_core.clock import FileClock, FixedClock
from lsm_core.errors import CorruptFile, InvalidData, InvalidOption, TableNotFound, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, encode_row
from lsm_core.metadata import TableStore
from lsm_core.metadata.store import write_schema
from lsm_core.options import EXTERNAL_ROOTS
from lsm_core.storage import LocalFileIO
from tests.metadata.tables import NOW, make_schema, make_store


def test_an_absent_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match=r"db\.missing"):
        TableStore.open(LocalFileIO(), str(tmp_path / "none"), "db.missing")
    make_store(tmp_path)
    with pytest.raises(TableNotFound, match="branch dev"):
        TableStore.open(LocalFileIO(), str(tmp_path), "db.t", branch="dev")


def test_the_newest_schema_counts_and_refresh_finds_a_newer_one(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for number in (9, 10):  # 10 sorts before 9 as text
        newer = make_schema({"k": "BIGINT NOT NULL", "w": "INT"}, ["k"])
        assert write_schema(store.file_io, store.root, type(newer)(**{**newer.__dict__, "id": number}))
    assert store.schema.id == 0
    assert store.refresh().schema.id == 10
    assert store.schema_of(9).field_names == ("k", "w")


def test_a_schema_is_never_replaced(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert not write_schema(store.file_io, store.root, store.schema)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": 0}', b"\xff\xfe"])
def test_a_damaged_schema_names_its_file(tmp_path: Path, content: bytes) -> None:
    store = make_store(tmp_path)
    Path(store.schema_path(0)).write_bytes(content)
    with pytest.raises(CorruptFile, match="schema-0"):
        store.refresh()
    Path(store.schema_path(0)).unlink()
    with pytest.raises(CorruptFile, match="schema-7"):
        store.schema_of(7)


def test_a_schema_under_the_wrong_name_is_corrupt(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    Path(store.schema_path(0)).rename(store.schema_path(3))
    with pytest.raises(CorruptFile, match="schema-3"):
        store.refresh()


def test_paths_follow_paimons_layout(tmp_path: Path) -> None:
    fields = {"dt": "STRING NOT NULL", "k": "BIGINT NOT NULL"}
    store = make_store(tmp_path, fields, ["dt", "k"], ["dt"])
    root = str(tmp_path)
    partition = encode_row(["a=b"], store.schema.partition_types)
    assert store.snapshot_path(3) == f"{root}/snapshot/snapshot-3"
    assert store.manifest_path("manifest-x-0") == f"{root}/manifest/manifest-x-0"
    assert store.index_path("index-x-0") == f"{root}/index/index-x-0"
    assert store.trash_dir == f"{root}/dredge/trash"
    assert store.data_path(partition, 1, "data-x-0.parquet") == f"{root}/dt=a%3Db/bucket-1/data-x-0.parquet"
    assert store.bucket_dir(partition, -2) == f"{root}/dt=a%3Db/bucket-postpone"


def test_a_data_directory_inside_the_table_is_honoured(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"data-file.path-directory": "data"})
    assert store.bucket_dir(EMPTY_ROW, 0) == f"{tmp_path}/data/bucket-0"
    hostile = make_store(tmp_path / "h", options={"data-file.path-directory": "../elsewhere"})
    with pytest.raises(CorruptFile):
        hostile.bucket_dir(EMPTY_ROW, 0)
    absolute = make_store(tmp_path / "a", options={"data-file.path-directory": "/data"})
    with pytest.raises(UnsupportedFeature, match=r"path-directory.*'/data'"):
        absolute.bucket_dir(EMPTY_ROW, 0)


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "%2e%2e", "x\x00", "..", ""])
def test_hostile_names_from_metadata_are_refused(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path)
    for ask in (store.manifest_path, store.index_path, store.statistics_path):
        with pytest.raises(InvalidData, match=r"db\.t"):
            ask(name)
    with pytest.raises(InvalidData):
        store.data_path(EMPTY_ROW, 0, name)
    with pytest.raises(InvalidData):
        TableStore.open(LocalFileIO(), str(tmp_path), "db.t", branch=name)


def test_external_paths_must_be_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext, {tmp_path}/more")
    store = make_store(tmp_path / "t", options={"data-file.external-paths": f"file://{tmp_path}/ext, {tmp_path}/more"})
    inside = f"{tmp_path}/ext/bucket-0/f.parquet"
    assert store.data_path(EMPTY_ROW, 0, "f.parquet", inside) == inside
    assert store.data_path(EMPTY_ROW, 0, "f.parquet.index", inside) == inside + ".index"
    for outside in (f"{tmp_path}/other/f.parquet", f"{tmp_path}/ext/../other/f.parquet", "/etc/passwd"):
        with pytest.raises(CorruptFile, match="external"):
            store.data_path(EMPTY_ROW, 0, "f.parquet", outside)


def test_external_paths_are_names_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java stores its paths as text: a partition directory's own `%3A` is no escape of an address."""
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/e%20xt")
    store = make_store(tmp_path / "t", options={"data-file.external-paths": f"file://{tmp_path}/e%20xt"})
    for stored in (f"file:{tmp_path}", f"file://{tmp_path}", str(tmp_path)):
        file = f"{stored}/e%20xt/p=a%3Ab/bucket-0/f?#.parquet"
        assert store.data_path(EMPTY_ROW, 0, "f?#.parquet", file) == f"{tmp_path}/e%20xt/p=a%3Ab/bucket-0/f?#.parquet"


def test_file_names_are_never_drawn_twice_even_by_copies(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    copies = [
        store,
        pickle.loads(pickle.dumps(store)),
        store.copy({}),
        store.refresh(),
        TableStore.from_json(store.to_json()),
    ]
    names = [each.new_file_name("data-", "parquet") for each in copies for _ in range(50)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("data-") and name.endswith(".parquet") for name in names)


def test_a_store_travels_with_its_options_clock_branch_and_schema(tmp_path: Path) -> None:
    FileClock(str(tmp_path / "clock")).set(77)
    make_store(tmp_path)
    store = TableStore.open(LocalFileIO(), str(tmp_path), "db.t", f"file:{tmp_path}/clock", {"write-only": "true"})
    for other in (pickle.loads(pickle.dumps(store)), TableStore.from_json(store.to_json())):
        assert (other.name, other.root, other.branch) == (store.name, store.root, store.branch)
        assert other.options == store.options
        assert other.schema == store.schema
        assert other.clock.now_ms() == 77
        assert other.options.write_only


def test_dynamic_options_add_up_and_immutable_ones_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    changed = store.copy({"write-only": "true"}).copy({"snapshot.num-retained.min": "2"})
    assert changed.options.write_only
    assert changed.options.retained_min == 2
    assert changed.options.bucket == 2
    assert not store.options.write_only
    with pytest.raises(InvalidOption, match="bucket"):
        store.copy({"bucket": "5"})


def test_the_clock_is_the_one_given(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert isinstance(store.clock, FixedClock)
    store.clock.advance(5)
    assert store.clock.now_ms() == NOW + 5


OLD_NAME, NEW_NAME = "p=1.9999999999999998E23", "p=2.0E23"


def float_store(tmp_path: Path) -> tuple[TableStore, bytes]:
    fields = {"p": "DOUBLE NOT NULL", "k": "BIGINT NOT NULL"}
    store = make_store(tmp_path, fields, ["p", "k"], ["p"])
    return store, encode_row([2e23], store.schema.partition_types)


@pytest.mark.parametrize("existing", [OLD_NAME, NEW_NAME])
def test_a_partition_that_two_jdks_name_differently_has_the_directory_that_is_there(
    tmp_path: Path, existing: str
) -> None:
    store, partition = float_store(tmp_path)
    assert store.bucket_dir(partition, 0) == f"{tmp_path}/{OLD_NAME}/bucket-0"  # nobody wrote it yet
    (tmp_path / existing).mkdir()
    assert store.bucket_dir(partition, 0) == f"{tmp_path}/{existing}/bucket-0"
    assert store.data_path(partition, 1, "data-new-0.orc") == f"{tmp_path}/{existing}/bucket-1/data-new-0.orc"
    other = NEW_NAME if existing == OLD_NAME else OLD_NAME
    (tmp_path / other).mkdir()
    assert store.bucket_dir(partition, 0) == f"{tmp_path}/{existing}/bucket-0"  # asked once


def test_where_both_names_are_there_every_file_is_found_and_new_ones_have_the_older_jdks_name(tmp_path: Path) -> None:
    store, partition = float_store(tmp_path)
    for name in (OLD_NAME, NEW_NAME):
        folder = tmp_path / name / "bucket-0"
        folder.mkdir(parents=True)
        (folder / f"of-{name}").touch()
    for name in (OLD_NAME, NEW_NAME):
        assert store.data_path(partition, 0, f"of-{name}") == f"{tmp_path}/{name}/bucket-0/of-{name}"
    assert store.data_path(partition, 0, "new-0.orc") == f"{tmp_path}/{OLD_NAME}/bucket-0/new-0.orc"


def test_names_that_jdks_agree_on_cost_no_look_at_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = float_store(tmp_path)
    asked: list[str] = []

    def exists(path: str) -> bool:
        asked.append(path)
        return False

    monkeypatch.setattr(store.file_io, "exists", exists)
    for value in (1.5, 1e7, 0.1, float("nan")):
        store.bucket_dir(encode_row([value], store.schema.partition_types), 0)
    assert asked == []
    store.bucket_dir(encode_row([2e23], store.schema.partition_types), 0)
    assert asked == [f"{tmp_path}/{OLD_NAME}", f"{tmp_path}/{NEW_NAME}"]

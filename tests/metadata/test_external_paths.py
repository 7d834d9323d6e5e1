"""External data paths: the operator's permissions, the strategies of new files, and recorded paths that may be hostile."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from lsm_core.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.metadata.external_paths import ExternalPaths, entropy_folders, find_overlap, murmur3, paimon_address
from lsm_core.metadata.store import TableStore
from lsm_core.options import EXTERNAL_ROOTS, TableOptions, find_root, parse_external_roots
from lsm_core.options.operator import ALLOWED_PLACES
from tests.metadata.tables import make_store

_PATHS, _STRATEGY = "data-file.external-paths", "data-file.external-paths.strategy"


def table_at(tmp_path: Path, **options: str) -> TableStore:
    """A table at `wh/db.db/t` with external paths `ext/a` and `ext/b`."""
    settings = {_PATHS: f"file://{tmp_path}/ext/a,file:{tmp_path}/ext/b/", **options}
    return make_store(tmp_path / "wh" / "db.db" / "t", options=settings)


# -- permissions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" /data/ext:rw , /import ", ["/data/ext:rw", "/import:r"]),
        ("file:///data//ext/:rw,file:/b:R", ["/data/ext:rw", "/b:r"]),
        ("s3://bucket/x:rw,s3://bucket", ["s3://bucket/x:rw", "s3://bucket:r"]),
    ],
)
def test_roots_are_read_only_unless_they_say_otherwise(text: str, expected: list[str]) -> None:
    assert [str(root) for root in parse_external_roots(text)] == expected


@pytest.mark.parametrize(
    "text",
    ["data/ext:rw", "/data:w", "/data/../etc:rw", "/:rw", "file:///", "~/x:rw", "/a:b:c", "S3://b/x:rw", "hdfs:///x:r"],
)
def test_roots_that_mean_something_else_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match=EXTERNAL_ROOTS):
        parse_external_roots(text)


@pytest.mark.parametrize("address", ["http://catalog:1/house/db/t", "https://c/h/db/t", "thrift://meta:9083/db.db/t"])
def test_a_new_table_whose_catalog_chooses_the_folder_may_have_external_paths(tmp_path: Path, address: str) -> None:
    options = table_at(tmp_path, **{_STRATEGY: "round-robin"}).options
    allowed = ExternalPaths("db.t", address, options, parse_external_roots(f"{tmp_path}/ext:rw"))
    assert list(allowed.refusals()) == []
    assert [text for text in ExternalPaths("db.t", address, options, ()).refusals() if EXTERNAL_ROOTS in text]
    assert "another kind" in next(iter(ExternalPaths("db.t", "s3://b/wh/db.db/t", options, allowed.roots).refusals()))


def test_the_most_specific_root_decides_and_a_prefix_is_no_folder() -> None:
    roots = parse_external_roots("/data/ext:rw,/data/ext/import:r,s3://b/x:rw")
    expected = {
        "/data/ext/t/f": "/data/ext:rw",
        "/data/ext": "/data/ext:rw",
        "/data/ext/import/f": "/data/ext/import:r",
        "/data/external2/f": None,
        "/data/extf": None,
        "s3://b/x/f": "s3://b/x:rw",
        "s3://b/xy/f": None,
        "s3://b2/x/f": None,
        "/b/x/f": None,
    }
    assert {path: root and str(root) for path in expected for root in [find_root(roots, path)]} == expected


def test_a_path_needs_the_operators_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = table_at(tmp_path, **{_STRATEGY: "round-robin"})
    recorded = f"file:{tmp_path}/ext/a/bucket-0/f.parquet"
    for allowed in ("", f"{tmp_path}/ext/a2:rw", f"{tmp_path}/e:rw", "s3://ext/a:rw"):
        monkeypatch.setenv(EXTERNAL_ROOTS, allowed)
        with pytest.raises(UnsupportedFeature, match=rf"'{tmp_path}/ext/a:r' or a folder above it to {EXTERNAL_ROOTS}"):
            store.data_path(EMPTY_ROW, 0, "f.parquet", recorded)
        with pytest.raises(UnsupportedFeature, match=rf"{tmp_path}/ext/[ab]:rw.*{EXTERNAL_ROOTS}"):
            store.new_data_file(EMPTY_ROW, 0, "g.parquet")
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext:r")
    assert store.data_path(EMPTY_ROW, 0, "f.parquet", recorded) == f"{tmp_path}/ext/a/bucket-0/f.parquet"
    with pytest.raises(UnsupportedFeature, match="for reading only"):
        store.new_data_file(EMPTY_ROW, 0, "g.parquet")
    with pytest.raises(UnsupportedFeature, match="for reading only"):
        store.delete(f"{tmp_path}/ext/a/bucket-0/f.parquet")
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext:rw")
    assert store.new_data_file(EMPTY_ROW, 0, "g.parquet").path.startswith(f"{tmp_path}/ext/")


def test_allowed_places_allow_declared_paths_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_PLACES, str(tmp_path))
    store = table_at(tmp_path, **{_STRATEGY: "round-robin"})
    assert store.new_data_file(EMPTY_ROW, 0, "g.parquet").external_path
    with pytest.raises(CorruptFile, match="does not declare"):
        store.data_path(EMPTY_ROW, 0, "f.parquet", f"file:{tmp_path}/elsewhere/f.parquet")
    undeclared = make_store(tmp_path / "wh" / "db.db" / "u")
    with pytest.raises(UnsupportedFeature, match=EXTERNAL_ROOTS):
        undeclared.data_path(EMPTY_ROW, 0, "f.parquet", f"file:{tmp_path}/elsewhere/f.parquet")


def test_roots_of_a_table_option_count_for_nothing(tmp_path: Path) -> None:
    for key in ("dredge.external-roots", EXTERNAL_ROOTS):
        with pytest.raises((UnsupportedFeature, InvalidOption), match=key):
            table_at(tmp_path / key, **{_STRATEGY: "round-robin", key: f"{tmp_path}:rw"}).new_data_file(
                EMPTY_ROW, 0, "g.parquet"
            )


def test_permissions_travel_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext/a:rw")
    monkeypatch.setenv(ALLOWED_PLACES, f"{tmp_path}/ext/b")
    text = table_at(tmp_path, **{_STRATEGY: "round-robin"}).to_json()
    monkeypatch.delenv(EXTERNAL_ROOTS)
    monkeypatch.delenv(ALLOWED_PLACES)
    store = TableStore.from_json(text)
    for view in (store, store.copy({"write-buffer-size": "1 mb"}), store.refresh(), store.with_buckets(4)):
        folders = {Path(view.new_data_file(EMPTY_ROW, 0, f"f{i}.parquet").path).parts[-3] for i in range(4)}
        assert folders == {"a", "b"}


# -- recorded paths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recorded",
    [
        "{ext}/../wh/f.parquet",
        "{ext}/a/../../secret/f.parquet",
        "file:{ext}/a/%2e%2e/%2e%2e/secret/f.parquet",
        "file:{ext}/a/./f.parquet",
        "file:{ext}/a/..%2f..%2fsecret/f.parquet",
        "ext/a/f.parquet",
        "f.parquet",
        "~/f.parquet",
        "file://other.host{ext}/a/f.parquet",
        "hdfs://node{ext}/a/f.parquet",
        "s3://bucket{ext}/a/f.parquet",
        "file:{ext}ernal2/f.parquet",
        "{wh}/db.db/other/bucket-0/f.parquet",
        "{wh}/db.db/t/bucket-0/f.parquet",
        "{wh}/db.db/t/manifest/f.parquet",
        "{ext}/link/f.parquet",
        "{ext}/link/deeper/f.parquet",
        "{ext}/a\x00b/f.parquet",
    ],
)
def test_hostile_recorded_paths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: str) -> None:
    ext, wh = tmp_path / "ext", tmp_path / "wh"
    (tmp_path / "secret" / "deeper").mkdir(parents=True)
    (ext / "a").mkdir(parents=True)
    (ext / "link").symlink_to(tmp_path / "secret")
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{ext}:rw,{wh}:rw")
    store = table_at(tmp_path)
    with pytest.raises((CorruptFile, UnsupportedFeature)):
        store.data_path(EMPTY_ROW, 0, "f.parquet", recorded.format(ext=ext, wh=wh))


def test_a_file_that_is_a_link_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext:rw")
    store = table_at(tmp_path)
    (tmp_path / "ext" / "a").mkdir(parents=True)
    (tmp_path / "ext" / "a" / "f.parquet").symlink_to("/etc/passwd")
    with pytest.raises(CorruptFile, match="symbolic link"):
        store.data_path(EMPTY_ROW, 0, "f.parquet", f"file:{tmp_path}/ext/a/f.parquet")


def test_a_folder_that_becomes_a_link_is_refused_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object of a table may live for days; whoever can write to the external path swaps a folder of it."""
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext:rw")
    store = table_at(tmp_path, **{_STRATEGY: "round-robin"})
    recorded = f"file:{tmp_path}/ext/a/bucket-0/f.parquet"
    (tmp_path / "ext" / "a").mkdir(parents=True)
    store.data_path(EMPTY_ROW, 0, "f.parquet", recorded)
    for name in ("g.parquet", "h.parquet"):
        store.new_data_file(EMPTY_ROW, 0, name)
    (tmp_path / "secret").mkdir()
    for place in ("a", "b"):
        (tmp_path / "ext" / place).mkdir(exist_ok=True)
        (tmp_path / "ext" / place / "bucket-0").symlink_to(tmp_path / "secret")
    later = time.monotonic() + 2
    monkeypatch.setattr("lsm_core.metadata.external_paths.time.monotonic", lambda: later)
    with pytest.raises(CorruptFile, match="symbolic link"):
        store.data_path(EMPTY_ROW, 0, "f.parquet", recorded)
    with pytest.raises(CorruptFile, match="symbolic link"):
        store.new_data_file(EMPTY_ROW, 0, "i.parquet")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("wh", "contains the folder of the table itself"),
        ("wh/db.db", "contains the folder of the table itself"),
        ("wh/db.db/t", "contains the folder of the table itself"),
        ("wh/db.db/t/ext", "is inside the folder of the table itself"),
        ("wh/db.db/other", "is inside database db"),
        ("wh/x.db/other/data", "is inside database x"),
        ("alias/db.db/other", "is inside database db"),
    ],
)
def test_a_path_of_tables_is_never_an_external_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, reason: str
) -> None:
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}:rw")
    options = {_PATHS: f"file:{tmp_path}/{place}", _STRATEGY: "round-robin"}
    store = make_store(tmp_path / "wh" / "db.db" / "t", options=options)
    (tmp_path / "alias").symlink_to(tmp_path / "wh")
    with pytest.raises(UnsupportedFeature, match=reason):
        store.new_data_file(EMPTY_ROW, 0, "g.parquet")
    assert not (tmp_path / "wh" / "db.db" / "other").exists()
    assert find_overlap("/wh/external/t", "/wh/db.db/t") is None
    assert find_overlap("/wh2/db.db/t", "/wh/db.db/t") is None


@pytest.mark.parametrize("place", ["ext/%2e%2e/b", "ext/./b", "ext/../b", "ext/..%2fb"])
def test_a_path_that_no_reader_accepts_takes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}:rw")
    store = table_at(tmp_path, **{_PATHS: f"file:{tmp_path}/{place}", _STRATEGY: "round-robin"})
    with pytest.raises(UnsupportedFeature, match=r"'\.' or '\.\.'"):
        store.new_data_file(EMPTY_ROW, 0, "g.parquet")


def test_another_scheme_of_the_store_hides_no_table() -> None:
    options = TableOptions({_PATHS: "s3a://b/wh/db.db/other", _STRATEGY: "round-robin"}, "db.t", stored=True)
    external = ExternalPaths("db.t", "s3://b/wh/db.db/t", options, parse_external_roots("s3a://b:rw,s3://b:rw"))
    assert "inside database db" in str(external.describe_refusal("s3a://b/wh/db.db/other", writing=True))
    assert external.describe_refusal("s3a://b/ext", writing=True) is None


def test_nothing_is_written_or_deleted_in_another_tables_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path / "other" / "t2")
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/other:rw")
    for place in ("other/t2", "other/t2/bucket-0"):
        options = {_PATHS: f"file:{tmp_path}/{place}", _STRATEGY: "round-robin"}
        store = make_store(tmp_path / "wh" / place / "db.db" / "t", options=options)
        with pytest.raises(CorruptFile, match="folder of another table"):
            store.new_data_file(EMPTY_ROW, 0, "g.parquet")
        with pytest.raises(CorruptFile, match="folder of another table"):
            store.delete(f"{tmp_path}/other/t2/bucket-0/data-1.parquet")


# -- new files -----------------------------------------------------------------------------------------------------------


def folders_of(store: TableStore, count: int = 40) -> Counter[str]:
    files = [store.new_data_file(EMPTY_ROW, 0, f"f{i}.parquet") for i in range(count)]
    for file in files:
        assert file.external_path is not None
        assert f"file:{file.path}" == file.external_path
    return Counter(file.path.rpartition("/bucket-0/")[0].rpartition("/")[2] for file in files)


def test_strategies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext:rw")
    assert folders_of(table_at(tmp_path / "1", **_of(tmp_path, "round-robin"))) == {"a": 20, "b": 20}
    assert folders_of(table_at(tmp_path / "2", **_of(tmp_path, "entropy-inject"))) == {"a": 20, "b": 20}
    weighted = folders_of(table_at(tmp_path / "3", **_of(tmp_path, "weight-robin", weights="1,9")), 2_000)
    assert 100 < weighted["a"] < 320
    specific = {"data-file.external-paths.specific-fs": "FILE"}
    assert folders_of(table_at(tmp_path / "4", **_of(tmp_path, "specific-fs"), **specific)) == {"a": 20, "b": 20}
    none = table_at(tmp_path / "5", **_of(tmp_path, "none"))
    assert none.new_data_file(EMPTY_ROW, 0, "f.parquet") == (f"{none.root}/bucket-0/f.parquet", None)


def _of(tmp_path: Path, strategy: str, **more: str) -> dict[str, str]:
    paths = f"file:{tmp_path}/ext/a,file:{tmp_path}/ext/b"
    return {_PATHS: paths, _STRATEGY: strategy, **{f"{_PATHS}.{key}": value for key, value in more.items()}}


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({_STRATEGY: "weight-robin", f"{_PATHS}.weights": "1"}, f"{_PATHS}.weights"),
        ({_STRATEGY: "weight-robin", f"{_PATHS}.weights": "1,0"}, f"{_PATHS}.weights"),
        ({_STRATEGY: "weight-robin", f"{_PATHS}.weights": "1,x"}, f"{_PATHS}.weights"),
        ({_STRATEGY: "specific-fs"}, f"{_PATHS}.specific-fs"),
        ({_STRATEGY: "specific-fs", f"{_PATHS}.specific-fs": "s3"}, f"{_PATHS}.specific-fs"),
        ({_STRATEGY: "round-robin", _PATHS: "/no/scheme"}, _PATHS),
    ],
)
def test_contradictory_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], key: str
) -> None:
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext:rw,/no/scheme:rw")
    with pytest.raises(InvalidOption) as caught:
        table_at(tmp_path, **options).new_data_file(EMPTY_ROW, 0, "f.parquet")
    assert caught.value.key == key


def test_hash_of_names() -> None:
    """Values of Guava's `Hashing.murmur3_32()`; the folders are those of its binary digits."""
    assert [murmur3(text) for text in (b"", b"a", b"abc", b"abcd", b"hello")] == [
        *(0, 0x3C2569B2, 0xB3DD93FA, 0x43ED676A, 0x248BFA47)
    ]
    folders = entropy_folders("data-1.parquet")
    assert [len(part) for part in folders.split("/")] == [4, 4, 4, 8]
    assert int(folders.replace("/", ""), 2) == murmur3(b"data-1.parquet") & 0xFFFFF


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("file:///a//b/", "file:/a/b"),
        ("file:/a/b", "file:/a/b"),
        ("s3://bucket//x/", "s3://bucket/x"),
        ("S3://bucket", "S3://bucket"),
        ("file:/a b/%41", "file:/a b/%41"),
        ("/a/b/", "/a/b"),
    ],
)
def test_addresses_are_written_as_java_writes_them(text: str, address: str) -> None:
    assert paimon_address(text) == address


def test_a_change_of_the_environment_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = table_at(tmp_path)
    recorded = f"file:{tmp_path}/ext/a/f.parquet"
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{tmp_path}/ext:rw")
    assert store.data_path(EMPTY_ROW, 0, "f.parquet", recorded)
    os.environ.pop(EXTERNAL_ROOTS)
    with pytest.raises(UnsupportedFeature):
        store.data_path(EMPTY_ROW, 0, "f.parquet", recorded)

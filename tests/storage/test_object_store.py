"""Object stores: what they are told, how few requests reading takes, and puts whose answer was lost."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog
from lsm_core.errors import CorruptFile, InvalidOption, StorageRefused, UnsupportedFeature
from lsm_core.files.formats import open_source
from lsm_core.storage import (
    FileIO,
    ahead,
    delete_files,
    file_io_for,
    inside,
    inside_really,
    place_of,
    same_place,
    storage_options,
)
from lsm_core.storage.remote_input import GROUP_BYTES, RemoteFile
from tests.support.s3_server import S3Server


@pytest.fixture
def io(s3: S3Server) -> FileIO:
    return file_io_for("s3://any", s3.options)[0]


# -- addresses and options ---------------------------------------------------------------------------------------------


def test_addresses_are_brought_into_one_form_and_odd_ones_refused() -> None:
    assert file_io_for("S3://bucket/a//b/")[1] == "s3://bucket/a/b"
    assert file_io_for("gs://bucket")[1] == "gs://bucket"
    assert (
        file_io_for("abfss://files@account.dfs.core.windows.net/x")[1] == "abfss://files@account.dfs.core.windows.net/x"
    )
    for odd in ("s3://", "s3:/bucket/x", "s3://bucket/../other", "s3:///x"):
        with pytest.raises(InvalidOption, match="an address like s3://bucket/folder"):
            file_io_for(odd)
    with pytest.raises(UnsupportedFeature, match=r"'viewfs' storage.*s3://.*hdfs://"):
        file_io_for("viewfs://name/x")


def test_secrets_are_taken_from_nowhere_but_the_environment() -> None:
    for url in ("s3://AKIA:hush@bucket/x", "gs://hush@bucket", "abfss://files:hush@account/x"):
        with pytest.raises(InvalidOption, match="secrets come from the environment only") as caught:
            file_io_for(url)
        assert "hush" not in str(caught.value)
    for key in ("s3.secret-key", "s3.access-key", "s3.session.token"):
        with pytest.raises(InvalidOption, match="secrets from the environment only") as caught:
            Catalog("s3://bucket", {key: "hush"})
        assert "hush" not in str(caught.value)


def test_options_of_the_store_are_checked_when_it_is_opened() -> None:
    with pytest.raises(InvalidOption, match=r"s3\.endpoint"):
        Catalog("s3://bucket", {"s3.endpoint": "localhost:9000"})
    with pytest.raises(InvalidOption, match=r"s3\.path\.style\.access"):
        Catalog("s3://bucket", {"s3.path.style.access": "perhaps"})


def test_what_opens_the_store_elsewhere_holds_no_secret(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    io, root = file_io_for(s3.bucket(), s3.options)
    io.overwrite(f"{root}/x", b"1")  # connected now
    assert storage_options(io) == s3.options
    assert b"hush-hush" not in pickle.dumps(io)
    assert pickle.loads(pickle.dumps(io)) == io


@pytest.mark.parametrize(
    ("keys", "variable"),
    [
        ({}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "variable AWS_SECRET_ACCESS_KEY is not set, but AWS_ACCESS_KEY_ID is"),
        ({"AWS_SECRET_ACCESS_KEY": "hush"}, "variable AWS_ACCESS_KEY_ID is not set, but AWS_SECRET_ACCESS_KEY is"),
    ],
)
@pytest.mark.parametrize("options", [{"s3.endpoint": "http://127.0.0.1:1"}, {"s3.endpoint.region": "us-east-1"}])
def test_missing_keys_are_told_by_the_names_of_their_variables(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, str], variable: str, options: dict[str, str]
) -> None:
    """For a store elsewhere at once; for Amazon's own once the machine has told that it has no role."""
    monkeypatch.setattr("lsm_core.storage.object_store._RETRIES", 0)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    if "s3.endpoint" not in options:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")  # a machine without a role
    with pytest.raises(StorageRefused, match=variable) as caught:
        Catalog("s3://bucket/house", options).list_databases()
    assert "hush" not in str(caught.value)


_FORKED = """
import os, sys
from lsm_core import errors
from lsm_core.storage import file_io_for
io, root = file_io_for(sys.argv[1], {"s3.endpoint": sys.argv[2]})
if os.fork() == 0:
    print("not used before:", io.list_dir(root), flush=True)
    os._exit(0)
os.wait()
io.list_dir(root)
if os.fork() == 0:
    for other in (io, file_io_for(root, {"s3.endpoint": sys.argv[2]})[0]):
        try:
            other.list_dir(root)
        except errors.StorageRefused as error:
            print(error, flush=True)
    os._exit(0)
os.wait()
print("the one that forked:", io.list_dir(root))
"""


def test_a_process_that_is_forked_after_a_store_was_used_is_told_so(s3: S3Server) -> None:
    bucket = s3.bucket()
    command = [sys.executable, "-c", _FORKED, bucket, s3.endpoint]
    message = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    refused = f"cannot reach {bucket}: this process was forked from one that used an object store"
    assert message[0] == "not used before: []"
    assert [line.startswith(refused) and "spawn" in line for line in message[1:3]] == [True, True]
    assert message[3:] == ["the one that forked: []"]


def test_paths_of_a_store_stay_inside_their_folder() -> None:
    assert place_of("s3://bucket/a/b") == place_of("s3://bucket") == "s3://bucket"
    assert place_of("/a/s3://b") == ""
    assert inside("s3://bucket/t", "s3://bucket/t/./x") == inside_really("s3://bucket/t", "s3://bucket/t/x")
    for outside in (
        "s3://bucket/t",
        "s3://bucket/tx",
        "s3://bucket2/t/x",
        "/t/x",
        "s3://bucket/t/../u",
        "gs://bucket/t/x",
    ):
        with pytest.raises(CorruptFile):
            inside("s3://bucket/t", outside)
    with pytest.raises(CorruptFile):
        inside("/t", "s3://t/x")
    assert same_place("s3://b/x", "s3://b/x")
    assert not same_place("s3://b/x", "s3://b/y")


def test_a_path_of_this_machine_is_no_object(io: FileIO, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(CorruptFile, match="is not in an object store"):
        io.read_bytes(f"{tmp_path}/x")


def test_a_missing_bucket_is_named_and_whole_buckets_are_never_deleted(io: FileIO, s3: S3Server) -> None:
    with pytest.raises(StorageRefused, match=r"cannot create s3://nowhere-at-all/x: the bucket does not exist"):
        io.write_exclusive("s3://nowhere-at-all/x", b"")
    for ask in (io.exists, io.list_dir):
        with pytest.raises(StorageRefused, match=r"cannot read s3://nowhere-at-all/x: the bucket does not exist"):
            ask("s3://nowhere-at-all/x")
    bucket = s3.bucket()
    io.overwrite(f"{bucket}/x", b"1")
    with pytest.raises(StorageRefused, match="it is a whole bucket"):
        io.delete_dir(bucket)
    assert io.exists(f"{bucket}/x")


# -- puts whose answer was lost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_put_whose_answer_was_lost_is_known_again(io: FileIO, s3: S3Server, mode: str) -> None:
    """The library sends it again and hears that the object exists: it is ours."""
    path = f"{s3.bucket()}/snapshot-1"
    s3.fail("PUT", "snapshot-1", mode=mode)
    s3.requests()
    assert io.write_exclusive(path, b"mine")
    assert [line["method"] for line in s3.requests()].count("PUT") == 2
    assert not io.write_exclusive(path, b"mine")


def test_another_writers_object_is_not_taken_for_ones_own(io: FileIO, s3: S3Server) -> None:
    path = f"{s3.bucket()}/snapshot-1"
    assert io.write_exclusive(path, b"the same bytes")
    s3.fail("PUT", "snapshot-1", mode="before")
    assert not io.write_exclusive(path, b"the same bytes")


def test_an_object_that_a_foreign_engine_put_is_anothers(io: FileIO, s3: S3Server) -> None:
    path = f"{s3.bucket()}/snapshot-1"
    io.overwrite(path, b"bytes")  # nothing on it tells who put it
    assert not io.write_exclusive(path, b"bytes")


def test_a_store_that_fails_for_good_leaves_the_outcome_unknown(
    io: FileIO, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_core.storage.object_store._RETRIES", 1)
    path = f"{s3.bucket()}/snapshot-1"
    s3.fail("PUT", "snapshot-1", mode="before", times=2)
    with pytest.raises(OSError, match="snapshot-1") as caught:
        io.write_exclusive(path, b"mine")
    assert not isinstance(caught.value, FileExistsError)
    assert not io.exists(path)
    s3.fail("PUT", "snapshot-1", mode="after", times=2)
    assert io.write_exclusive(path, b"mine")  # no answer came, but the object says who put it


def test_a_large_file_that_was_given_up_leaves_no_parts(io: FileIO, s3: S3Server) -> None:
    path = f"{s3.bucket()}/x"
    s3.requests()
    out = io.open_output(path)
    out.write(b"x" * (20 << 20))
    out.abort()
    asked = s3.requests()
    assert "uploads" in {line["query"].rstrip("=") for line in asked}
    assert [line["method"] for line in asked if "uploadId" in line["query"]][-1] == "DELETE"
    assert not io.exists(path)


def test_many_deletes_are_few_requests_and_one_that_fails_is_done_file_by_file(
    io: FileIO, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_core.storage.object_store._RETRIES", 0)
    root = s3.bucket()
    paths = [f"{root}/a/{number}" for number in range(20)]
    for path in paths:
        io.overwrite(path, b"1")
    s3.requests()
    assert list(delete_files(io, paths[:10])) == [True] * 10
    assert len(s3.requests()) == 2  # a listing, and one request for all
    s3.fail("POST", "", mode="before")
    left = [*paths[10:15], f"{root}/a/none"]
    assert list(delete_files(file_io_for(root, s3.options)[0], left)) == [True] * 5 + [False]
    s3.fail("POST", "", mode="before", times=0)
    assert [status.name for status in io.list_dir(f"{root}/a")] == [str(number) for number in range(15, 20)]


# -- requests ----------------------------------------------------------------------------------------------------------


def _parquet(io: FileIO, path: str, rows: int, columns: int, groups: int) -> pa.Table:
    random = np.random.default_rng(7)
    table = pa.table({f"c{i}": random.integers(0, 1 << 60, rows) for i in range(columns)})
    with io.open_output(path) as out:
        pq.write_table(table, out, compression="none", use_dictionary=False, row_group_size=-(-rows // groups))
    return table


@pytest.mark.parametrize(
    ("rows", "columns", "groups", "most"),
    [
        (500, 4, 1, 1),  # all of it came with its end
        (50_000, 8, 1, 2),
        (100_000, 8, 4, 5),
        (300_000, 8, 1, 12),  # 19 MB in one row group: its columns come in pieces
    ],
)
def test_reading_a_file_takes_few_requests(
    io: FileIO, s3: S3Server, rows: int, columns: int, groups: int, most: int
) -> None:
    path = f"{s3.bucket()}/x.parquet"
    table = _parquet(io, path, rows, columns, groups)
    s3.requests()
    source = open_source(io, path)
    found = pa.Table.from_batches(source.batches(table.column_names, 8_192))
    source.close()
    assert found.equals(table)
    asked = s3.requests()
    assert {line["method"] for line in asked} == {"GET"}
    assert len(asked) <= most


def test_columns_that_are_not_asked_for_are_not_fetched(io: FileIO, s3: S3Server) -> None:
    path = f"{s3.bucket()}/x.parquet"
    table = _parquet(io, path, 400_000, 5, 1)  # 3.2 MB a column
    source = open_source(io, path)
    s3.requests()
    found = pa.Table.from_batches(source.batches(["c0", "c3"], 8_192))
    source.close()
    assert found.equals(table.select(["c0", "c3"]))
    fetched = [line["range"].removeprefix("bytes=").split("-") for line in s3.requests()]
    assert len(fetched) == 2
    assert sum(int(last) - int(first) + 1 for first, last in fetched) < 2.1 * 3_200_000


# -- reading ahead, without a store ------------------------------------------------------------------------------------


class Bytes:
    """A file whose requests are noted."""

    def __init__(self, size: int) -> None:
        self.data = np.random.default_rng(3).integers(0, 256, size, np.uint8).tobytes()
        self.asked: list[tuple[int, int]] = []

    def fetch(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(self.data)
        self.asked.append((start, end))
        return self.data[start:end]

    def open(self) -> RemoteFile:
        return RemoteFile.opened(
            self.fetch, lambda length: (len(self.data), self.data[-length:]), lambda: len(self.data)
        )


def test_neighbours_are_fetched_together_and_the_next_group_meanwhile() -> None:
    file = Bytes(10_000_000)
    groups = [[(4, 1_000_000), (1_000_000, 2_000_000)], [(3_000_000, 3_500_000), (5_000_000, 5_500_000)]]
    source = ahead(file.open(), groups)
    assert file.asked == []  # nothing before it is needed
    assert source.read_at(100, 4) == file.data[4:104]
    for low, high in (pair for group in groups for pair in group):
        assert source.read_at(high - low, low) == file.data[low:high]
    assert sorted(file.asked) == [(4, 2_000_000), (3_000_000, 3_500_000), (5_000_000, 5_500_000)]


def test_large_groups_come_in_pieces_of_their_columns() -> None:
    size = 2 * GROUP_BYTES
    file = Bytes(size)
    half = size // 2
    source = ahead(file.open(), [[(0, half), (half, size - 100_000)]])
    for start in range(0, half - 65_536, 65_536):  # two columns, in turn
        assert source.read_at(65_536, start) == file.data[start : start + 65_536]
        if half + start + 65_536 < size - 100_000:
            assert source.read_at(65_536, half + start) == file.data[half + start : half + start + 65_536]
    assert len(file.asked) <= 6
    assert max(end - start for start, end in file.asked) <= GROUP_BYTES // 2


def test_what_was_not_announced_is_read_all_the_same() -> None:
    file = Bytes(3_000_000)
    source = ahead(file.open(), [[(1_000_000, 1_000_100)]])
    for start, length in ((0, 10), (1_000_050, 100), (2_999_990, 10), (999_999, 2), (10, 2_000_000)):
        assert source.read_at(length, start) == file.data[start : start + length]


def test_what_all_files_fetch_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from lsm_core.storage import remote_input

    monkeypatch.setattr(remote_input, "_AHEAD", remote_input._Allowance(1_000_000))
    files = [Bytes(4_000_000) for _ in range(3)]
    sources = [ahead(file.open(), [[(0, 700_000)], [(2_000_000, 2_700_000)]]) for file in files]
    for source in sources:
        source.read_at(10, 0)
    begun = Counter(len(file.asked) for file in files)
    assert begun[2] <= 1  # one of the three may have asked for its next group
    for source, file in zip(sources, files, strict=True):
        assert source.read_at(10, 2_000_000) == file.data[2_000_000:2_000_010]
    del sources, source
    assert remote_input._AHEAD._left == 1_000_000


def test_an_error_of_a_request_reaches_the_reader() -> None:
    def broken(start: int, end: int) -> bytes:
        raise ConnectionResetError(104, "Connection reset by peer")

    source = RemoteFile.opened(broken, lambda length: (1_000_000, b"e" * 10), lambda: 1_000_000)
    with pytest.raises(OSError, match="Connection reset"):
        source.read_at(10, 0)
    with pytest.raises(OSError, match="Connection reset"):
        ahead(source, [[(0, 100)]]).read_at(10, 0)


def test_opening_tells_of_a_missing_object_at_once(io: FileIO, s3: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(CorruptFile, match="the file is missing"):
        open_source(io, f"{s3.bucket()}/none.parquet")
    assert not caplog.records

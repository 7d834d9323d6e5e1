"""Tables in an object store against the same tables on a disk, requests per file, and two client libraries."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import obstore
from obstore.store import from_url
from pyarrow.fs import FileSelector, S3FileSystem

from bench.harness import OnFresh, Result, Timing, alternate
from bench.table_life import BUCKETS, filled, scratch
from lsm_core import Catalog, Table
from lsm_core.storage import FileIO
from tests.support.s3_server import ENVIRONMENT, S3Server, s3_server

ROWS = 1_000_000
TARGET = 1.5
_OBJECTS, _RANGES, _RANGE_BYTES = 500, 64, 1 << 17


def run(rows: int | None, rounds: int) -> list[Result]:
    """Compare merge-on-read and full compaction between a loopback store and the local disk, and the libraries."""
    with scratch() as folder, s3_server() as server:
        local = filled(folder / "house", rows or ROWS)
        bucket = server.bucket()
        remote, disk = Catalog(f"{bucket}/house", server.options), Catalog(str(folder / "house"))
        _upload(Path(local.store.root), remote.file_io, f"{remote.root}/bench.db/t")
        results = _against_disk("merge-on-read", partial(_drain, remote), partial(_drain, disk), rounds, rows or ROWS)
        results.append(_requests_of("merge-on-read", server, partial(_drain, remote), remote.table("bench.t")))
        in_store = OnFresh(partial(_copied_in_store, local, remote), _compact)
        on_disk = OnFresh(partial(_copied_on_disk, local, folder), _compact)
        results += _against_disk("full compaction", in_store, on_disk, rounds, rows or ROWS)
        with _copied_in_store(local, remote) as fresh:
            results.append(_requests_of("full compaction", server, partial(fresh.compact, full=True), fresh))
        return results + _libraries(server, rounds)


def _compact(table: Table) -> None:
    table.compact(full=True)


def _drain(catalog: Catalog) -> None:
    """Read all rows without cached state."""
    for _ in catalog.table("bench.t").to_batches():
        pass


def _against_disk(name: str, store: Any, disk: Any, rounds: int, rows: int) -> list[Result]:
    times = alternate({"store": store, "disk": disk}, rounds)
    return _compared(f"{name}, object store over disk", times, ("store", "disk"), TARGET, rows)


def _compared(
    name: str, times: dict[str, Timing], pair: tuple[str, str], target: float | None, rows: int = 0
) -> list[Result]:
    ours, theirs = (times[side] for side in pair)
    pairs = [mine / other for mine, other in zip(ours.seconds, theirs.seconds, strict=True)]
    note = f"{rows / ours.median / 1e6:.2f} M rows/s" if rows else ""
    head = Result("s3", name, ours.median / theirs.median, "x", target, low=min(pairs), high=max(pairs), note=note)
    return [
        head.judged(),
        *(
            Result("s3", f"{name}: {who}", time.median, "s", None, low=min(time.seconds), high=max(time.seconds))
            for who, time in zip(pair, (ours, theirs), strict=True)
        ),
    ]


def _requests_of(name: str, server: S3Server, work: Any, table: Table) -> Result:
    """Return the requests per data file that is read or written, without the requests for metadata."""
    before = {status.path for status in _data_files(table)}
    server.requests()
    work()
    requests = server.requests()
    touched = before | {status.path for status in _data_files(table)}
    server.requests()
    data = [line for line in requests if line["path"].rpartition("/")[2].startswith("data-")]
    methods = ", ".join(
        f"{count} {method}" for method, count in sorted(Counter(line["method"] for line in requests).items())
    )
    note = f"{len(data)} for {len(touched)} data files, {len(requests) - len(data)} for metadata ({methods})"
    return Result("s3", f"{name}: requests per data file", len(data) / max(len(touched), 1), "", None, note=note)


def _data_files(table: Table) -> Iterator[Any]:
    io, root = table.store.file_io, table.store.root
    for bucket in range(BUCKETS):
        yield from (status for status in io.list_dir(f"{root}/bucket-{bucket}") if status.name.startswith("data-"))


def _upload(source: Path, io: FileIO, target: str) -> None:
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        with io.open_output(f"{target}/{path.relative_to(source)}") as out:
            out.write(path.read_bytes())


@contextmanager
def _copied_in_store(local: Table, remote: Catalog) -> Iterator[Table]:
    path = f"{remote.root}/bench.db/fresh"
    _upload(Path(local.store.root), remote.file_io, path)
    try:
        yield remote.table("bench.fresh")
    finally:
        remote.file_io.delete_dir(path)


@contextmanager
def _copied_on_disk(local: Table, folder: Path) -> Iterator[Table]:
    target = folder / "copy"
    shutil.copytree(Path(local.store.root), target / "bench.db" / "t")
    try:
        yield Catalog(str(target)).table("bench.t")
    finally:
        shutil.rmtree(target)


def _libraries(server: S3Server, rounds: int) -> list[Result]:
    """Compare obstore with pyarrow's S3FileSystem: ranges of an object, and the removal of many objects."""
    bucket = server.bucket()
    name = urlsplit(bucket).netloc
    store = from_url(bucket, config={"endpoint": server.endpoint}, client_options={"allow_http": True})
    arrow = S3FileSystem(
        access_key=ENVIRONMENT["AWS_ACCESS_KEY_ID"], secret_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        region=ENVIRONMENT["AWS_REGION"], endpoint_override=urlsplit(server.endpoint).netloc, scheme="http",
    )  # fmt: skip
    data = np.random.default_rng(5).bytes(_RANGES * 2 * _RANGE_BYTES)
    obstore.put(store, "large", data)
    starts = [2 * number * _RANGE_BYTES for number in range(_RANGES)]

    def ranges_obstore() -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda at: obstore.get_range(store, "large", start=at, length=_RANGE_BYTES), starts))

    def ranges_arrow() -> None:
        with arrow.open_input_file(f"{name}/large") as source, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda at: source.read_at(_RANGE_BYTES, at), starts))

    @contextmanager
    def many() -> Iterator[list[str]]:
        keys = [f"many/{number}" for number in range(_OBJECTS)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: obstore.put(store, key, b"x"), keys))
        yield keys

    def deletes_arrow(_: list[str]) -> None:
        arrow.delete_dir_contents(f"{name}/many")
        assert not arrow.get_file_info(FileSelector(f"{name}/many", allow_not_found=True))

    reads = alternate({"obstore": ranges_obstore, "pyarrow.fs": ranges_arrow}, rounds)
    deletes = alternate(
        {
            "obstore": OnFresh(many, lambda keys: obstore.delete(store, keys)),
            "pyarrow.fs": OnFresh(many, deletes_arrow),
        },
        rounds,
    )
    pair = ("obstore", "pyarrow.fs")
    return [
        *_compared(f"{_RANGES} ranges of 128 KiB, eight at a time", reads, pair, None),
        *_compared(f"deleting {_OBJECTS} objects", deletes, pair, None),
    ]

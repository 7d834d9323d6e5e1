"""Check `pages_readable`: a sample, or all, of the newest snapshot's data files can be decoded page by page.

Parquet pages carry checksums, which the decoder compares. ORC and Avro files are decoded whole, which finds the damage
that their formats can detect.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.errors import CorruptFile, DredgeError, InvalidData, UnsupportedFeature, ValueTooLarge
from lsm_core.files.formats import open_source
from lsm_core.files.reader import file_layout
from lsm_core.format.manifest import ENTRY_SCHEMA
from lsm_core.json_text import ObjectReader, parse_object
from lsm_core.maintenance.checks.outcome import CheckInput, CheckReport, DeepRead, PageProblem
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.progress import advance, stage

_LOG: Final = logging.getLogger(__name__)
_COLUMNS: Final = ("partition", "bucket", "file_name", "file_size", "row_count", "schema_id", "external_path")
FILES_TO_READ: Final = pa.schema([ENTRY_SCHEMA.field(name) for name in _COLUMNS])
"""Columns of the data files that a page reader receives."""
_ROUND_FILES: Final = 10_000
"""Number of files after which a pass saves its position at the latest."""
_BATCH_ROWS: Final = 16_384
_MAX_DAMAGED: Final = 1_000
"""Number of damaged files whose names a pass keeps, to read them again when it is resumed."""
_MAX_PROGRESS_BYTES: Final = 1 << 20
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class _Progress:
    """Position of an unfinished pass: files are read in the order of their names.

    Attributes:
        position: name of the last file that was read, "" before the first file.
        files: number of data files read so far.
        bytes: stored bytes of the files read so far.
        damaged: names of the damaged files found so far.
        unread: number of files so far that use a feature that Dredge does not read.
    """

    position: str = ""
    files: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()
    unread: int = 0


def pages_readable(check_input: CheckInput) -> CheckReport:
    """Check a sample of the data files, or all data files if the limits request a deep read.

    Args:
        check_input: store, snapshot and limits; `limits.page_bytes` bounds a sample, `limits.deep` requests all files.

    Returns:
        The report. A damaged file is a problem that names the file.
    """
    deep = check_input.limits.deep
    return _read_sample(check_input) if deep is None else _read_all(check_input, deep)


def read_pages(store: TableStore, files: pa.Table) -> list[PageProblem]:
    """Decode every page of data files in this process, one batch of one file in memory at a time.

    Args:
        store: the table.
        files: the files as a table of schema `FILES_TO_READ`.

    Returns:
        One problem per file that cannot be read.
    """
    problems = []
    with stage(f"reading pages of {store.name}", files.num_rows, "files"):
        for file in files.to_pylist():
            problem = _read_file(store, file)
            if problem is not None:
                problems.append(problem)
            advance()
    return problems


def _read_file(store: TableStore, file: dict[str, Any]) -> PageProblem | None:
    """Decode every page of ``file``, a row of `FILES_TO_READ`, and return the problem, or None."""
    name = file["file_name"]
    try:
        path = store.data_path(file["partition"], file["bucket"], name, file["external_path"])
        source = open_source(
            store.file_io,
            path,
            size=file["file_size"],
            rows=file["row_count"],
            table=store.name,
            layout=lambda: file_layout(store, file["schema_id"]),
        )
        try:
            for _ in source.batches(source.schema.names, _BATCH_ROWS):
                continue
        finally:
            source.close()
    except (CorruptFile, InvalidData, ValueTooLarge) as error:
        return PageProblem(name, str(error))
    except UnsupportedFeature as error:
        return PageProblem(name, str(error), damaged=False)
    return None


# -- a sample ----------------------------------------------------------------------------------------------------------


def _read_sample(check_input: CheckInput) -> CheckReport:
    """Read a random sample of files, and return the report.

    The first file may have any size; further files must fit into `limits.page_bytes`. The random seed depends on the
    snapshot and the day.
    """
    store = check_input.store
    sizes = np.concatenate(
        [
            np.empty(0, np.int64),
            *(numpy_array(part.column("file_size").combine_chunks()) for part in _live(check_input)),
        ]
    )
    chosen = _draw(sizes, check_input.limits.page_bytes, check_input.seed ^ (store.clock.now_ms() // _DAY_MS))
    start, parts = 0, [FILES_TO_READ.empty_table()]
    for part in _live(check_input):
        inside = chosen[(chosen >= start) & (chosen < start + part.num_rows)] - start
        parts.append(part.take(arrow_array(inside)))
        start += part.num_rows
    files = pa.concat_tables(parts)
    problems = _still_live(store, check_input, read_pages(store, files))
    progress = _Progress("", files.num_rows, int(sizes[chosen].sum()))
    return _report(check_input, progress, problems, len(sizes), "")


def _draw(sizes: np.ndarray[Any, Any], budget: int, seed: int) -> np.ndarray[Any, Any]:
    """Return the indexes of a random sample of files, in ascending order.

    Args:
        sizes: size of each file in bytes.
        budget: limit of the sample's size in bytes; one file is drawn even if it is larger.
        seed: seed of the random order.
    """
    order = np.random.default_rng(seed).permutation(len(sizes))
    in_budget = np.cumsum(sizes[order]) <= budget
    in_budget[:1] = True
    return np.sort(order[in_budget])


# -- all files ---------------------------------------------------------------------------------------------------------


def _read_all(check_input: CheckInput, deep: DeepRead) -> CheckReport:
    """Read files in the order of their names from the saved position, and save the position after each round.

    Files that earlier calls of the same pass found damaged are read again first.
    """
    store, reader = check_input.store, deep.reader or read_pages
    path = progress_path(store)
    progress = _load(store, path)
    resumed, note = progress.files, ""
    again = progress.damaged
    progress = replace(progress, damaged=())
    problems: list[PageProblem] = []
    left = deep.bytes
    window = _Window(FILES_TO_READ.empty_table(), FILES_TO_READ.empty_table(), 0, more=True)
    while True:
        if not window.files.num_rows:
            window = _next_window(check_input, progress.position, again)
        files, later = _split(window.files, deep.round_bytes if left is None else min(deep.round_bytes, left))
        round_problems = reader(store, pa.concat_tables([files, window.repeated]))
        problems += round_problems
        size = int(pc.sum(files.column("file_size")).as_py() or 0)
        damaged = [problem.file_name for problem in round_problems if problem.damaged]
        progress = _Progress(
            pc.max(files.column("file_name")).as_py() or progress.position,
            progress.files + files.num_rows,
            progress.bytes + size,
            (*progress.damaged, *damaged)[:_MAX_DAMAGED],
            progress.unread + len(round_problems) - len(damaged),
        )
        more = window.more or later.num_rows > 0
        window = replace(window, files=later, repeated=window.repeated.slice(0, 0))
        again, left = (), None if left is None else left - size
        if not more:
            note = note or _forget(store, path)
            break
        note = _save(store, path, progress)
        if left is not None and left <= 0:
            break
    if resumed:
        note = f"; resumed after {resumed:,} files of an earlier call{note}"
    if more:
        note = f"; {window.live - progress.files:,} files are left: the next call goes on{note}"
    return _report(check_input, progress, _still_live(store, check_input, problems), window.live, note)


@dataclass(frozen=True)
class _Window:
    """Next files to read in a pass over all files, collected for several rounds by one scan of the live files.

    Attributes:
        files: files that are not read yet, in the order of their names (schema `FILES_TO_READ`).
        repeated: files to read again with the next round (group of files read at once): those that earlier calls of the
            pass found damaged.
        live: number of live files of the snapshot.
        more: whether live files remain after ``files``.
    """

    files: pa.Table
    repeated: pa.Table
    live: int
    more: bool


def _next_window(check_input: CheckInput, after: str, again: tuple[str, ...]) -> _Window:
    """Return the next live files whose names sort after ``after``, and files before that are named in ``again``."""
    files, repeated, live, waiting = FILES_TO_READ.empty_table(), [FILES_TO_READ.empty_table()], 0, 0
    for part in _live(check_input):
        live += part.num_rows
        before = part.filter(pc.less_equal(part.column("file_name"), after))
        repeated.append(before.filter(pc.is_in(before.column("file_name"), pa.array(again, pa.string()))))
        part = part.filter(pc.greater(part.column("file_name"), after))
        waiting += part.num_rows
        files = pa.concat_tables([files, part])
        if files.num_rows > 2 * _ROUND_FILES:
            files = _first(files)
    files = _first(files)
    return _Window(files, pa.concat_tables(repeated), live, more=waiting > files.num_rows)


def _first(files: pa.Table) -> pa.Table:
    """Return the first files by name, as many as one scan collects."""
    files = files.sort_by("file_name")
    return files if files.num_rows <= _ROUND_FILES else _split_at(files, _ROUND_FILES)[0]


def _split(files: pa.Table, most: int) -> tuple[pa.Table, pa.Table]:
    """Split files into (first files with at most ``most`` bytes together, all later files).

    The first part has at least one file, so that each call makes progress.
    """
    sizes = numpy_array(files.column("file_size").combine_chunks())
    count = max(1, int(np.searchsorted(np.cumsum(sizes), most, side="right")))
    return (files, files.slice(files.num_rows)) if count >= files.num_rows else _split_at(files, count)


def _split_at(files: pa.Table, count: int) -> tuple[pa.Table, pa.Table]:
    """Split files into (about the first ``count`` files, later files).

    Files with equal names must stay together, because the position of a pass is a file name.
    """
    names = files.column("file_name")
    count = pc.sum(pc.less_equal(names, names[count - 1])).as_py()
    return files.slice(0, count), files.slice(count)


# -- shared helpers ----------------------------------------------------------------------------------------------------


def _live(check_input: CheckInput) -> Iterator[pa.Table]:
    for part in manifests.iter_live(check_input.store, check_input.snapshot):
        yield part.select(FILES_TO_READ.names).cast(FILES_TO_READ)


def _still_live(store: TableStore, check_input: CheckInput, problems: list[PageProblem]) -> list[PageProblem]:
    """Return the problems of files that are still live: a file removed by a later commit may be deleted at any time."""
    latest = snapshots.latest(store) if problems else None
    if latest is None or latest.id == check_input.snapshot.id:
        return problems
    names: set[str] = set()
    suspects = pa.array([problem.file_name for problem in problems], pa.string())
    for part in manifests.iter_live(store, latest):
        column = part.column("file_name")
        names |= set(column.filter(pc.is_in(column, suspects)).to_pylist())
    return [problem for problem in problems if problem.file_name in names]


def _report(
    check_input: CheckInput, progress: _Progress, problems: list[PageProblem], live: int, note: str
) -> CheckReport:
    damaged = [problem for problem in problems if problem.damaged]
    numbers = {
        "files_read": progress.files,
        "files": live,
        "bytes_read": progress.bytes,
        "files_damaged": len(damaged),
        "files_not_read": max(progress.unread, len(problems) - len(damaged)),
    }
    if damaged:
        text = f"{len(damaged)} of {progress.files:,} files read are damaged: {damaged[0].reason}{note}"
        names = [problem.file_name for problem in damaged]
        return check_input.fails(text, [problem.reason for problem in damaged], **numbers).with_damage(names)
    unread = f", {numbers['files_not_read']} of them of a kind that is not read" if numbers["files_not_read"] else ""
    text = f"every page of {progress.files:,} of {live:,} files can be read, {progress.bytes:,} bytes{unread}{note}"
    return check_input.passes(text, **numbers)


# -- the position of a pass --------------------------------------------------------------------------------------------


def progress_path(store: TableStore) -> str:
    """Return the path of the saved position of an unfinished pass over the files of a table or branch.

    Args:
        store: the table or branch.
    """
    return f"{store.root}/dredge/deep-check/{store.branch or 'main'}.json"


def _load(store: TableStore, path: str) -> _Progress:
    """Return the saved position; if it is missing or unreadable, a new pass starts."""
    try:
        if not store.file_io.exists(path) or store.file_io.size(path) > _MAX_PROGRESS_BYTES:
            return _Progress()
        value = ObjectReader(parse_object(store.file_io.read_bytes(path), path), path)
        counts = (value.integer("files"), value.integer("bytes"), value.integer("unread"))
        if min(counts) < 0:
            raise CorruptFile(path, "a count is negative")
        return _Progress(value.text("position"), *counts[:2], value.texts("damaged"), counts[2])
    except (DredgeError, OSError) as error:
        _LOG.warning("table %s: the deep check starts again: %s", store.name, error)
        return _Progress()


def _save(store: TableStore, path: str, progress: _Progress) -> str:
    """Save the position; if saving fails, return a note for the report and raise no error, else return ""."""
    value = {
        "position": progress.position,
        "files": progress.files,
        "bytes": progress.bytes,
        "damaged": list(progress.damaged),
        "unread": progress.unread,
    }
    try:
        store.file_io.overwrite(path, json.dumps(value).encode())
    except (DredgeError, OSError) as error:
        return f"; the position is not kept, a later call starts again: {error}"
    return ""


def _forget(store: TableStore, path: str) -> str:
    """Delete the saved position at the end of a pass; if this fails, return a note for the report, else ""."""
    try:
        if store.file_io.exists(path):
            store.delete(path)
    except (DredgeError, OSError) as error:
        return f"; its position cannot be removed: {error}"
    return ""

"""What the tasks of one write leave for each other and for the driver, in files below the table that are gone after it.

These are notes of who began to write, by which the driver finds what Spark killed; and rows on their way to the one writer that must see
them all: a data source cannot ask Spark for a shuffle, and where keys move between partitions no task can tell by itself where a row goes.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage
from lsm_core.commit.drafts import remove
from lsm_core.errors import CorruptFile, DredgeError, SparkFailed
from lsm_core.maintenance.actions.orphans.listing import list_table
from lsm_core.metadata.store import TableStore

_LOG: Final = logging.getLogger(__name__)
_UUID_LENGTH: Final = 36
_KINDS: Final = "\0kinds"
_KINDS_FIELD: Final = pa.field(_KINDS, pa.int8())
_OPEN: Final = "open"
_BEGUN: Final = ".begun"
_DONE: Final = ".done"
_KEPT_MS: Final = 7 * 24 * 3_600_000
_KILL_SECONDS: Final = 6.0
"""Spark kills the worker of a task that does not end by itself within about this time (`spark.python.task.killTimeout`)."""


def new_family() -> str:
    """How the UUIDs in the names of all files begin that the tasks of one job make (`TableStore.in_family`)."""
    return str(uuid.uuid4())[:18]


@dataclass(frozen=True)
class WriteFolder:
    """The folder of one write, `<table>/dredge/staged/<id>`; sent to the tasks.

    It holds the file `open` as long as the write goes on: Spark ends a write that failed while tasks of it still run.
    """

    store: TableStore
    folder: str

    @classmethod
    def plan(cls, store: TableStore) -> WriteFolder:
        """Make a folder that nobody else has. Those of writes whose driver died more than a week ago are removed.

        Raises StorageFull, OSError.
        """
        parent = f"{store.root}/dredge/staged"
        with suppress(OSError, DredgeError):
            for status in store.file_io.list_dir(parent):
                inside = (
                    [] if status.mtime_ms else store.file_io.list_dir(status.path)
                )  # object stores date files alone
                newest = max((file.mtime_ms for file in inside), default=status.mtime_ms)
                if status.is_dir and newest < store.clock.now_ms() - _KEPT_MS:
                    store.delete_dir(status.path)
        folder = f"{parent}/{uuid.uuid4()}"
        store.file_io.overwrite(f"{folder}/{_OPEN}", b"", durable=False)
        return cls(store, folder)

    # -- who writes --------------------------------------------------------------------------------------------------

    def begin(self, attempt: str) -> None:
        """Note that a task is about to make files whose names hold the UUID ``attempt``.

        Raises SparkFailed when the write has ended, StorageFull, OSError.
        """
        self.require_open()
        self.store.file_io.overwrite(f"{self.folder}/{attempt}{_BEGUN}", b"", durable=False)

    def finish(self, attempt: str) -> None:
        """Note that the attempt makes no more files. Raises SparkFailed when the write has ended: nobody takes those that it made."""
        self.require_open()
        self.store.file_io.overwrite(f"{self.folder}/{attempt}{_DONE}", b"", durable=False)

    def note(self, name: str) -> None:
        """Leave a note of this name, for whoever watches the job; one that cannot be left is not missed. Raises SparkFailed when the job has ended."""
        self.require_open()
        with suppress(OSError, DredgeError):
            self.store.file_io.overwrite(f"{self.folder}/{name}", b"", durable=False)

    def forget(self, attempt: str) -> None:
        """No file of the attempt is left."""
        with suppress(OSError, DredgeError):
            self.store.delete(f"{self.folder}/{attempt}{_BEGUN}")

    def require_open(self) -> None:
        """Raise SparkFailed when the write has ended."""
        if not self.store.file_io.exists(f"{self.folder}/{_OPEN}"):
            raise SparkFailed(f"writing table {self.store.name}", "the write was ended while this task ran")

    def close(self, known: Collection[str] = (), *, failed: bool = False) -> set[str]:
        """End the write for all tasks that still run; the attempts that may have left files, but for the ``known`` ones.

        After a write that ``failed`` several may still be at work, one of them dead: they are given the time that Spark gives them.
        """
        with suppress(OSError, DredgeError):
            self.store.delete(f"{self.folder}/{_OPEN}")
        until = time.monotonic() + (_KILL_SECONDS if failed else 0)
        while True:
            begun, done = self._noted()
            if len(begun - done - set(known)) <= 1 or time.monotonic() >= until:
                break
            time.sleep(0.1)
        self.remove()
        return begun - set(known)

    def end(
        self,
        family: str,
        messages: Sequence[CommitMessage] = (),
        places: Collection[str] | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """End the job for all tasks that still run, and delete the files that nobody answers for: of tasks that were killed, or whose answer
        never came because Spark ran them again (a lost executor, speculation), or gave up the job.

        ``family``: how the UUIDs in the names of all files begin that its tasks make. ``messages``: those of tasks that answered, whose files
        stay. ``places``: the folders where the files lie (None: looked for in the whole table). What cannot be found is left to orphan cleaning.
        """
        named = {file.file_name for message in messages for file in message.written()}
        answered = {name[at : at + _UUID_LENGTH] for name in named if (at := name.rfind(family)) >= 0}
        if not self.close(answered, failed=failed):
            return
        named |= {
            name
            for message in messages
            for file in (*message.own_files(), *message.changelog_files, *message.compact_changelog)
            for name in file.extra_files
        }
        try:
            if places is None:
                listing = list_table(self.store)
                mine = listing.files.filter(pc.match_substring(listing.files.column("name"), family))
                at, names = mine.column("folder").to_numpy(), mine.column("name").to_numpy()
                listed = [(f"{listing.folders[folder]}/{name}", name) for folder, name in zip(at, names, strict=True)]
            else:
                listed = [
                    (file.path, file.name) for place in sorted(places) for file in self.store.file_io.list_dir(place)
                ]
            remove(self.store.file_io, [path for path, name in listed if family in name and name not in named])
        except (OSError, DredgeError) as error:
            _LOG.warning(
                "table %s: what killed tasks left was not found, orphan cleaning will: %s", self.store.name, error
            )

    def _noted(self) -> tuple[set[str], set[str]]:
        """The attempts that began, and those that are done."""
        names: list[str] = []
        with suppress(OSError, DredgeError):
            names = [file.name for file in self.store.file_io.list_dir(self.folder)]
        begun, done = (
            {name.removesuffix(end) for name in names if name.endswith(end) and not name.startswith(".")}
            for end in (_BEGUN, _DONE)
        )
        return begun, done

    # -- rows for one writer -----------------------------------------------------------------------------------------

    def put(self, pieces: Iterable[tuple[pa.Table, pa.Array | None]]) -> str:
        """Write rows (the table's columns) and their kinds (int8; None: all inserts) and return the file's name.

        Nothing is left of a file that fails. Raises StorageFull, SparkFailed when the write has ended, and what ``pieces`` raises.
        """
        self.require_open()
        name = f"{uuid.uuid4()}.arrow"
        schema = self.store.schema.arrow_schema.append(_KINDS_FIELD)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            self.store.file_io.open_output(f"{self.folder}/{name}") as output,
            pa.ipc.new_stream(pa.PythonFile(output, "w"), schema, options=options) as writer,
        ):
            for rows, kinds in pieces:
                row_kinds = pa.nulls(rows.num_rows, pa.int8()) if kinds is None else kinds
                writer.write_table(rows.append_column(_KINDS_FIELD, row_kinds))
        try:
            self.require_open()
        except SparkFailed:
            self.remove()
            raise
        return name

    def rows(self, names: Iterable[str]) -> Iterator[tuple[pa.Table, pa.Array | None]]:
        """What :meth:`put` wrote, file by file, a batch in memory at a time. Raises CorruptFile."""
        for name in names:
            path = f"{self.folder}/{name}"
            try:
                with self.store.file_io.open_input(path) as source, pa.ipc.open_stream(source) as reader:
                    for batch in reader:
                        kinds = batch.column(_KINDS)
                        rows = pa.Table.from_batches([batch.drop_columns([_KINDS])])
                        yield rows, None if kinds.null_count == len(kinds) else kinds
            except (FileNotFoundError, pa.ArrowException) as error:
                raise CorruptFile(path, f"staged rows of this write: {error}") from error

    def remove(self) -> None:
        """Delete the folder and all it holds, as far as possible."""
        with suppress(OSError, DredgeError):
            self.store.delete_dir(self.folder)


__all__ = ["WriteFolder", "new_family"]

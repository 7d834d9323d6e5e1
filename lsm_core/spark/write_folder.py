"""Notes and staged rows of the tasks of one write, in files below the table that are deleted after the write.

Notes are empty files that record which tasks began to write, so that the driver finds the files of tasks that Spark
killed. Staged rows are rows that tasks store for a single writer, which must see all rows of the write. A data source
cannot ask Spark for a shuffle, and if keys move between partitions no single task can route a row.
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
from lsm_core.commit.attempt import remove
from lsm_core.errors import CorruptFile, DredgeError, SparkFailed
from lsm_core.maintenance.actions.orphans.listing import list_table
from lsm_core.metadata.external_paths import ENTROPY_FOLDER
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileStatus

_LOG: Final = logging.getLogger(__name__)
_UUID_LENGTH: Final = 36
_KINDS: Final = "\0kinds"
_KINDS_FIELD: Final = pa.field(_KINDS, pa.int8())
_OPEN: Final = "open"
_BEGUN: Final = ".begun"
_DONE: Final = ".done"
_KEPT_MS: Final = 7 * 24 * 3_600_000
_KILL_SECONDS: Final = 6.0
"""Seconds after which Spark kills the worker of a task that does not end (`spark.python.task.killTimeout`)."""


def new_family() -> str:
    """Return a new prefix for the UUIDs in the names of all files of one job (`TableStore.in_family`)."""
    return str(uuid.uuid4())[:18]


@dataclass(frozen=True)
class WriteFolder:
    """Folder of one write, `<table>/dredge/staged/<id>`; sent to the tasks.

    While the write lasts, the folder has the file `open`. Tasks check this file, because tasks of a failed write may
    still run.

    Attributes:
        store: The table.
        folder: Path of the folder.
    """

    store: TableStore
    folder: str

    @classmethod
    def plan(cls, store: TableStore) -> WriteFolder:
        """Create a folder for a new write, and remove folders of writes that got no new file for more than a week.

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
        """Note that a task is about to make files whose names contain the UUID ``attempt``.

        Raises SparkFailed if the write has ended, StorageFull, OSError.
        """
        self.require_open()
        self.store.file_io.overwrite(f"{self.folder}/{attempt}{_BEGUN}", b"", durable=False)

    def finish(self, attempt: str) -> None:
        """Note that the task attempt whose files have the UUID ``attempt`` makes no more files.

        Raises SparkFailed if the write has ended, because the files of the attempt can no longer be committed.
        """
        self.require_open()
        self.store.file_io.overwrite(f"{self.folder}/{attempt}{_DONE}", b"", durable=False)

    def note(self, name: str) -> None:
        """Create an empty file ``name`` in the folder, from which the driver reads the progress of the job.

        A storage error is ignored. Raises SparkFailed if the job has ended.
        """
        self.require_open()
        with suppress(OSError, DredgeError):
            self.store.file_io.overwrite(f"{self.folder}/{name}", b"", durable=False)

    def forget(self, attempt: str) -> None:
        """Remove the note that the task attempt with UUID ``attempt`` began; no file of the attempt is left."""
        with suppress(OSError, DredgeError):
            self.store.delete(f"{self.folder}/{attempt}{_BEGUN}")

    def require_open(self) -> None:
        """Raise SparkFailed if the write has ended."""
        if not self.store.file_io.exists(f"{self.folder}/{_OPEN}"):
            raise SparkFailed(f"writing table {self.store.name}", "the write was ended while this task ran")

    def close(self, known: Collection[str] = (), *, failed: bool = False) -> set[str]:
        """End the write for all tasks that still run, and remove the folder.

        Args:
            known: UUIDs of the attempts whose commit messages arrived.
            failed: Whether the write failed. If true, wait until at most one unfinished attempt is left, but no longer
                than Spark waits before it kills a worker.

        Returns:
            UUIDs of the attempts that began to write and are not ``known``; they may have left files.
        """
        with suppress(OSError, DredgeError):
            self.store.delete(f"{self.folder}/{_OPEN}")
        until = time.monotonic() + (_KILL_SECONDS if failed else 0)
        while True:
            started, done = self._noted()
            if len(started - done - set(known)) <= 1 or time.monotonic() >= until:
                break
            time.sleep(0.1)
        self.remove()
        return started - set(known)

    def end(
        self,
        family: str,
        messages: Sequence[CommitMessage] = (),
        places: Collection[str] | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """End the job for all tasks that still run, and delete the files without a commit message.

        A file without a commit message belongs to a task that was killed, or whose answer never arrived. Spark ran this
        task again (a lost executor, speculation), or the job failed. Files that cannot be found are left to orphan
        removal.

        Args:
            family: Prefix of the UUIDs in the names of all files of the job.
            messages: Commit messages of the tasks that answered; their files are kept.
            places: Folders with the files; None to search the whole table.
            failed: Whether the job failed.
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
                listed = [(file.path, file.name) for place in sorted(places) for file in self._files_in(place)]
            mine_only = [path for path, name in listed if family in name and name not in named]
            remove(self.store.file_io, [self.store.own_path(path) for path in mine_only])
        except (OSError, DredgeError) as error:
            _LOG.warning(
                "table %s: what killed tasks left was not found, orphan cleaning will: %s", self.store.name, error
            )

    def _files_in(self, folder: str) -> Iterator[FileStatus]:
        """Yield the files of a folder, and those below the folders of the strategy `entropy-inject` in it."""
        for status in self.store.file_io.list_dir(folder):
            if not status.is_dir:
                yield status
            elif ENTROPY_FOLDER.fullmatch(status.name) and not folder.startswith(f"{self.store.root}/"):
                yield from self._files_in(status.path)

    def _noted(self) -> tuple[set[str], set[str]]:
        """Return (UUIDs of attempts that began, UUIDs of attempts that finished) according to the notes."""
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
        """Write rows to a new file of the folder, and return the name of the file.

        If writing fails, the file is deleted.

        Args:
            pieces: Pairs (rows with the table's columns, int8 row kinds). None in place of the kinds means inserts.

        Raises:
            SparkFailed: The write has ended.
            StorageFull: The storage has no space left.
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
        """Yield (rows, row kinds or None for inserts) from files of :meth:`put`, with one batch in memory at a time.

        Args:
            names: Names of the files, read in this order.

        Raises:
            CorruptFile: A file is missing or damaged.
        """
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
        """Delete the folder and its files as far as possible."""
        with suppress(OSError, DredgeError):
            self.store.delete_dir(self.folder)

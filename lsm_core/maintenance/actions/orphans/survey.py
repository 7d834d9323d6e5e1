"""Survey of a table's files. Surveys can be added: the survey of all folders is the sum of the surveys of some folders.

Only unreferenced files are stored one by one. Referenced files are stored as counts and a few examples, so the survey
of a large table is small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, empty_table, numpy_array, one_array
from lsm_core.errors import CorruptFile, PlanRefused, RefusalRule
from lsm_core.json_text import parse_json
from lsm_core.maintenance.action import TaskRunner
from lsm_core.maintenance.actions.orphans.listing import Folder, Listing, list_folders
from lsm_core.maintenance.file_allowlist import DELETABLE, KINDS, FileKind, OwnFiles, Place
from lsm_core.maintenance.file_holders import FileHolders, Holder, HolderKind, find_holders
from lsm_core.maintenance.trash import read_trash
from lsm_core.metadata.store import TableStore

EXAMPLES: Final = 3
MOST_NAMED: Final = 50
ORPHANS: Final = pa.schema(
    [
        pa.field("folder", pa.string()),
        pa.field("name", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("mtime_ms", pa.int64()),
        pa.field("kind", pa.int8()),
    ]
)
"""Unreferenced files: absolute ``folder``, ``size`` (bytes), ``mtime_ms`` (epoch ms, storage's clock), ``kind``."""
_META: Final = b"dredge.survey"


@dataclass(frozen=True)
class HeldFiles:
    """Files that one holder (snapshot, tag, changelog, branch or deletion record in the trash) needs.

    Attributes:
        place: index of the holder in the list of all holders.
        files: number of files.
        size: bytes of these files.
        examples: the first file names in alphabetical order.
    """

    place: int
    files: int
    size: int
    examples: tuple[str, ...]

    def plus(self, other: HeldFiles) -> HeldFiles:
        """Return the sum of ``self`` and ``other``, which are files of the same holder."""
        names = sorted({*self.examples, *other.examples})[:EXAMPLES]
        return HeldFiles(min(self.place, other.place), self.files + other.files, self.size + other.size, tuple(names))


@dataclass
class Survey:
    """Result of listing some folders of a table: counts of referenced files, and each unreferenced file.

    Attributes:
        files: number of all files.
        size: bytes of all files.
        newest_ms: newest change time of a file up to the time of planning (epoch ms), -1 for none.
        orphans: old unreferenced files of known kinds (schema `ORPHANS`).
        young_files: number of files of known kinds that are too young to be removed.
        young_size: bytes of these young files.
        held: old referenced files by holder (the snapshot, tag, changelog, branch or deletion record in the trash).
        unknown: path and bytes of the first files with unknown names.
        unknown_files: number of files with unknown names.
        strange: misplaced directories and files, and external paths that are not allowed: the reason by path.
        shared: external paths that other tables use too: the names of these tables (text) by path.
        filled: paths of the folders that have files.
        lists: names of the manifest lists.
    """

    files: int = 0
    size: int = 0
    newest_ms: int = -1
    orphans: pa.Table = field(default_factory=lambda: empty_table(ORPHANS))
    young_files: int = 0
    young_size: int = 0
    held: dict[Holder, HeldFiles] = field(default_factory=dict)
    unknown: list[tuple[str, int]] = field(default_factory=list)
    unknown_files: int = 0
    strange: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    filled: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)

    @staticmethod
    def of(listing: Listing, candidates: npt.NDArray[np.bool_], held: FileHolders, limit: int, now: int) -> Survey:
        """Return the survey (counts and unreferenced files) of a listing of folders.

        Args:
            listing: the listed files.
            candidates: mask over the files: old files of known kinds.
            held: for each candidate, the holder that needs it (a snapshot, tag, changelog, branch or deletion record).
            limit: time before which files are old (epoch ms).
            now: time of planning (epoch ms).
        """
        files = listing.files
        sizes, times = numpy_array(files.column("size")), numpy_array(files.column("mtime_ms"))
        kinds = numpy_array(files.column("kind"))
        young = is_kind(files, DELETABLE) & (times >= limit)
        old = files.filter(arrow_array(candidates))
        codes = held.codes[numpy_array(pc.index_in(old.column("name"), value_set=held.names))]
        orphans = old.filter(arrow_array(codes < 0))
        paths = pa.array(listing.folders, pa.string())
        unknown = files.filter(arrow_array(kinds == KINDS.index(FileKind.UNKNOWN)))
        named = pc.binary_join_element_wise(
            paths.take(one_array(unknown.column("folder"))), one_array(unknown.column("name")), "/"
        )
        first = pc.sort_indices(named).slice(0, MOST_NAMED) if len(named) else pa.array([], pa.int64())
        lists = files.filter(arrow_array(kinds == KINDS.index(FileKind.MANIFEST_LIST)))
        return Survey(
            files=len(files),
            size=int(sizes.sum()),
            newest_ms=int(times[times <= now].max(initial=-1)),
            orphans=orphans.set_column(0, ORPHANS.field(0), paths.take(one_array(orphans.column("folder")))),
            young_files=int(young.sum()),
            young_size=int(sizes[young].sum()),
            held=_held(old, codes, held),
            unknown=list(
                zip(named.take(first).to_pylist(), unknown.column("size").take(first).to_pylist(), strict=True)
            ),
            unknown_files=len(unknown),
            strange=dict(listing.strange),
            shared=dict(listing.shared),
            filled=set(paths.take(one_array(pc.unique(files.column("folder")))).to_pylist()),
            lists=set(lists.column("name").to_pylist()),
        )

    def plus(self, other: Survey) -> Survey:
        """Return the sum of two surveys, which must have no folder in common.

        Args:
            other: survey to add.
        """
        held = dict(self.held)
        for holder, files in other.held.items():
            held[holder] = held[holder].plus(files) if holder in held else files
        return Survey(
            self.files + other.files,
            self.size + other.size,
            max(self.newest_ms, other.newest_ms),
            pa.concat_tables([self.orphans, other.orphans]),
            self.young_files + other.young_files,
            self.young_size + other.young_size,
            dict(sorted(held.items(), key=lambda entry: entry[1].place)),
            sorted([*self.unknown, *other.unknown])[:MOST_NAMED],
            self.unknown_files + other.unknown_files,
            {**self.strange, **other.strange},
            {**self.shared, **other.shared},
            self.filled | other.filled,
            self.lists | other.lists,
        )

    def to_bytes(self) -> bytes:
        """Return the survey (counts and unreferenced files) as bytes.

        The bytes are an Arrow stream of the orphans; all further fields are JSON in the metadata of its schema.
        """
        metadata: dict[str, Any] = {
            "numbers": [self.files, self.size, self.newest_ms, self.young_files, self.young_size, self.unknown_files],
            "held": [
                [holder.kind.value, holder.name, held.place, held.files, held.size, held.examples]
                for holder, held in self.held.items()
            ],
            "unknown": self.unknown,
            "strange": self.strange,
            "shared": self.shared,
            "filled": sorted(self.filled),
            "lists": sorted(self.lists),
        }
        table = self.orphans.replace_schema_metadata({_META: json.dumps(metadata).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    @staticmethod
    def from_bytes(data: bytes) -> Survey:
        """Return the survey from the bytes of :meth:`to_bytes`.

        Args:
            data: serialised survey.

        Raises:
            CorruptFile: ``data`` is not a serialised survey.
        """
        try:
            table = pa.ipc.open_stream(data).read_all()
            metadata = parse_json((table.schema.metadata or {})[_META])
            files, size, newest, young_files, young_size, unknown_files = map(int, metadata["numbers"])
            held = {
                Holder(HolderKind(kind), name): HeldFiles(place, count, total, tuple(examples))
                for kind, name, place, count, total, examples in metadata["held"]
            }
            return Survey(
                files,
                size,
                newest,
                table.cast(ORPHANS),
                young_files,
                young_size,
                held,
                [(str(path), int(size_of_file)) for path, size_of_file in metadata["unknown"]],
                unknown_files,
                dict(metadata["strange"]),
                dict(metadata["shared"]),
                set(metadata["filled"]),
                set(metadata["lists"]),
            )
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<survey of files>", f"unreadable: {error!r}") from error


def _held(old: pa.Table, codes: npt.NDArray[np.int32], held: FileHolders) -> dict[Holder, HeldFiles]:
    """Return counts, bytes and examples of the referenced files by holder (the snapshot, tag etc. that needs them).

    ``old`` are the listed files, and ``codes`` the index of each file's holder in ``held.holders`` (negative: none).
    """
    places = np.flatnonzero(codes >= 0)
    sizes = numpy_array(old.column("size"))[places].astype(np.int64)
    holder_codes = codes[places]
    counts = np.bincount(holder_codes, minlength=len(held.holders))
    totals = np.zeros(len(held.holders), np.int64)
    np.add.at(totals, holder_codes, sizes)
    order = places[np.argsort(holder_codes, kind="stable")]
    starts = np.concatenate([[0], np.cumsum(counts)])
    names = one_array(old.column("name"))
    by_holder: dict[Holder, HeldFiles] = {}
    for code in np.flatnonzero(counts).tolist():  # one step per holder
        own = names.take(arrow_array(order[starts[code] : starts[code + 1]]))
        first = own.take(pc.select_k_unstable(own, EXAMPLES, [("", "ascending")])).to_pylist()
        by_holder[held.holders[code]] = HeldFiles(code, int(counts[code]), int(totals[code]), tuple(first))
    return by_holder


def is_kind(files: pa.Table, kinds: frozenset[FileKind]) -> npt.NDArray[np.bool_]:
    """Return a mask of the files that have one of the given kinds.

    Args:
        files: listed files (schema `FILES`).
        kinds: kinds of files to select.
    """
    kind_numbers = [number for number, kind in enumerate(KINDS) if kind in kinds]
    return np.isin(numpy_array(files.column("kind")), kind_numbers)


def survey_of(store: TableStore, listing: Listing, limit: int, now: int) -> tuple[Survey, FileHolders]:
    """Return the survey of a listing (counts, unreferenced files), and the snapshots, tags etc. that need its files.

    References are read after the listing, so that files committed during the listing are not taken for orphans.

    Args:
        store: the table.
        listing: the listed files.
        limit: time before which files are old (epoch ms).
        now: time of planning (epoch ms).

    Raises:
        PlanRefused: a deletion record in the trash cannot be read. The errors of `find_holders` are raised too.
    """
    pending = read_trash(store)
    if pending.unreadable:
        detail = f"{pending.unreadable[0]}; the files that it set aside would be taken for orphans"
        raise PlanRefused(RefusalRule.UNREADABLE_RECORD, table=store.name, detail=detail)
    old = numpy_array(listing.files.column("mtime_ms")) < limit
    candidates = is_kind(listing.files, DELETABLE) & old
    names = listing.files.filter(arrow_array(candidates)).column("name")
    held = find_holders(store, one_array(names), pending.records)
    return Survey.of(listing, candidates, held, limit, now), held


def survey_in_parts(
    store: TableStore, known: OwnFiles, folders: Sequence[Folder], limit: int, now: int, runner: TaskRunner, parts: int
) -> Iterable[Survey]:
    """Yield one survey (counts, unreferenced files) per part of the folders, each made by one task.

    Each task lists its folders and then reads all references.

    Args:
        store: the table.
        known: names and folders of the table's files.
        folders: folders to list.
        limit: time before which files are old (epoch ms).
        now: time of planning (epoch ms).
        runner: executor of the tasks.
        parts: number of tasks, each of which lists some of the folders.
    """
    size = -(-len(folders) // parts)
    payloads = [
        json.dumps(
            [[folder.path, folder.keys, folder.place.value, folder.expected] for folder in folders[at : at + size]]
        ).encode()
        for at in range(0, len(folders), size)
    ]
    activity = f"listing the files of table {store.name}"
    yield from map(
        Survey.from_bytes, runner.run_parts(activity, partial(_survey_part, store, known, limit, now), payloads)
    )


def _survey_part(store: TableStore, known: OwnFiles, limit: int, now: int, payload: bytes) -> bytes:
    """Return the survey (counts, unreferenced files) of the folders in ``payload`` as bytes, in a parallel task.

    ``payload`` is a JSON list of [path, partition columns or null, purpose, expected subfolders] per folder.
    """
    folders = [
        Folder(path, None if keys is None else tuple(keys), Place(place), tuple(expected))
        for path, keys, place, expected in parse_json(payload)
    ]
    return survey_of(store, list_folders(store, known, folders), limit, now)[0].to_bytes()

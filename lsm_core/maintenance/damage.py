"""Examination of a table's metadata: files that are lost, damaged or replaced, and the snapshots that need these files.

The examination covers the snapshots, tags and consumers of one branch, and the changelogs that outlive their snapshots.
It reads all metadata that they reference: schemas, manifest lists, manifests, index manifests and statistics. Data
files and index files are not opened (`lsm_core.maintenance.checks`).

A manifest that was overwritten by a second valid manifest can be read, and even its size may agree. Such a manifest is
found by comparing contents: a snapshot records its number of rows, and its files must be those that the next snapshot
was built on. The content of a manifest is one 64-bit sum of the hashes of its files. A DELETE entry subtracts what the
ADD entry of the same file added, so the sum of a snapshot does not depend on how its manifests were merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.errors import CorruptFile, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.manifest import ADD, ManifestFileMeta, identity_rows
from lsm_core.format.side_files import Tag
from lsm_core.format.snapshot import Snapshot
from lsm_core.format.xxhash64 import xxhash64
from lsm_core.maintenance.snapshot_exchange import COVER_PROPERTY
from lsm_core.metadata import changelogs, consumers, manifests, snapshots, statistics, tags
from lsm_core.metadata.store import TableStore, load_schema
from lsm_core.progress import advance, stage

_COLUMNS: Final = [*manifests.IDENTITY_COLUMNS, "row_count"]
_BITS: Final = (1 << 64) - 1
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Damage:
    """Metadata file that cannot be used.

    Attributes:
        path: path of the file.
        reason: what is wrong with the file.
        kind: "snapshot", "manifest list", "manifest", "index manifest", "changelog list", "schema", "statistics",
            "tag", "changelog" or "consumer".
        snapshots: ids of the snapshots that need the file, ascending.
        holders: names of the tags and changelogs that need the file.
        is_missing: whether the file does not exist.
        is_unknown: whether a newer version of Paimon may have written the file, so that it may be undamaged.
    """

    path: str
    reason: str
    kind: str
    snapshots: tuple[int, ...] = ()
    holders: tuple[str, ...] = ()
    is_missing: bool = False
    is_unknown: bool = False

    @property
    def hides_rows(self) -> bool:
        """Whether the rows of ``snapshots`` cannot be read without the file."""
        return self.kind in {"snapshot", "manifest list", "manifest", "index manifest"}

    def text(self) -> str:
        """Return the text for people: the file, what is wrong with it, and the snapshots and tags that need it."""
        needing = list(self.holders)
        if self.snapshots:
            needing.insert(0, f"snapshot{'s' if len(self.snapshots) > 1 else ''} {_ranges(self.snapshots)}")
        needed = (
            ""
            if self.kind in {"snapshot", "tag", "changelog", "consumer"}
            else f" ({self.kind} of {' and '.join(needing)})"
        )
        return f"corrupt file {self.path}: {self.reason}{needed}"


def _ranges(ids: Sequence[int]) -> str:
    """Return ascending ids as text: "2..5, 7"."""
    starts = [ids[0], *(right for left, right in pairwise(ids) if right > left + 1)]
    ends = [*(left for left, right in pairwise(ids) if right > left + 1), ids[-1]]
    return ", ".join(
        str(first) if first == last else f"{first}..{last}" for first, last in zip(starts, ends, strict=True)
    )


@dataclass(frozen=True)
class Examination:
    """Result of reading all metadata of a table.

    Attributes:
        ids: ids of the snapshots, ascending.
        damages: the damaged files, in the order in which they were found.
        whole_tags: snapshot ids of the tags whose rows can be read, by tag name.
    """

    ids: tuple[int, ...]
    damages: tuple[Damage, ...]
    whole_tags: dict[str, int]

    def unreadable(self) -> dict[int, Damage]:
        """Return one damage of each snapshot whose rows cannot be read or are wrong, by snapshot id."""
        worst: dict[int, Damage] = {}
        for damage in self.damages:
            for number in damage.snapshots if damage.hides_rows else ():
                if number not in worst or damage.is_unknown:
                    worst[number] = damage
        return worst


def examine(store: TableStore) -> Examination:
    """Read all metadata of a branch and return the damaged files; manifests are read one at a time.

    Each manifest is read once, but those of the newest snapshot twice. Memory holds one manifest, the file identities
    of the newest snapshot, and a few numbers per manifest.

    Args:
        store: the branch.
    """
    return _Examiner(store).run()


@dataclass(frozen=True)
class _Content:
    """Fingerprint of the live files of manifests, to compare two states of a table.

    Attributes:
        rows: number of rows of the files.
        files: sum of 64-bit hashes of the files' entries, modulo 2**64.
    """

    rows: int = 0
    files: int = 0

    def __add__(self, other: _Content) -> _Content:
        return _Content(self.rows + other.rows, (self.files + other.files) & _BITS)


@dataclass
class _Found:
    """Damaged file with the snapshots, tags and changelogs that need the file.

    Attributes:
        damage: the file and its error.
        snapshots: ids of the snapshots that need the file.
        holders: names of the tags and changelogs that need the file.
    """

    damage: Damage
    snapshots: list[int] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)


class _Examiner:
    """State of one examination; caches the results of manifests and schemas, because many snapshots share them."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._contents: dict[tuple[str, int, int, int], _Content | CorruptFile | UnsupportedFeature] = {}
        self._schemas: dict[int, CorruptFile | UnsupportedFeature | None] = {}
        self._found: dict[tuple[str, str], _Found] = {}
        self._known: dict[int, tuple[Snapshot, _Content, _Content]] = {}

    def run(self) -> Examination:
        store = self._store
        ids = snapshots.list_ids(store)
        tag_names = tags.list_names(store)
        kept = changelogs.list_changelogs(store)
        positions = consumers.list_paths(store)
        versions = len(ids) + len(tag_names) + len(kept) + len(positions)
        with stage(f"examining {store.name}", versions, "versions and consumers"):
            for number in ids:
                self._examine_snapshot(number)
                advance()
            whole_tags: dict[str, int] = {}
            for name in tag_names:
                whole_tags |= self._examine_tag(name)
                advance()
            for number in kept:
                self._examine_changelog(number)
                advance()
            for consumer_id, path in positions.items():
                self._try(f"consumer {consumer_id}", "consumer", partial(consumers.read_position, store, path))
                advance()
        self._compare_neighbours(ids)
        if ids and ids[-1] in self._known and not self._has_damage(ids[-1]):
            newest = self._known[ids[-1]][0]
            self._try(
                ids[-1], "manifest list", lambda: manifests.live_entries(store, newest, columns=["file_name"]).num_rows
            )
        damages = [
            Damage(
                need.damage.path,
                need.damage.reason,
                need.damage.kind,
                tuple(need.snapshots),
                tuple(need.holders),
                need.damage.is_missing,
                need.damage.is_unknown,
            )
            for need in self._found.values()
        ]
        return Examination(tuple(ids), tuple(damages), whole_tags)

    # -- single versions -----------------------------------------------------------------------------------------------

    def _examine_snapshot(self, number: int) -> None:
        try:
            snapshot = self._try(number, "snapshot", lambda: snapshots.read(self._store, number))
        except SnapshotNotFound:
            return  # expired during the examination
        if snapshot is None:
            return
        before = {key: len(need.snapshots) for key, need in self._found.items()}
        content = self._examine_parts(number, snapshot)
        if not self._has_damage(number):
            if content is not None:
                self._known[number] = (snapshot, *content)
                self._compare_rows(number, snapshot, content[0] + content[1])
        elif not snapshots.exists(self._store, number):  # expired while it was read
            for key in list(self._found):
                del self._found[key].snapshots[before.get(key, 0) :]
                if key not in before:
                    del self._found[key]

    def _examine_tag(self, name: str) -> dict[str, int]:
        """Examine a tag; return its snapshot id by its name if its rows can be read, else an empty dict."""
        holder, path = f"tag {name}", f"{tags.tag_dir(self._store)}/{tags.PREFIX}{name}"
        try:
            tag = self._try(holder, "tag", lambda: Tag.from_json(self._store.file_io.read_bytes(path), path))
        except FileNotFoundError:
            return {}  # deleted during the examination
        if tag is None:
            return {}
        content = self._examine_parts(holder, tag.snapshot)
        return {} if content is None else {name: tag.snapshot.id}

    def _examine_changelog(self, number: int) -> None:
        store, holder = self._store, f"changelog {number}"
        try:
            changelog = self._try(holder, "changelog", lambda: changelogs.read_changelog(store, number))
        except SnapshotNotFound:
            return
        if changelog is not None:
            self._try(holder, "changelog list", lambda: changelogs.kept_entries(store, changelog).num_rows)

    def _examine_parts(self, holder: int | str, snapshot: Snapshot) -> tuple[_Content, _Content] | None:
        """Examine the files that a snapshot references.

        Args:
            holder: snapshot id, or the name of the tag or changelog that needs the files.
            snapshot: the snapshot.

        Returns:
            Content of the base manifest list and of the delta manifest list, or None if one cannot be read.
        """
        store = self._store
        base = self._examine_list(holder, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta = self._examine_list(holder, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        indexes = self._try(holder, "index manifest", lambda: len(manifests.index_entries(store, snapshot)))
        listed = self._try(holder, "changelog list", lambda: manifests.changelog_list(store, snapshot) or [])
        for meta in listed or ():
            self._examine_manifest(holder, "changelog list", meta)
        self._try(holder, "statistics", lambda: statistics.read_statistics(store, snapshot))
        if snapshot.schema_id not in self._schemas:
            try:
                load_schema(store.file_io, store.root, snapshot.schema_id, store.branch)
                self._schemas[snapshot.schema_id] = None
            except (CorruptFile, UnsupportedFeature) as error:
                self._schemas[snapshot.schema_id] = error
        damaged_schema = self._schemas[snapshot.schema_id]
        if damaged_schema is not None:
            self._add(holder, "schema", damaged_schema)
        return None if base is None or delta is None or indexes is None else (base, delta)

    def _examine_list(self, holder: int | str, name: str, size: int | None) -> _Content | None:
        """Examine a manifest list and its manifests; return the content of the manifests, None if one is unreadable.

        Args:
            holder: snapshot id, or the name of the tag or changelog that needs the list.
            name: file name of the manifest list.
            size: size of the list in bytes, None if it is not recorded.
        """
        metas = self._try(holder, "manifest list", lambda: manifests.read_list(self._store, name, size))
        if metas is None:
            return None
        contents = [self._examine_manifest(holder, "manifest", meta) for meta in metas]
        total = _Content()
        for content in contents:
            if content is None:
                return None
            total += content
        return total

    def _examine_manifest(self, holder: int | str, kind: str, meta: ManifestFileMeta) -> _Content | None:
        key = (meta.file_name, meta.file_size, meta.num_added_files, meta.num_deleted_files)
        if key not in self._contents:
            try:
                self._contents[key] = _read_content(self._store, meta)
            except (CorruptFile, UnsupportedFeature) as error:
                self._contents[key] = error
        content = self._contents[key]
        if isinstance(content, _Content):
            return content
        self._add(holder, kind, content, self._store.manifest_path(meta.file_name))
        return None

    # -- what versions say of each other -------------------------------------------------------------------------------

    def _compare_rows(self, number: int, snapshot: Snapshot, content: _Content) -> None:
        """Report snapshot ``number`` if its manifests have a different number of rows than the snapshot records.

        A recorded number of 0 is not compared, because it may mean that no number was recorded.
        """
        if snapshot.total_record_count and content.rows != snapshot.total_record_count:
            path = self._store.manifest_path(snapshot.base_manifest_list)
            reason = (
                f"the manifests of snapshot {number} hold {content.rows:,} rows, but it records "
                f"{snapshot.total_record_count:,}: a list or manifest was replaced"
            )
            self._add(number, "manifest list", CorruptFile(path, reason))

    def _compare_neighbours(self, ids: Sequence[int]) -> None:
        """Report each snapshot whose files are not those that the next snapshot was built on."""
        for number in ids:
            if not self._is_successor(number) or self._base(number) == self._content(number - 1):
                continue
            earlier, later = self._known[number - 1][0], self._known[number][0]
            advice = "a list or manifest was replaced"
            if self._is_successor(number + 1):
                without_base = self._content(number - 1) + self._known[number][2]
                if self._base(number + 1) == without_base:
                    reason = f"its manifests are not those of snapshot {number - 1}: {advice}"
                    self._add_list(number, later.base_manifest_list, reason)
                    continue
                if self._base(number + 1) == self._content(number):
                    reason = f"snapshot {number - 1} does not hold what snapshot {number} was built on: {advice}"
                    self._add_list(number - 1, earlier.delta_manifest_list, reason)
                    continue
            reason = f"snapshot {number} was not built on the files of snapshot {number - 1}: {advice} in one of both"
            self._add_list(number, later.base_manifest_list, reason)

    def _is_successor(self, number: int) -> bool:
        """Return whether the row counts show that snapshot ``number`` was built on snapshot ``number - 1``.

        The result is False if one of them is damaged or was not read.

        After a rollback or a fast-forward, a snapshot may have a predecessor by id that it was not built on.
        """
        if number not in self._known or number - 1 not in self._known:
            return False
        if self._has_damage(number) or self._has_damage(number - 1):
            return False
        (earlier, _, _), (later, _, delta) = self._known[number - 1], self._known[number]
        if COVER_PROPERTY in (later.properties or {}) or later.delta_record_count != delta.rows:
            return False
        return later.total_record_count - later.delta_record_count == earlier.total_record_count

    def _base(self, number: int) -> _Content:
        return self._known[number][1]

    def _content(self, number: int) -> _Content:
        _, base, delta = self._known[number]
        return base + delta

    # -- damages -------------------------------------------------------------------------------------------------------

    def _try(self, holder: int | str, kind: str, read: Callable[[], _Value]) -> _Value | None:
        """Call ``read`` for a file; return its result, or record the file as damaged and return None.

        Args:
            holder: snapshot id, or the name of the tag or changelog that needs the file.
            kind: kind of the file, for example "manifest list".
            read: function that reads the file.
        """
        try:
            return read()
        except (CorruptFile, UnsupportedFeature) as error:
            self._add(holder, kind, error)
            return None

    def _add_list(self, number: int, name: str, reason: str) -> None:
        self._add(number, "manifest list", CorruptFile(self._store.manifest_path(name), reason))

    def _add(self, holder: int | str, kind: str, error: CorruptFile | UnsupportedFeature, path: str = "") -> None:
        if isinstance(error, CorruptFile):
            is_missing = isinstance(error.__cause__, FileNotFoundError)
            damage = Damage(error.path, error.reason, kind, is_missing=is_missing)
        else:
            where = path or (f"snapshot {holder}" if isinstance(holder, int) else holder)
            damage = Damage(where, f"{error.feature}, or it is damaged", kind, is_unknown=True)
        need = self._found.setdefault((damage.path, damage.reason), _Found(damage))
        if isinstance(holder, str):
            need.holders.append(holder)
        elif not need.snapshots or need.snapshots[-1] != holder:
            need.snapshots.append(holder)

    def _has_damage(self, number: int) -> bool:
        return any(
            need.snapshots and need.snapshots[-1] >= number and number in need.snapshots
            for need in self._found.values()
        )


def _read_content(store: TableStore, meta: ManifestFileMeta) -> _Content:
    """Return the content of a manifest. Raises CorruptFile if it is unreadable or differs from its manifest list."""
    path = store.manifest_path(meta.file_name)
    entries = manifests.read_manifest(store, meta, lambda part: part.select(_COLUMNS))
    signs = np.where(numpy_array(entries.column("kind")) == ADD, 1, -1)
    added_files = int((signs == 1).sum())
    if (added_files, len(signs) - added_files) != (meta.num_added_files, meta.num_deleted_files):
        raise CorruptFile(
            path,
            f"adds {added_files} files and deletes {len(signs) - added_files}, but its list records "
            f"{meta.num_added_files} and {meta.num_deleted_files}",
        )
    for name, low, high in (
        ("bucket", meta.min_bucket, meta.max_bucket),
        ("level", meta.min_level, meta.max_level),
    ):
        bounds = pc.min_max(entries.column(name)).as_py()
        if entries.num_rows and low is not None and high is not None and (bounds["min"], bounds["max"]) != (low, high):
            actual = f"{bounds['min']}..{bounds['max']}"
            raise CorruptFile(path, f"has entries of {name} {actual}, but its list records {low}..{high}")
    rows = int(signs @ numpy_array(pc.cast(entries.column("row_count"), pa.int64())))
    hashes = xxhash64(identity_rows(entries)).view(np.uint64)
    files = int(hashes[signs == 1].sum(dtype=np.uint64)) - int(hashes[signs == -1].sum(dtype=np.uint64))
    return _Content(rows, files & _BITS)


__all__ = ["Damage", "Examination", "examine"]

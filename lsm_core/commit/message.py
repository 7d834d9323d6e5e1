"""Commit messages: files that a writer or compactor added and removed, for the committer."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import DataFileMeta, IndexFileMeta
from lsm_core.format.stats import SimpleStats
from lsm_core.json_reader import parse_json

_VERSION: Final = 3
_READABLE: Final = (1, 2, _VERSION)  # version 1 has no origin, version 2 no index files
_GROUPS: Final = (
    "new_files",
    "deleted_files",
    "compact_before",
    "compact_after",
    "changelog_files",
    "compact_changelog",
)
_INDEX_GROUPS: Final = (
    "new_index_files",
    "deleted_index_files",
    "compact_new_index_files",
    "compact_deleted_index_files",
)

WrittenFile = DataFileMeta | IndexFileMeta
_OPTIONAL: Final = ("index_state", "keys_as_of", "keys_after", "follows")


@dataclass(frozen=True)
class Origin:
    """Table for which a message was made.

    Attributes:
        table: name of the table.
        root: directory of the table.
        branch: name of the branch.
        snapshot_id: newest snapshot at that time, 0 for none.
        delta_list: delta manifest list of this snapshot, or "" if unknown. A rollback reuses ids, but these names are
            unique.
    """

    table: str
    root: str
    branch: str
    snapshot_id: int
    delta_list: str = ""


@dataclass(frozen=True)
class CommitMessage:
    """Changes of one bucket.

    ``new_files``, ``deleted_files`` and ``changelog_files`` become an APPEND or OVERWRITE snapshot; ``compact_before``,
    ``compact_after`` and ``compact_changelog`` become a COMPACT snapshot. A file with the same name in both
    ``compact_before`` and ``compact_after`` was *upgraded*: its level changed, its bytes did not.

    A message names each index file that it replaces, as its maker read it; the commit conflicts where another file has
    taken its place. The deletion vector of a removed data file must be removed in the same message.

    Attributes:
        partition: BinaryRow of the partition (with arity prefix).
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        new_files: files of a writer.
        deleted_files: files that a statement removed.
        compact_before: inputs of a compaction.
        compact_after: outputs of a compaction.
        changelog_files: changelog of a writer.
        compact_changelog: changelog of a compaction.
        origin: table of the message; None if only its maker commits it.
        new_index_files: index files added with the first snapshot.
        deleted_index_files: index files removed with the first snapshot.
        compact_new_index_files: index files added with the COMPACT snapshot.
        compact_deleted_index_files: index files removed with the COMPACT snapshot.
        index_state: hash indexes of the whole partition when its rows got their buckets (:func:`index_state_of`), or
            None.
        keys_as_of: snapshot at which the partitions of keys were located (0: none), in tables whose keys may move.
        keys_after: commits of the same user that were pending then and must come first.
        follows: whether the rows follow their keys into a partition that no written row named; an overwrite adds to
            this one.

    Source: Paimon `CommitMessageImpl`.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    compact_changelog: tuple[DataFileMeta, ...] = ()
    origin: Origin | None = None
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compact_new_index_files: tuple[IndexFileMeta, ...] = ()
    compact_deleted_index_files: tuple[IndexFileMeta, ...] = ()
    index_state: str | None = None
    keys_as_of: int | None = None
    keys_after: tuple[int, ...] | None = None
    follows: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the message changes nothing."""
        return not any(getattr(self, group) for group in (*_GROUPS, *_INDEX_GROUPS))

    def own_files(self) -> list[DataFileMeta]:
        """Return the files that exist only because of this message, each once; upgraded files are not among them."""
        new = {file.file_name for file in self.new_files}
        kept = {file.file_name for file in (*self.compact_before, *self.deleted_files)} - new
        made = (*self.new_files, *self.compact_after, *self.changelog_files, *self.compact_changelog)
        return list({file.file_name: file for file in reversed(made) if file.file_name not in kept}.values())[::-1]

    def own_index_files(self) -> list[IndexFileMeta]:
        """Return the index files that exist only because of this message, each once."""
        made = (*self.new_index_files, *self.compact_new_index_files)
        return list({file.file_name: file for file in made}.values())

    def written(self, *, by_writer: bool = False) -> list[WrittenFile]:
        """Return all own data and index files.

        Args:
            by_writer: only the writer's files of the first snapshot.
        """
        if by_writer:
            return [*self.new_files, *self.changelog_files, *self.new_index_files]
        return [*self.own_files(), *self.own_index_files()]

    def to_bytes(self) -> bytes:
        """Return a versioned JSON document (bytes as base64), for any process that has this class."""
        document: dict[str, Any] = {
            "version": _VERSION,
            "partition": _text(self.partition),
            "bucket": self.bucket,
            "total_buckets": self.total_buckets,
        }
        if self.origin is not None:
            document["origin"] = asdict(self.origin)
        for group in _GROUPS:
            files = getattr(self, group)
            if files:
                document[group] = [_file_to_object(file) for file in files]
        for member in _OPTIONAL:
            if (known := getattr(self, member)) is not None:
                document[member] = known
        for group in _INDEX_GROUPS:
            if indexes := getattr(self, group):
                document[group] = [file.to_list() for file in indexes]
        return json.dumps(document, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> CommitMessage:
        """Return the message of :meth:`to_bytes`. Raises :class:`CorruptFile` for other bytes or another version."""
        try:
            document = parse_json(data, unique=True)
            version = document["version"]
            if version not in _READABLE:
                raise CorruptFile(
                    "<commit message>", f"version {version!r}; this Dredge reads versions 1 to {_VERSION}"
                )
            groups: dict[str, Any] = {
                group: tuple(_file_from_object(f) for f in document.get(group, ())) for group in _GROUPS
            }
            indexes = {
                group: tuple(IndexFileMeta.of_list(f) for f in document.get(group, ())) for group in _INDEX_GROUPS
            }
            state, as_of, after, follows = (document.get(member) for member in _OPTIONAL)
            made_by, origin = document.get("origin"), None
            if made_by is not None:
                table, root, branch = (str(made_by[member]) for member in ("table", "root", "branch"))
                known = str(made_by.get("delta_list", ""))  # not told before Dredge could roll tables back
                origin = Origin(table, root, branch, int(made_by["snapshot_id"]), known)
            return CommitMessage(
                base64.b64decode(document["partition"], validate=True),
                int(document["bucket"]),
                int(document["total_buckets"]),
                **{**groups, **indexes},
                origin=origin,
                index_state=None if state is None else str(state),
                keys_as_of=None if as_of is None else int(as_of),
                keys_after=None if after is None else tuple(int(number) for number in after),
                follows=None if follows is None else bool(follows),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<commit message>", f"unreadable: {error!r}") from error


def index_state_of(names: Iterable[str]) -> str:
    """Return a short text for the names of a partition's hash index files; it differs if the files differ."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:32]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _file_to_object(file: DataFileMeta) -> dict[str, Any]:
    """Return the JSON members of one file; members with their default are left out to keep messages small."""
    value: dict[str, Any] = {}
    for member in fields(file):
        item = getattr(file, member.name)
        if item == member.default:
            continue
        if isinstance(item, bytes):
            value[member.name] = {"b": _text(item)}
        elif isinstance(item, SimpleStats):
            value[member.name] = [_text(item.min_values), _text(item.max_values), item.null_counts]
        else:
            value[member.name] = item
    return value


def _file_from_object(value: Mapping[str, Any]) -> DataFileMeta:
    known = {member.name for member in fields(DataFileMeta)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(f"unknown file members {unknown}")
    return DataFileMeta(**{name: _member(name, item) for name, item in value.items()})


def _member(name: str, item: Any) -> Any:
    if name in {"key_stats", "value_stats"}:
        low, high, nulls = item
        return SimpleStats(
            base64.b64decode(low, validate=True),
            base64.b64decode(high, validate=True),
            None if nulls is None else tuple(nulls),
        )
    if isinstance(item, dict):
        return base64.b64decode(item["b"], validate=True)
    return tuple(item) if isinstance(item, list) else item

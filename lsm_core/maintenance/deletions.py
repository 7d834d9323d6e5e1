"""What deletions share: files as items of their plans, where they lie, and which of them something retained still needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.maintenance.action import Declined
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.maintenance.used_files import read_lineages, still_used
from lsm_core.metadata.store import TableStore
from lsm_core.storage import file_io_for, inside_really, place_of


def require_main(store: TableStore, what: str) -> None:
    """Raise UnsupportedFeature on a branch, for what is done to a table with all of its branches or not at all."""
    if store.branch != "main":
        raise UnsupportedFeature(f"{what} of branch {store.branch}", store.name)


def split_used(
    store: TableStore,
    candidates: Sequence[DeleteItem],
    *,
    without: AbstractSet[int] = frozenset(),
    without_changelogs: AbstractSet[int] = frozenset(),
    without_branch: str | None = None,
    without_tags: AbstractSet[str] = frozenset(),
    dropped: AbstractSet[int] = frozenset(),
) -> tuple[list[DeleteItem], list[Declined]]:
    """Candidates that nothing retained needs, and the data files that something does, with its name.

    ``without`` and ``without_changelogs``: ids of the snapshots and changelogs that go; ``without_branch``, ``without_tags`` and
    ``dropped``: the branch, the tags and the snapshots (which leave no changelog) that go. Manifest-side files shared with newer
    snapshots are the rule, so they are dropped without a word. Raises CorruptFile when something retained cannot be read.
    """
    lineages = read_lineages(
        store,
        without=without,
        without_changelogs=without_changelogs,
        without_branch=without_branch,
        without_tags=without_tags,
        dropped=dropped,
    )
    used = still_used(store, lineages, {PurePosixPath(item.path).name for item in candidates}).holders
    free = [item for item in candidates if PurePosixPath(item.path).name not in used]
    held = [
        Declined(item.path, "held", f"held by {used[name]}", {"size": item.size, "holder": used[name]})
        for item in candidates
        if (name := PurePosixPath(item.path).name) in used and item.kind in {"data", "changelog"}
    ]
    return free, held


def metadata_item(store: TableStore, path: str, kind: str, size: int, reason: str) -> DeleteItem:
    """The delete item of a manifest-side file. Raises CorruptFile for a path outside the table."""
    return DeleteItem(_relative(store, path), kind, size, reason)


def data_items(store: TableStore, entries: pa.Table, kind: str, reason: str) -> Iterator[DeleteItem]:
    """Delete items of data files and their extra files; files outside the table's root are never ours to delete."""
    inside = entries.filter(pc.is_null(entries.column("external_path")))
    columns = ["partition", "bucket", "file_name", "file_size", "extra_files"]
    for row in inside.select(columns).to_pylist():  # one object a file of the plan, not a row of data
        for name, size in ((row["file_name"], row["file_size"]), *((extra, 0) for extra in row["extra_files"] or ())):
            path = store.data_path(row["partition"], row["bucket"], name)
            yield DeleteItem(_relative(store, path), kind, size, reason)


def _relative(store: TableStore, path: str) -> str:
    root = store.root.rstrip("/") + "/"
    if not path.startswith(root):
        raise CorruptFile(path, f"lies outside of table {store.name}")
    return path[len(root) :]


def external_places(store: TableStore) -> list[str]:
    """The absolute paths that the table declares for data outside of its directory (`data-file.external-paths`)."""
    declared = [place.strip() for place in str(store.options.get("data-file.external-paths") or "").split(",")]
    return list(dict.fromkeys(file_io_for(place, escaped=False)[1] for place in declared if place))


def is_absolute(path: str) -> bool:
    """Whether the path of a file in a plan or record is absolute, on a local disk or in an object store."""
    return path.startswith("/") or bool(place_of(path))


def deletable_path(store: TableStore, path: str) -> str:
    """Where a file of a plan or of a deletion record lies: ``path`` is relative to the table's root or, in a declared external place, absolute.

    Raises CorruptFile for one that would leave both, also through a link.
    """
    if not is_absolute(path):
        return inside_really(store.root, f"{store.root}/{path}")
    for place in external_places(store):
        with suppress(CorruptFile):
            return inside_really(place, path)
    raise CorruptFile(
        path, "an absolute path that data-file.external-paths does not declare, or that leads out of there"
    )

"""Protection after a failed comparison: a tag keeps the old files, and the text gives a repair that is possible now."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import dagster as dg
import pyarrow.compute as pc

from dredge.platform_core import names
from dredge.platform_core.metadata import Launchpad, plain_cell
from lsm_core.cli.render import visible
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.manifest import ADD, DELETE
from lsm_core.maintenance import apply_plan, plan_maintenance, read_ledger
from lsm_core.maintenance.file_remedies import first_possible, returns_to, undo_of
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.store import TableStore

_LEDGER_ENTRIES: Final = 50
"""Number of newest ledger entries that are searched for the run that published a snapshot."""
_REASON_CHARACTERS: Final = 400


@dataclass(frozen=True)
class UndoProtection:
    """Files kept for a repair.

    Attributes:
        text: kept files and the command that repairs the table.
        metadata: kept files, command and link of the repair as metadata for the page of the check.
    """

    text: str
    metadata: dict[str, dg.MetadataValue]


def keep_for_undo(
    store: TableStore, published: int, launchpad: Launchpad | None = None, error: CorruptFile | None = None
) -> UndoProtection:
    """Tag the snapshot before a compaction, so that expiry keeps its files, and describe a repair that is possible now.

    The repair is the undo of the compaction. If the undo is refused, it is a return to the snapshot before. Errors of
    the table and the storage are described in the text and not raised.

    Args:
        store: the table.
        published: snapshot of the compaction.
        launchpad: maker of links to the warehouse's jobs; None for no links.
        error: damaged file because of which the snapshots cannot be compared, or None if they were compared.
    """
    tag = f"before-compaction-{published}"
    try:
        if tag not in tags.list_names(store):
            arguments = {"tag": tag, "snapshot_id": published - 1}
            apply_plan(store, plan_maintenance(store, "create_tag", **arguments), approved_by="a failed check")
        kept_text = f"tag '{tag}' keeps the files of snapshot {published - 1}"
        tagged = True
    except (DredgeError, OSError) as failure:
        tagged = False
        kept_text = f"the files of snapshot {published - 1} could not be tagged ({failure})"
    try:
        compaction = next(
            (
                entry.run_id
                for entry in read_ledger(store, _LEDGER_ENTRIES, heads=True)[::-1]
                if entry.snapshot_id == published
            ),
            None,
        )
        newest = snapshots.latest_id(store)
    except (DredgeError, OSError) as failure:
        compaction, newest = None, None
        kept_text = f"{kept_text}; the ledger cannot be read: {failure}"
    commits = newest - published if newest is not None and newest > published else 0
    later = f"; {commits} commits followed" if commits else ""
    name = shlex.quote(visible(store.name))
    delete = f"dredge tag delete {name} {tag}{_warehouse_flag(store)}"
    metadata: dict[str, dg.MetadataValue] = {names.COMPARED: dg.MetadataValue.int(published)}
    if tagged:
        metadata[names.KEPT_TAG] = dg.MetadataValue.text(tag)
    if error is not None and _was_replaced(store, published, error.path):
        text = (
            f"the compaction replaced this file, and the rows of snapshot {published} do not need it: put it back from "
            f"a copy, or accept snapshot {published} as it is: `{delete}`, then execute this check again{later}"
        )
        page = f"{plain_cell(text)}.\n\n```\n{delete}\n```\n\n{_MORE}"
        return UndoProtection(f"{kept_text}; {text}", {"undo": dg.MetadataValue.md(page), **metadata})
    candidates = [*([undo_of(compaction)] if compaction else []), *returns_to(published - 1, commits)]
    possible, refusal = first_possible(store, candidates)
    remedy = possible or undo_of(visible(compaction) if compaction else "RUN")
    # The rows differ, so an undo that must not change query results would refuse.
    command = f"{remedy.command(visible(store.name))}{_warehouse_flag(store)}"
    if error is not None and error.path in refusal:
        refusal = "it reads this file"
    refusal = refusal or ("" if compaction else "the ledger does not name the run of the compaction")
    instead = "" if remedy.action == "undo" else f"; undo is not possible: {visible(refusal)[:_REASON_CHARACTERS]}"
    lost = f"; {remedy.loss}" if remedy.loss else ""
    label = "undo" if remedy.action == "undo" else "go back"
    text = f"{kept_text}{instead}; {label}: `{command}`, then execute this check again{later}{lost}"
    step = label.capitalize()
    if possible is None and not compaction:
        step = "Undo (`dredge ledger TABLE` names the run)"
    elif launchpad is not None:
        address = launchpad.link(remedy.action, {"table": store.name, **remedy.arguments})
        step = f"[Launch the job {launchpad.warehouse_names.definition(remedy.action)}]({address}), filled in, or run"
    page = (
        f"{plain_cell(f'{kept_text}{instead}')}{later}{lost}.\n\n{step}:\n\n"
        f"```\n{command}\n```\n\nThen execute this check again. To accept the rows of snapshot {published} instead, "
        f"delete the tag first: {plain_cell(delete)}.\n\n{_MORE}"
    )
    return UndoProtection(text, {"undo": dg.MetadataValue.md(page), **metadata})


_MORE: Final = "More: docs/operations.md, *A check failed*."


def _warehouse_flag(store: TableStore) -> str:
    return f" -w {shlex.quote(visible(store.root.rstrip('/').rsplit('/', 2)[0]))}"


def _was_replaced(store: TableStore, published: int, path: str) -> bool:
    """Return whether a compaction removed a data or index file, so that its snapshot does not need the file.

    Args:
        store: the table.
        published: snapshot of the compaction.
        path: path of the file.
    """
    name = PurePosixPath(path).name
    try:
        snapshot, before = snapshots.read(store, published), tags.find_snapshot(store, published - 1)
        entries = manifests.delta_entries(store, snapshot)
        index_files, earlier_index_files = (
            {entry.file_name for entry in manifests.index_entries(store, version)} for version in (snapshot, before)
        )
    except (DredgeError, OSError):
        return False
    kinds = set(entries.filter(pc.equal(entries.column("file_name"), name)).column("kind").to_pylist())
    return (DELETE in kinds and ADD not in kinds) or name in earlier_index_files - index_files

"""Protection after a failed comparison: a tag keeps the old files, and the text gives the undo command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

import dagster as dg

from lsm_core.cli.render import visible
from lsm_core.errors import DredgeError
from lsm_core.maintenance import apply_plan, plan_maintenance, read_ledger
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore
from platform_core import names
from platform_core.metadata import plain_cell

_LEDGER_ENTRIES: Final = 50
"""Number of newest ledger entries that are searched for the run that published a snapshot."""


@dataclass(frozen=True)
class UndoProtection:
    """Files kept for an undo.

    Attributes:
        text: kept files and the command that undoes the compaction.
        metadata: kept files and the undo command as metadata for the page of the check.
    """

    text: str
    metadata: dict[str, dg.MetadataValue]


def keep_for_undo(store: TableStore, published: int) -> UndoProtection:
    """Tag the snapshot before a compaction, so that expiry keeps its files, and describe how to undo the compaction.

    Errors of the table and the storage are described in the text and not raised.

    Args:
        store: the table.
        published: snapshot of the compaction.
    """
    tag = f"before-compaction-{published}"
    try:
        if tag not in tags.list_names(store):
            arguments = {"tag": tag, "snapshot_id": published - 1}
            apply_plan(store, plan_maintenance(store, "create_tag", **arguments), approved_by="a failed check")
        kept_text = f"tag '{tag}' keeps the files of snapshot {published - 1}"
        tagged = True
    except (DredgeError, OSError) as error:
        tagged = False
        kept_text = f"the files of snapshot {published - 1} could not be tagged ({error})"
    try:
        run = next(
            (
                entry.run_id
                for entry in read_ledger(store, _LEDGER_ENTRIES, heads=True)[::-1]
                if entry.snapshot_id == published
            ),
            None,
        )
        newest = snapshots.latest_id(store)
    except (DredgeError, OSError) as error:
        run, newest = None, None
        kept_text = f"{kept_text}; the ledger cannot be read: {error}"
    warehouse = store.root.rstrip("/").rsplit("/", 2)[0]
    # The rows differ, so an undo that must not change query results would refuse.
    name = shlex.quote(visible(store.name))
    run_text = shlex.quote(visible(run)) if run else "RUN"
    command = f"dredge undo {name} {run_text} --allow-changes -w {shlex.quote(visible(warehouse))}"
    where = "" if run else " (`dredge ledger TABLE` names the run)"
    later = f"; {newest - published} commits followed" if newest is not None and newest > published else ""
    text = f"{kept_text}; undo: {command}, then execute this check again{later}"
    delete = plain_cell(f"dredge tag delete {name} {tag}")
    accept = f"To accept the rows of snapshot {published} instead, delete the tag first: {delete}."
    page = (
        f"{plain_cell(kept_text)}{later}.\n\nUndo the compaction{where}, then execute this check again:\n\n"
        f"```\n{command}\n```\n\n{accept}\n\nMore: docs/platform.md, *When something is wrong*."
    )
    metadata: dict[str, dg.MetadataValue] = {
        "undo": dg.MetadataValue.md(page),
        names.COMPARED: dg.MetadataValue.int(published),
    }
    if tagged:
        metadata[names.KEPT_TAG] = dg.MetadataValue.text(tag)
    return UndoProtection(text, metadata)

"""What a failed comparison keeps: a tag holds the files of the snapshot before, and its text says how the compaction is undone."""

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
from orchestration import names
from orchestration.metadata import plain_cell

_LOOKED_AT: Final = 50
"""Among so many of the newest runs of the ledger the one that published is looked for."""


@dataclass(frozen=True)
class KeptFiles:
    """``text``: what is kept and the command that takes the compaction back; ``metadata``: the same for the page of the check."""

    text: str
    metadata: dict[str, dg.MetadataValue]


def kept_for_undo(store: TableStore, published: int) -> KeptFiles:
    """Tag the snapshot before ``published``, so that nobody's expiry takes its files, and say how ``published`` is undone. Never raises."""
    tag = f"before-compaction-{published}"
    try:
        if tag not in tags.list_names(store):
            arguments = {"tag": tag, "snapshot_id": published - 1}
            apply_plan(store, plan_maintenance(store, "create_tag", **arguments), approved_by="a failed check")
        kept = f"tag '{tag}' keeps the files of snapshot {published - 1}"
        tagged = True
    except (DredgeError, OSError) as error:
        tagged = False
        kept = f"the files of snapshot {published - 1} could not be tagged ({error})"
    try:
        run = next(
            (
                entry.run_id
                for entry in read_ledger(store, _LOOKED_AT, heads=True)[::-1]
                if entry.snapshot_id == published
            ),
            None,
        )
        newest = snapshots.latest_id(store)
    except (DredgeError, OSError) as error:
        run, newest = None, None
        kept = f"{kept}; the ledger cannot be read: {error}"
    warehouse = store.root.rstrip("/").rsplit("/", 2)[0]
    # The answers differ: an undo that must leave them as they are would refuse.
    name = shlex.quote(visible(store.name))
    command = f"dredge undo {name} {shlex.quote(visible(run)) if run else 'RUN'} --allow-changes -w {shlex.quote(visible(warehouse))}"
    where = "" if run else " (`dredge ledger TABLE` names the run)"
    later = f"; {newest - published} commits came since" if newest is not None and newest > published else ""
    text = f"{kept}; undo: {command}, then execute this check again{later}"
    accept = f"Who accepts what snapshot {published} says deletes the tag before that: {plain_cell(f'dredge tag delete {name} {tag}')}."
    page = f"{plain_cell(kept)}{later}.\n\nTake the compaction back{where}, then execute this check again:\n\n```\n{command}\n```\n\n{accept}\n\nMore: docs/platform.md, *When something is wrong*."
    told: dict[str, dg.MetadataValue] = {
        "undo": dg.MetadataValue.md(page),
        names.COMPARED: dg.MetadataValue.int(published),
    }
    if tagged:
        told[names.KEPT_TAG] = dg.MetadataValue.text(tag)
    return KeptFiles(text, told)


__all__ = ["KeptFiles", "kept_for_undo"]

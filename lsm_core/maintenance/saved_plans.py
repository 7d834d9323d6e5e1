"""Plans saved in the table's folder, so that another process can apply one by its hash."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, cast

from lsm_core.clock import SystemClock, utc_text
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, PlanStale
from lsm_core.json_text import parse_json, texts_in, time_of
from lsm_core.maintenance.action import CODE_VERSION, PLAN_VERSION, MaintenancePlan, find_action
from lsm_core.maintenance.ledger import applied_before, read_ledger
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileStatus, check_name

_LOG: Final = logging.getLogger(__name__)
KEPT_MS: Final = 24 * 3_600_000
"""Time for which every saved plan is kept, applied or not."""
MOST_KEPT: Final = 1_000
"""A plan older than `KEPT_MS` is removed if at least this many saved plans are newer."""
VERIFICATION: Final = "dredge.verification"
"""Option for the level at which a compaction is verified; a policy may set it for the runs of the platform."""
_NOTE: Final = ".waits"
"""Suffix of the note beside a plan that waits for approval."""
_WORDS: Final = re.compile(r'[^"\s\\,:{}\[\]]+')
_RUNS: Final = 100
_CHECKED_PLANS: Final = 20
"""Number of older plans that one call checks, as the caller that saves a plan waits for it."""


def save_plan(store: TableStore, plan: MaintenancePlan) -> str:
    """Save a plan under `<table>/dredge/plans/`, so that another process can apply it by its hash.

    Plans saved longer ago than `KEPT_MS` are removed if they were applied, if they no longer fit the table, or if at
    least `MOST_KEPT` plans are newer; one call checks only a few. Loading an applied plan after its removal reports
    the run that applied the plan.

    Args:
        store: the table.
        plan: plan to save.

    Returns:
        The hash of the plan.

    Raises:
        PlanStale: the plan was made for a different table.
        InvalidOption: ``plan`` is not a plan.
    """
    if not isinstance(cast("object", plan), MaintenancePlan):
        accepted = "a MaintenancePlan, as plan_maintenance() and MaintenancePlan.from_json() give it"
        raise InvalidOption("plan", plan, accepted, store.name)
    if plan.table != store.name:
        raise PlanStale(f"it was made for table {plan.table}, not {store.name}")
    text = BytesIO()
    text.writelines(part.encode() for part in plan.iter_json())
    store.file_io.write_exclusive(_path(store, plan.hash), text.getvalue())
    try:
        _remove_old(store, plan.hash)
    except (OSError, DredgeError) as error:
        _LOG.warning("table %s: old saved plans stay: %s", store.name, error)
    return plan.hash


def _remove_old(store: TableStore, just_saved: str) -> None:
    """Remove old plans; their age is measured by the machine's clock, because the table's clock may be set by hand."""
    limit = SystemClock().now_ms() - KEPT_MS
    newest_first = sorted(_files(store), key=lambda file: (-file.mtime_ms, file.name))
    for place, file in enumerate(newest_first):
        if place >= MOST_KEPT and file.mtime_ms < limit:
            _remove_plan(store, file)
    old = [file for file in newest_first[:MOST_KEPT] if file.mtime_ms < limit and _hash(file) != just_saved]
    for file in old[::-1][:_CHECKED_PLANS]:
        if not _can_be_applied(store, file):
            _remove_plan(store, file)


def _remove_plan(store: TableStore, file: FileStatus) -> None:
    store.delete(file.path)
    store.delete(_note_path(store, _hash(file)))


def _can_be_applied(store: TableStore, file: FileStatus) -> bool:
    """Return whether a saved plan can still be applied. Errors of reading the table pass through."""
    try:
        plan = MaintenancePlan.from_json(store.file_io.read_bytes(file.path).decode(errors="replace"))
    except FileNotFoundError:
        return False
    except (CorruptFile, PlanStale):
        return False
    return plan.table == store.name and plan.hash == _hash(file) and _still_fits(store, plan)


def _still_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    return applied_before(store, plan) is None and find_action(plan.action, store.name).fits(store, plan)


@dataclass(frozen=True)
class WaitingPlan:
    """Saved plan that waits for approval.

    Attributes:
        plan: the plan.
        since_ms: start of the wait (epoch ms, the table's clock).
        why: reason why the plan was not applied at once.
    """

    plan: MaintenancePlan
    since_ms: int
    why: str


def hold_plan(store: TableStore, plan: MaintenancePlan, why: str) -> str:
    """Save a plan in the table's folder, with a note that the plan waits for approval.

    The note replaces that of an earlier waiting plan of the same action, if all arguments are equal except times. The
    earlier plan stays saved and can be applied by its hash as long as it fits, but is no longer listed.
    A plan that already waits keeps the time of its first note.

    Args:
        store: the table.
        plan: plan to save.
        why: reason why the plan waits, as text.

    Returns:
        The hash of the plan.
    """
    save_plan(store, plan)
    arguments = {name: value for name, value in plan.arguments.items() if not name.endswith("_ms")}
    same = {"action": plan.action, "arguments": arguments}
    figures = {"files": len(plan.items), "bytes_freed": plan.estimate.bytes_freed}
    note = json.dumps({**same, **figures, "since_ms": store.clock.now_ms(), "why": why}, ensure_ascii=False)
    store.file_io.write_exclusive(_note_path(store, plan.hash), note.encode())
    for other, note_values in _notes(store):
        if other != plan.hash and {name: note_values.get(name) for name in same} == same:
            store.delete(_note_path(store, other))
    return plan.hash


def waiting_plans(store: TableStore) -> list[WaitingPlan]:
    """Return the plans that wait for approval and still fit the table, longest wait first, except applied plans.

    Unreadable notes and plans are skipped.

    Args:
        store: the table.

    Raises:
        OSError: the folder cannot be read.
        CorruptFile: the table's own metadata cannot be read.
    """
    plans = []
    for name, note in _notes(store):
        try:
            waiting = WaitingPlan(load_plan(store, name), time_of(note["since_ms"]), str(note["why"]))
            changed = list_changed_options(store, waiting.plan)
        except (CorruptFile, InvalidOption, KeyError, PlanStale, TypeError, ValueError):
            continue
        if not changed and waiting.plan.table == store.name and _still_fits(store, waiting.plan):
            plans.append(waiting)
    return sorted(plans, key=lambda waiting: (waiting.since_ms, waiting.plan.hash))


def list_changed_options(store: TableStore, plan: MaintenancePlan) -> list[str]:
    """Return the names of the options that differ between a plan and its table, sorted, so that it cannot be applied.

    The level of verification may differ, because the stronger one of both is used.

    Args:
        store: the table.
        plan: the plan.
    """
    now, then = dict(store.options.raw), dict(plan.options)
    return sorted(key for key in {*now, *then} - {VERIFICATION} if now.get(key) != then.get(key))


def estimate_waiting(store: TableStore, action: str) -> tuple[int, int]:
    """Return the number of items and of freed bytes of an action's newest waiting plan; (0, 0) if no plan waits.

    Only the plan's note is read, so calls for many tables are cheap. After a plan of the action was applied, no earlier
    plan counts as waiting.

    Args:
        store: the table.
        action: name of the action.

    Raises:
        OSError: the folder cannot be read.
    """
    known: list[tuple[int, int, int]] = []
    for _, note in _notes(store):
        with suppress(KeyError, TypeError, ValueError):  # of another version, or damaged
            if note.get("action") == action:
                known.append((time_of(note["since_ms"]), int(note["files"]), int(note["bytes_freed"])))
    if not known:
        return 0, 0
    since, files, freed = max(known)
    with suppress(CorruptFile):  # no ledger yet
        runs = read_ledger(store, _RUNS, heads=True)
        if any(run.action == action and run.outcome == "done" and run.time_ms >= since for run in runs):
            return 0, 0
    return files, freed


def _notes(store: TableStore) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the hash of each plan with a note, and the note ({} if it is unreadable)."""
    for file in store.file_io.list_dir(f"{store.root}/dredge/plans"):
        if file.is_dir or not file.name.endswith(_NOTE):
            continue
        try:
            note = parse_json(store.file_io.read_bytes(file.path), unique=True)
        except FileNotFoundError:
            continue
        except ValueError:
            note = {}
        yield file.name.removesuffix(_NOTE), note if isinstance(note, dict) else {}


def _note_path(store: TableStore, plan_hash: str) -> str:
    return f"{store.root}/dredge/plans/{check_name(plan_hash)}{_NOTE}"


def saved_plan_hashes(store: TableStore) -> list[str]:
    """Return the hashes of all saved plans, sorted.

    Args:
        store: the table.
    """
    return sorted(map(_hash, _files(store)))


def names_in_saved_plans(store: TableStore) -> Iterator[tuple[str, list[str]]]:
    """Yield (hash, file names) of each saved plan: names of the files that the plan uses and that must not be deleted.

    Files that a plan would itself delete are left out. For an unreadable plan, damaged or of a different version, every
    word of its text counts as a file name.

    Args:
        store: the table.

    Raises:
        OSError: a plan cannot be read.
    """
    for file in _files(store):
        try:
            data = store.file_io.read_bytes(file.path)
        except FileNotFoundError:  # removed between the listing and this read
            continue
        try:
            plan: Any = parse_json(data, unique=True)
            if plan["version"] == PLAN_VERSION and plan["code_version"] == CODE_VERSION:
                plan = [item for item in plan["items"] if item["item"] != DeleteItem.item_kind]
            texts: Iterable[str] = texts_in(plan)
        except (KeyError, RecursionError, TypeError, ValueError):
            texts = _WORDS.findall(data.decode(errors="replace"))
        yield _hash(file), sorted({text.rpartition("/")[2] for text in texts})


def _files(store: TableStore) -> list[FileStatus]:
    listed = store.file_io.list_dir(f"{store.root}/dredge/plans")
    return [file for file in listed if not file.is_dir and file.name.endswith(".json")]


def _hash(file: FileStatus) -> str:
    return file.name.removesuffix(".json")


def load_plan(store: TableStore, plan_hash: str) -> MaintenancePlan:
    """Return the saved plan with a hash, or with a unique prefix of its hash.

    Args:
        store: the table.
        plan_hash: hash of the plan, or a prefix of the hash.

    Raises:
        PlanStale: no plan matches, several plans match, or the plan no longer fits (`MaintenancePlan.from_json`). If no
            plan matches, the message names the run that applied the plan, if there is one.
        CorruptFile: the plan's file is damaged; the message names the file.
        InvalidOption: ``plan_hash`` is not a hash or prefix.
    """
    if not isinstance(plan_hash, str) or not re.fullmatch("[0-9a-f]+", plan_hash):
        raise InvalidOption("plan hash", plan_hash, "the hash of a saved plan, or its beginning", store.name)
    matches = [name for name in saved_plan_hashes(store) if name.startswith(plan_hash)]
    if len(matches) > 1:
        raise PlanStale(f"there are {len(matches)} saved plans with hash {plan_hash}", store.name)
    if not matches:
        raise _missing_plan_error(store, plan_hash)
    path = _path(store, matches[0])
    try:
        plan = MaintenancePlan.from_json(store.file_io.read_bytes(path).decode(errors="replace"))
    except CorruptFile as error:
        raise CorruptFile(path, error.reason) from error
    except FileNotFoundError as error:  # saving another plan removed this old plan
        raise _missing_plan_error(store, plan_hash) from error
    if plan.hash != matches[0]:
        raise PlanStale(f"the file {path} holds plan {plan.hash}", store.name)
    return plan


def _missing_plan_error(store: TableStore, plan_hash: str) -> PlanStale:
    applied_text = ""
    with suppress(CorruptFile):
        for entry in read_ledger(store, heads=True):
            if entry.outcome == "done" and entry.plan_hash.startswith(plan_hash):
                applied_as = f"run {entry.run_id}" if entry.snapshot_id is None else f"snapshot {entry.snapshot_id}"
                applied_text = f"; it is already applied, {applied_as}, at {utc_text(entry.time_ms)} UTC"
    return PlanStale(f"there is no saved plan with hash {plan_hash}{applied_text}", store.name)


def _path(store: TableStore, plan_hash: str) -> str:
    return f"{store.root}/dredge/plans/{check_name(plan_hash)}.json"

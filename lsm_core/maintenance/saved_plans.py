"""Plans kept in the table's own folder, so that another process can apply one by its hash, until nobody can use them any more."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from lsm_core.clock import SystemClock, utc_text
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, PlanStale
from lsm_core.format.json_text import texts_in
from lsm_core.json_reader import parse_json, time_of
from lsm_core.maintenance.action import CODE_VERSION, PLAN_VERSION, MaintenancePlan, find_action
from lsm_core.maintenance.record import applied_before, read_ledger
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileStatus, check_name

_LOG: Final = logging.getLogger(__name__)
KEPT_MS: Final = 24 * 3_600_000
"""For so long every saved plan is kept, applied or not."""
MOST_KEPT: Final = 1_000
"""Of the plans that are older, so many that could still be applied are kept, the newest."""
_NOTE: Final = ".waits"
"""How the note ends that stands beside a plan which waits for somebody's approval."""
_WORDS: Final = re.compile(r'[^"\s\\,:{}\[\]]+')
_RUNS: Final = 100
_LOOKED_AT: Final = 20
"""How many older plans one call looks at: whoever saves a plan waits for it."""


def save_plan(store: TableStore, plan: MaintenancePlan) -> str:
    """Keep ``plan`` under `<table>/dredge/plans/`, so that another process can apply it by its hash; returns the hash.

    Of the plans that were saved longer ago than `KEPT_MS`, those go that were applied or do not fit the table any more, and those beyond
    the newest `MOST_KEPT`: whoever names one of them is told what became of it. Raises PlanStale for a plan of another table, InvalidOption
    for what is no plan.
    """
    if not isinstance(cast("object", plan), MaintenancePlan):
        accepted = "a MaintenancePlan, as plan_maintenance() and MaintenancePlan.from_json() give it"
        raise InvalidOption("plan", plan, accepted, store.name)
    if plan.table != store.name:
        raise PlanStale(f"it was made for table {plan.table}, not {store.name}")
    store.file_io.write_exclusive(_path(store, plan.hash), plan.to_json().encode())
    try:
        _remove_old(store, plan.hash)
    except (OSError, DredgeError) as error:
        _LOG.warning("table %s: old saved plans stay: %s", store.name, error)
    return plan.hash


def _remove_old(store: TableStore, just_saved: str) -> None:
    """By the machine's clock, which dates files; the table's own may be set by hand."""
    limit = SystemClock().now_ms() - KEPT_MS
    newest_first = sorted(_files(store), key=lambda file: (-file.mtime_ms, file.name))
    for place, file in enumerate(newest_first):
        if place >= MOST_KEPT and file.mtime_ms < limit:
            _forget(store, file)
    old = [file for file in newest_first[:MOST_KEPT] if file.mtime_ms < limit and _hash(file) != just_saved]
    for file in old[::-1][:_LOOKED_AT]:
        if not _can_be_applied(store, file):
            _forget(store, file)


def _forget(store: TableStore, file: FileStatus) -> None:
    store.delete(file.path)
    store.delete(_note_path(store, _hash(file)))


def _can_be_applied(store: TableStore, file: FileStatus) -> bool:
    """Whether somebody may wait for this plan. Raises where that cannot be learned."""
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
    """A saved plan that waits for approval: since when (epoch ms, the table's clock), and why it was not applied at once."""

    plan: MaintenancePlan
    since_ms: int
    why: str


def hold_plan(store: TableStore, plan: MaintenancePlan, why: str) -> str:
    """Keep ``plan`` as :func:`save_plan` does, and note that it waits for approval, ``why``; returns the hash.

    It takes the place of what waited for the same action with the same arguments (but for moments): that plan stays saved, and can be applied by its hash as long as it
    fits, but is no longer listed. A plan that waits already keeps the time of its first note. Raises what `save_plan` raises.
    """
    save_plan(store, plan)
    asked = {name: value for name, value in plan.arguments.items() if not name.endswith("_ms")}
    same = {"action": plan.action, "arguments": asked}
    told = {"files": len(plan.items), "bytes_freed": plan.estimate.bytes_freed}
    note = json.dumps({**same, **told, "since_ms": store.clock.now_ms(), "why": why}, ensure_ascii=False)
    store.file_io.write_exclusive(_note_path(store, plan.hash), note.encode())
    for other, said in _notes(store):
        if other != plan.hash and {name: said.get(name) for name in same} == same:
            store.delete(_note_path(store, other))
    return plan.hash


def waiting_plans(store: TableStore) -> list[WaitingPlan]:
    """The plans that wait for approval, the longest first: those that were applied, or do not fit the table any more, do not wait.

    A note or plan that cannot be understood waits for nobody. Raises OSError where the folder cannot be read, CorruptFile for the table's own metadata.
    """
    found = []
    for name, said in _notes(store):
        try:
            waiting = WaitingPlan(load_plan(store, name), time_of(said["since_ms"]), str(said["why"]))
            options = waiting.plan.options == dict(store.options.raw)
        except (CorruptFile, InvalidOption, KeyError, PlanStale, TypeError, ValueError):
            continue
        if options and waiting.plan.table == store.name and _still_fits(store, waiting.plan):
            found.append(waiting)
    return sorted(found, key=lambda one: (one.since_ms, one.plan.hash))


def waiting_to_free(store: TableStore, action: str) -> tuple[int, int]:
    """How many items the newest plan of ``action`` has that waits for approval, and the bytes that it would free; (0, 0): none waits.

    From its note alone, so that whoever looks at many tables may ask. Nothing waits once the action was carried out, by whichever plan.
    Raises OSError where the folder cannot be read.
    """
    known: list[tuple[int, int, int]] = []
    for _, said in _notes(store):
        with suppress(KeyError, TypeError, ValueError):  # of another version, or damaged
            if said.get("action") == action:
                known.append((time_of(said["since_ms"]), int(said["files"]), int(said["bytes_freed"])))
    if not known:
        return 0, 0
    since, files, freed = max(known)
    with suppress(CorruptFile):  # no ledger yet
        runs = read_ledger(store, _RUNS, heads=True)
        if any(run.action == action and run.outcome == "done" and run.time_ms >= since for run in runs):
            return 0, 0
    return files, freed


def _notes(store: TableStore) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The hash of each plan with a note, and what the note says ({} where it cannot be understood)."""
    for file in store.file_io.list_dir(f"{store.root}/dredge/plans"):
        if file.is_dir or not file.name.endswith(_NOTE):
            continue
        try:
            said = parse_json(store.file_io.read_bytes(file.path), unique=True)
        except FileNotFoundError:
            continue
        except ValueError:
            said = {}
        yield file.name.removesuffix(_NOTE), said if isinstance(said, dict) else {}


def _note_path(store: TableStore, plan_hash: str) -> str:
    return f"{store.root}/dredge/plans/{check_name(plan_hash)}{_NOTE}"


def saved_plan_hashes(store: TableStore) -> list[str]:
    """The hashes of all plans that are kept, in their order."""
    return sorted(map(_hash, _files(store)))


def names_in_saved_plans(store: TableStore) -> Iterator[tuple[str, list[str]]]:
    """The hash of each saved plan with the file names that it works on, so that nobody deletes them before it is applied.

    Files that a plan would itself delete are not among them. A plan that cannot be understood, being damaged or of another version,
    names every word in it. Raises OSError where it cannot be read.
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
    """The saved plan of that hash (or of the only hash that starts so).

    Raises PlanStale when there is none (naming the run that applied it, if one did), or several, or when it no longer fits
    (`MaintenancePlan.from_json`), CorruptFile naming its file, InvalidOption for what is no hash.
    """
    if not isinstance(plan_hash, str) or not re.fullmatch("[0-9a-f]+", plan_hash):
        raise InvalidOption("plan hash", plan_hash, "the hash of a saved plan, or its beginning", store.name)
    found = [name for name in saved_plan_hashes(store) if name.startswith(plan_hash)]
    if len(found) > 1:
        raise PlanStale(f"there are {len(found)} saved plans with hash {plan_hash}", store.name)
    if not found:
        raise _none_of(store, plan_hash)
    path = _path(store, found[0])
    try:
        plan = MaintenancePlan.from_json(store.file_io.read_bytes(path).decode(errors="replace"))
    except CorruptFile as error:
        raise CorruptFile(path, error.reason) from error
    except FileNotFoundError as error:  # it was old, and somebody saved another one
        raise _none_of(store, plan_hash) from error
    if plan.hash != found[0]:
        raise PlanStale(f"the file {path} holds plan {plan.hash}", store.name)
    return plan


def _none_of(store: TableStore, plan_hash: str) -> PlanStale:
    told = ""
    with suppress(CorruptFile):
        for entry in read_ledger(store, heads=True):
            if entry.outcome == "done" and entry.plan_hash.startswith(plan_hash):
                what = f"run {entry.run_id}" if entry.snapshot_id is None else f"snapshot {entry.snapshot_id}"
                told = f"; it is already applied, {what}, at {utc_text(entry.time_ms)} UTC"
    return PlanStale(f"there is no saved plan with hash {plan_hash}{told}", store.name)


def _path(store: TableStore, plan_hash: str) -> str:
    return f"{store.root}/dredge/plans/{check_name(plan_hash)}.json"

"""Read-only verbs: status, tables, health, snapshots, files, holds."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lsm_core.cli.completion import table_names as names_offered
from lsm_core.cli.render import Columns, duration_text, print_documents, print_json, print_table, say, visible
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    Partitions,
    TableArgument,
    Warehouse,
    load_platform_function,
    load_policy_functions,
    open_catalog,
    open_table,
    parse_partitions,
)
from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, DatabaseNotFound, DredgeError, InvalidOption, TableNotFound, UnsupportedFeature

if TYPE_CHECKING:
    from lsm_core.format.snapshot import Snapshot
    from lsm_core.maintenance import BucketHealth
    from lsm_core.metadata.store import TableStore
    from lsm_core.table import Catalog

SCORE = "score (0 is healthy)"
_STATUS = (
    "table", "state", "state_why", "next_step", "keys", "partitioned_by", "snapshot", "committed", "buckets",
    "files", "rows", "bytes", "runs", "score",
    "rank", "costs_most", "level0", "oldest_level0", "last_compaction", "due_bytes", "full_bytes", "upkeep",
    "changelogs", "trash", "delete_mode", "guarantee",
    "paimon_version", "cannot", "without_effect", "warnings", "promises", "iceberg", "state_from", "error",
)  # fmt: skip

_PLAIN_STATES = ("corrupt", "unreadable", "due", "invisible rows", "not maintained", "healthy")
"""States of tables without a policy file, the most urgent first; a subset of the platform's `TableState`."""
_OTHERS_SHOWN = 20
_SNAPSHOTS_OF_ONE, _SNAPSHOTS_OF_EACH = 1_000, 5
"""Most snapshots that are read to find a damaged history."""


def tables(
    warehouse: Warehouse,
    database: Annotated[str | None, typer.Argument(help="Only this database.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the tables of a warehouse."""
    catalog = open_catalog(warehouse)
    names, broken = table_names(catalog, database)
    if as_json:
        print_json(names)
    else:
        for name in names:
            say(visible(name))
        if catalog.options.metastore == "hive":
            databases = [database] if database else catalog.list_databases()
            _note_other_kinds(catalog, [each for each in databases if each not in broken])
    if broken:
        raise DredgeError("; ".join(f"{name}: {error}" for name, error in broken.items()))


def _note_other_kinds(catalog: Catalog, databases: Collection[str]) -> None:
    """Print the entries of a Hive metastore that are no Paimon tables to the standard error."""
    others = [f"{each}.{name} ({kind})" for each in databases for name, kind in catalog.other_tables(each).items()]
    if others:
        shown = ", ".join(visible(other) for other in sorted(others)[:_OTHERS_SHOWN])
        more = f" and {len(others) - _OTHERS_SHOWN} more" if len(others) > _OTHERS_SHOWN else ""
        typer.echo(f"left out, because they are no Paimon tables: {shown}{more}", err=True)


def table_names(catalog: Catalog, database: str | None = None) -> tuple[list[str], dict[str, str]]:
    """Return (table names of a warehouse or one database, error text by database that cannot be listed).

    Raises DatabaseNotFound for a folder that is not a warehouse, which must not look like an empty warehouse.
    """
    if database:
        return [f"{database}.{table}" for table in catalog.list_tables(database)], {}
    databases = catalog.list_databases()
    if not databases and catalog.options.metastore == "filesystem":
        root = catalog.root.rstrip("/")
        inside = {entry.path.rstrip("/").rpartition("/")[2] for entry in catalog.file_io.list_dir(catalog.root)}
        if {"schema", "snapshot"} & inside:
            raise DatabaseNotFound(f"{root} is a table, not a warehouse; its warehouse is two folders up")
        if root.endswith(".db"):
            raise DatabaseNotFound(f"{root} is a database, not a warehouse; its warehouse is one folder up")
        if inside:
            raise DatabaseNotFound(f"{root} is no warehouse: no folder in it is a database (NAME.db)")
    names: list[str] = []
    broken: dict[str, str] = {}
    for name in databases:
        try:
            names += [f"{name}.{table}" for table in catalog.list_tables(name)]
        except Exception as error:  # noqa: BLE001  (one database that cannot be listed hides no other)
            broken[name] = _error_line(error)
    return names, broken


def list_lost_schemas(catalog: Catalog, names: Collection[str]) -> list[str]:
    """Return a line for each folder of a warehouse that has snapshots but no schema file, so that it is no table.

    Databases that cannot be listed are left out, because `table_names` reports them.

    Args:
        catalog: catalog of the warehouse.
        names: full names of its tables.
    """
    lines: list[str] = []
    for database in catalog.list_databases():
        tables = {table for found, _, table in (name.partition(".") for name in names) if found == database}
        with suppress(DredgeError, OSError):
            lost = catalog.list_lost_schemas(database, tables)
            lines += [f"{name} is left out: {text}" for name, text in lost.items()]
    return lines


def select_tables(names: Sequence[str], pattern: str, root: str) -> list[str]:
    """Return the tables of a warehouse that match a pattern.

    Args:
        names: full names of all tables.
        pattern: a database, a glob such as 'db.*', or one table; "*" matches an empty warehouse, too.
        root: path of the warehouse, for the message.

    Raises:
        TableNotFound: no table matches.
    """
    matches = [name for name in names if fnmatchcase(name, pattern) or name.partition(".")[0] == pattern]
    if not matches and pattern != "*":
        number = f"{len(names):,} table{'' if len(names) == 1 else 's'}"
        raise TableNotFound(f"no table of {root} matches {pattern}; `dredge tables` lists its {number}")
    return matches


def _error_line(error: Exception) -> str:
    """Return an error as one line; errors of other packages begin with their type."""
    return str(error) if isinstance(error, DredgeError) else f"unexpected {type(error).__name__}: {error}"


def status(
    warehouse: Warehouse,
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="database.table", show_default=False, autocompletion=names_offered),
    ] = None,
    dagster_home: Annotated[
        str | None,
        typer.Option(
            "--dagster-home",
            metavar="FOLDER",
            envvar="DAGSTER_HOME",
            help="Dagster instance of the platform. The states then include failed checks, runs, back-off and budgets.",
            show_default=False,
            show_envvar=True,
        ),
    ] = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Show the state of one table, or of all tables with the worst first, and the guarantee of their commits."""
    from lsm_core.maintenance import read_trash

    catalog = open_catalog(warehouse, clock)
    names, broken = ([table], {}) if table is not None else table_names(catalog)
    total = len(names) + len(broken)
    policy_functions, read_state = load_policy_functions("dredge.promises"), _load_state_function()
    states, source = _read_platform_states(warehouse, clock, dagster_home, names)
    rows = [_unreadable_row(f"{name}.*", error) for name, error in broken.items()]
    damaged, notices = [], []
    for name in names:
        try:
            store = catalog.store(name)
            notices += _describe_hidden(store)
            deleted = read_trash(store)
            row = _read_status(store, len(deleted.records))
            promises = [line for read_lines in policy_functions for line in read_lines(store)]
            state = _state_with_history(store, states.get(name) or read_state(store, None), alone=table is not None)
            rows.append(row | {"promises": promises, **_state_values(state)})
            damaged += [f"{name}: {error}" for error in deleted.unreadable]
        except Exception as error:  # one table that cannot be looked at, for whatever reason, hides no other
            if table is not None:
                raise
            broken[name] = _error_line(error)
            rows.append(
                {**_unreadable_row(name, broken[name]), **_state_values(states.get(name) or read_state(None, error))}
            )
    ranks = {row["table"]: row.pop("state_rank", 0) for row in rows}
    ranked = sorted(rows, key=lambda row: (ranks[row["table"]], _rank_row(row)))
    for number, row in enumerate(ranked, 1):
        row["rank"] = number
        row["state_from"] = "dagster" if row["table"] in states else "metadata"
    if as_json:
        print_json(rows if table is None else rows[0])
    else:
        _show_status(catalog.place, ranked)
        if ranked:
            say(source)
    for line in (*notices, *_collect_notices(), *(list_lost_schemas(catalog, names) if table is None else ())):
        typer.echo(visible(f"warning: {line}"), err=True)
    if broken:
        failures = (f"{name}: {error}" for name, error in broken.items())
        raise DredgeError(f"{len(broken)} of {total} tables cannot be looked at: {'; '.join((*failures, *damaged))}")
    if damaged:
        raise DredgeError(f"all is shown but what the trash holds: {'; '.join(damaged)}")


def _describe_hidden(store: TableStore) -> list[str]:
    """Return a line with the remedy if the hint EARLIEST hides older snapshots, otherwise an empty list."""
    from lsm_core.metadata import hints, snapshots

    oldest = hints.find_hidden(store.file_io, store.snapshot_dir, snapshots.PREFIX)
    if oldest is None:
        return []
    hidden = f"the hint EARLIEST hides its snapshots from {oldest} on, which readers and expiry then ignore"
    return [f"{store.name}: {hidden}; run CALL sys.repair_earliest_snapshot('{store.name}', {oldest})"]


def _load_state_function() -> Callable[[TableStore | None, Exception | None], Mapping[str, Any]]:
    """Return the function that computes a table's state from the policy file, or without one from its options."""
    return next(iter(load_policy_functions("dredge.states")), _judge_plainly)


def _read_platform_states(
    warehouse: str, clock: str | None, home: str | None, tables: Sequence[str]
) -> tuple[Mapping[str, Mapping[str, Any]], str]:
    """Return the states of tables from the Dagster instance, by table, and a sentence on what the states include.

    If no instance is set, or it cannot be read, the mapping is empty and the sentence gives the reason.

    Args:
        warehouse: the warehouse.
        clock: the clock as text, or None for the system's.
        home: folder of the Dagster instance, or None.
        tables: full names of the tables.
    """
    unknown = "states are from metadata alone: failed checks, suspensions, runs, back-off and budgets are unknown"
    if home is None or not home.strip():
        return {}, f"{unknown}; set DAGSTER_HOME or --dagster-home to the platform's Dagster instance"
    read_states = load_platform_function("states")
    if read_states is None:
        return {}, f"{unknown}; install 'dredge[dagster]' to read {visible(home)}"
    try:
        states = read_states(warehouse, clock, home, tables)
    except Exception as error:  # noqa: BLE001  (whatever is wrong with Dagster, the tables are shown)
        return {}, f"{unknown}: {visible(_error_line(error))}"
    return states, f"states include failed checks, runs, back-off and budgets of the Dagster instance {visible(home)}"


def _judge_plainly(store: TableStore | None, error: Exception | None) -> dict[str, Any]:
    """Return the state of a table by its own options, for the case that no policy file is set.

    The keys are "state" (its name), "state_rank" (position among the states, for sorting), "why" (reason) and "next"
    (next step).

    Args:
        store: the table, or None if it cannot be read.
        error: why the table cannot be read, or None.
    """
    from lsm_core.maintenance import health as health_of
    from lsm_core.metadata import unsupported
    from lsm_core.metadata.support import Purpose

    if store is None:
        state = "corrupt" if isinstance(error, CorruptFile) else "unreadable"
        return {"state": state, "state_rank": _PLAIN_STATES.index(state)}
    state, why, step = "healthy", "nothing is due", "none"
    runs = due = hidden = 0
    for bucket in health_of(store):
        runs, due, hidden = max(runs, bucket.sorted_runs), due + bucket.cost_minor, hidden + bucket.hidden_rows
    trigger, compact = store.options.compaction_trigger, f"`dredge compact {shlex.quote(store.name)}`"
    if unsupported(store, Purpose.COMPACT):
        state, why = "not maintained", "; ".join(unsupported(store, Purpose.COMPACT))
    elif due or (store.has_primary_key and runs >= trigger):
        sign = f" (trigger {trigger})" if store.has_primary_key else ""
        state, why, step = "due", f"{runs} sorted runs{sign}; {due:,} bytes to merge", compact
    elif hidden:
        state, why, step = "invisible rows", f"{hidden:,} rows not visible before the next compaction", compact
    return {"state": state, "state_rank": _PLAIN_STATES.index(state), "why": why, "next": step}


def _state_with_history(store: TableStore, state: Mapping[str, Any], *, alone: bool) -> Mapping[str, Any]:
    """Return the state of a table, or that its history is damaged.

    Args:
        store: the table.
        state: state of the table without its history.
        alone: whether only this table is shown. Then up to 1,000 snapshots and their manifest lists are looked at, of
            each of all tables the five oldest snapshots.
    """
    from lsm_core.metadata.history_check import find_damaged_history

    damage = find_damaged_history(store, _SNAPSHOTS_OF_ONE if alone else _SNAPSHOTS_OF_EACH, lists=alone)
    if damage is None or state.get("state") == _PLAIN_STATES[0]:
        return state
    step = f"`dredge repair {shlex.quote(store.name)}`, by hand; nothing of it expires before"
    return {"state": _PLAIN_STATES[0], "state_rank": 0, "why": f"its history is damaged: {damage}", "next": step}


def _state_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a table's row that describe its state, and the state's rank, by which rows are sorted."""
    return {
        "state": state.get("state"),
        "state_why": state.get("why"),
        "next_step": state.get("next"),
        "state_rank": state.get("state_rank", 0),
    }


def _collect_notices() -> list[str]:
    """Return warnings of installed packages about this environment, such as a broken policy file."""
    if not os.environ.get("DREDGE_POLICIES", "").strip():
        return []
    from importlib.metadata import entry_points

    notices: list[str] = []
    for entry in entry_points(group="dredge.notices"):
        try:
            notices += entry.load()()
        except ImportError as error:  # what the package needs besides is not installed
            notices.append(f"{entry.name}: cannot be read: {error}")
    return notices


def _rank_row(row: dict[str, Any]) -> tuple[bool, float, int, int, str]:
    """Return the sort key of a table's row: unreadable tables first, then by score and bytes to compact, descending."""
    return (
        row["error"] is None,
        -(row["score"] or 0.0),
        -(row["due_bytes"] or 0),
        -(row["full_bytes"] or 0),
        row["table"],
    )


def _show_status(root: str, rows: list[dict[str, Any]]) -> None:
    from lsm_core.maintenance.writers_compact import WATCHING
    from lsm_core.options import PaimonVersion

    names = [
        "table",
        *(["state"] if any(row["state"] for row in rows) else []),
        "keys",
        "snapshot",
        "committed",
        "files",
        "rows",
        "runs",
        "level0",
        "score",
        "costs_most",
        "last_compaction",
        "trash",
    ]
    guarantees = {row["guarantee"] for row in rows if row["guarantee"]}
    say(f"{root}: {guarantees.pop()}" if len(guarantees) == 1 else root)
    if not rows:
        say("no tables yet")
        return
    shown = []
    for row in rows:
        cannot = f"be looked at: {row['error']}" if row["error"] else "; ".join(row["cannot"]) or "-"
        moments = {
            name: None if row[name] is None else utc_text(row[name]) for name in ("committed", "last_compaction")
        }
        shown.append([*(moments.get(name, row[name]) for name in names), cannot])
    titles = {"score": SCORE, "level0": "level 0", "costs_most": "costs most", "last_compaction": "last compacted"}
    columns = [titles.get(name, name) for name in names]
    print_table("", [*columns, "cannot"], shown)
    for row in rows:
        if row["state_why"] and row["state"] != "healthy":
            say(f"{row['table']}: {row['state']}: {row['state_why']}; next: {row['next_step']}")
        if (row["upkeep"] or "").startswith(WATCHING):
            say(f"{row['table']}: {row['upkeep']}")
        if guarantees and row["guarantee"]:
            say(f"{row['table']}: {row['guarantee']}")
        if (version := row["paimon_version"]) and not version.startswith(str(PaimonVersion.V1_4)):
            say(f"{row['table']}: follows Paimon {version}")
        if row["without_effect"]:
            say(f"warning: {row['table']} sets options that have no effect here: {', '.join(row['without_effect'])}")
        for warning in row["warnings"]:
            say(f"warning: {row['table']}: {warning}")
        if row["iceberg"] and row["iceberg"]["condition"] != "current":
            say(f"warning: {row['table']}: {row['iceberg']['text']}")
        elif row["iceberg"] and row["iceberg"]["lag_ms"]:
            lag = duration_text(row["iceberg"]["lag_ms"])
            say(f"{row['table']}: Iceberg readers lag {lag}: {row['iceberg']['text']}")
        for promise in row["promises"] or ():
            say(f"{row['table']}: {promise}")


def _unreadable_row(name: str, error: str) -> dict[str, Any]:
    """Return the row of a table that cannot be read: without numbers, with the reason in ``error``."""
    return {**dict.fromkeys(_STATUS), "table": name, "cannot": [], "without_effect": [], "warnings": [], "error": error}


def _read_status(store: TableStore, trash: int) -> dict[str, Any]:
    from lsm_core.locks import guarantee_text, lock_given_way
    from lsm_core.maintenance import health as health_of
    from lsm_core.maintenance.score import history_parts_of
    from lsm_core.maintenance.table_ranking import need_of
    from lsm_core.maintenance.writers_compact import describe_upkeep, writers_compact
    from lsm_core.metadata import changelogs, manifests, paimon_version, snapshots, unsupported
    from lsm_core.metadata.history_check import history_warnings
    from lsm_core.metadata.store import BucketMode
    from lsm_core.metadata.support import Purpose
    from lsm_core.options import OTHER_ENGINES, misnamed, mistyped_reading, not_acted_on
    from lsm_core.read.table_versions import check_reading

    warnings = [f"there is no reading option {name}" for name in mistyped_reading(store.options.raw, OTHER_ENGINES)]
    warnings += [f"option '{name}': {advice}" for name, advice in misnamed(store.options.raw).items()]
    try:
        moded = store.options.is_set("scan.mode")  # only modes are younger than some version
        followed = paimon_version.followed(store.file_io, store.snapshot_dir, store.options) if moded else None
        check_reading(store.options, store.name, followed)
    except (InvalidOption, UnsupportedFeature) as error:
        warnings.append(f"reads fail: {error}")
    version = None
    if store.has_primary_key:
        judged = paimon_version.read_evidence(store.file_io, store.snapshot_dir, store.kept)
        version = paimon_version.explain_version(store.options, store.version_found, judged)
        mixed = paimon_version.mixed(store.options, store.version_found, judged)
        warnings += [mixed] if mixed else []
    warnings += history_warnings(store)
    other_lock = lock_given_way(store.schema.options, store.options)
    warnings += [other_lock] if other_lock else []
    snapshot = snapshots.latest(store)
    postponed: dict[str, int] = {}
    if store.bucket_mode is BucketMode.POSTPONE and snapshot is not None:
        from lsm_core.maintenance import waiting_items

        items = waiting_items(store, manifests.live_entries(store, snapshot))
        postponed = {item.partition_text: item.rows_in for item in items}
        waiting = sum(postponed.values())
        warnings += (
            [f"{waiting:,} postponed rows have no bucket, and no reader sees them: compact it"] if waiting else []
        )
    buckets = health_of(store)
    need = need_of(store.name, buckets, history_parts_of(store, snapshot), postponed)
    by_writers = snapshot is not None and writers_compact(store, snapshot)
    return {
        **dict.fromkeys(_STATUS),
        "table": store.name,
        "keys": ",".join(store.schema.primary_keys) or "append",
        "partitioned_by": list(store.schema.partition_keys),
        "snapshot": snapshot.id if snapshot else None,
        "committed": snapshot.time_millis if snapshot else None,
        "buckets": len(buckets),
        "files": need.files,
        "rows": need.rows,
        "bytes": need.total_bytes,
        "runs": need.sorted_runs,
        "score": need.score,
        "rank": None,
        "costs_most": need.costs_most,
        "level0": need.level0_files,
        "oldest_level0": need.oldest_level0_ms,
        "last_compaction": need.last_compaction_ms,
        "due_bytes": need.due_bytes,
        "full_bytes": need.full_bytes,
        "upkeep": None if snapshot is None else describe_upkeep(store, by_writers=by_writers),
        "changelogs": len(changelogs.list_changelogs(store)),
        "trash": trash,
        "delete_mode": store.options.delete_mode,
        "guarantee": guarantee_text(
            store.file_io,
            store.root,
            store.name,
            store.options,
            "" if store.publisher is None else store.publisher.address,
        ),
        "paimon_version": version,
        "cannot": unsupported(store, Purpose.COMPACT),
        "without_effect": list(not_acted_on(store.options.raw)),
        "warnings": warnings,
        "promises": [],
        "iceberg": _iceberg_document(store, buckets, snapshot),
        "error": None,
    }


def _iceberg_document(
    store: TableStore, buckets: list[BucketHealth], snapshot: Snapshot | None
) -> dict[str, Any] | None:
    """Return the lag of the table's Iceberg readers for programs, or None if it has no Iceberg metadata."""
    from lsm_core.maintenance.iceberg_lag import read_iceberg_lag

    lag = None if snapshot is None else read_iceberg_lag(store, buckets, snapshot)
    if lag is None:
        return None
    return {
        "condition": lag.view.condition.value,
        "snapshot": lag.view.shown,
        "since": lag.since_ms,
        "lag_ms": lag.lag_ms(store.clock.now_ms()),
        "rows": lag.rows,
        "bytes": lag.bytes,
        "text": lag.text,
    }


def _layout_columns(buckets: list[BucketHealth]) -> dict[str, list[Any]]:
    """Return the columns of `dredge health` for files, levels and scores."""
    return {
        **_places(buckets),
        "runs": [b.sorted_runs for b in buckets],
        "level 0": [b.level0_files for b in buckets],
        "files": [b.files for b in buckets],
        "small": [b.small_files for b in buckets],
        "rows": [b.rows for b in buckets],
        "deletes": [b.deletes + b.deleted_rows for b in buckets],
        "bytes": [b.total_bytes for b in buckets],
        "by level": [", ".join(f"L{level} {size:,}" for level, size in b.bytes_per_level.items()) for b in buckets],
        SCORE: [b.score for b in buckets],
        "why": ["; ".join(b.reasons) or "healthy" for b in buckets],
    }


def _cost_columns(buckets: list[BucketHealth], now_ms: int) -> dict[str, list[Any]]:
    """Return the columns of `dredge health` for amplification, overlap, ages and costs.

    The last column is the decision of the table's compaction options. Ages are computed at ``now_ms`` (epoch ms).
    """
    return {
        **_places(buckets),
        "read": [b.read_amplification for b in buckets],
        "space": [b.space_amplification for b in buckets],
        "overlap max": [b.overlap_max for b in buckets],
        "overlap mean": [b.overlap_mean for b in buckets],
        "delete ratio": [b.delete_ratio for b in buckets],
        "oldest level 0": [_age_text(b.oldest_level0_ms, now_ms) for b in buckets],
        "last compaction": [_age_text(b.last_compaction_ms, now_ms) for b in buckets],
        "ro lag": [duration_text(b.ro_lag_ms) for b in buckets],
        "minor": [b.cost_minor for b in buckets],
        "full": [b.cost_full for b in buckets],
        "rules": [_rule_text(b) for b in buckets],
    }


def _places(buckets: list[BucketHealth]) -> dict[str, list[Any]]:
    return {"partition": [b.partition_text or "-" for b in buckets], "bucket": [b.bucket for b in buckets]}


def _age_text(moment_ms: int | None, now_ms: int) -> str | None:
    return None if moment_ms is None else f"{duration_text(max(0, now_ms - moment_ms))} ago"


def _rule_text(bucket: BucketHealth) -> str:
    """Return the decision of the table's compaction options on a bucket, with its numbers; "-" without a decision."""
    numbers = ", ".join(f"{name} {value}" for name, value in bucket.facts.items())
    return f"{bucket.decision or '-'}{f': {numbers}' if numbers else ''}"


def health(
    warehouse: Warehouse,
    table: TableArgument,
    partition: Partitions = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Show the health of every bucket and the parts of its score, from metadata only."""
    from lsm_core.maintenance import health as health_of
    from lsm_core.maintenance.writers_compact import describe_upkeep, writers_compact
    from lsm_core.metadata import snapshots

    opened = open_table(warehouse, table, clock)
    buckets = health_of(opened.store, parse_partitions(opened, partition))
    if as_json:
        print_json([asdict(bucket) for bucket in buckets])
        return
    if not buckets:  # an empty table of numbers would leave it open whether the partition was misspelt
        say(f"{opened.name}: no file lies there" + (f": {'; '.join(partition)}" if partition else " yet"))
        return
    shape, reading = _layout_columns(buckets), _cost_columns(buckets, opened.store.clock.now_ms())
    print_table(f"{opened.name}: health", list(shape), zip(*shape.values(), strict=True))
    newest = snapshots.latest(opened.store)
    by_writers = newest is not None and writers_compact(opened.store, newest)
    say(f"upkeep: {describe_upkeep(opened.store, by_writers=by_writers)}")
    print_table(
        "what reads and compactions pay (costs: bytes read)", list(reading), zip(*reading.values(), strict=True)
    )
    parts = [
        [b.partition_text or "-", b.bucket, part.name, part.points(b.size_share), part.weight, part.text]
        for b in buckets
        for part in b.parts
    ]
    if parts:
        print_table(
            "parts of the scores: the part with the most points decides; parts of a tiny bucket count less",
            ["partition", "bucket", "part", "points", "at most", "why"],
            parts,
        )


def snapshots(warehouse: Warehouse, table: TableArgument, as_json: AsJson = False, clock: ClockOption = None) -> None:
    """List the readable snapshots, oldest first."""
    opened = open_table(warehouse, table, clock)
    documents = [
        {
            "id": snapshot.id,
            "kind": snapshot.commit_kind.value,
            "time_ms": snapshot.time_millis,
            "schema": snapshot.schema_id,
            "rows": snapshot.total_record_count,
            "delta": snapshot.delta_record_count,
            "user": snapshot.commit_user,
        }
        for snapshot in opened.snapshots()
    ]
    columns: Columns = {
        "id": "id",
        "kind": "kind",
        "committed (UTC)": lambda row: utc_text(row["time_ms"]),
        **{name: name for name in ("schema", "rows", "delta", "user")},
    }
    print_documents(f"{opened.name}: snapshots", documents, columns, as_json=as_json)


def files(
    warehouse: Warehouse,
    table: TableArgument,
    snapshot: Annotated[
        int | None, typer.Option("--snapshot", help="Snapshot to read (default: the newest).", show_default=False)
    ] = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """List the live data files."""
    system = open_catalog(warehouse, clock).table(f"{table}$files")
    rows = system.to_arrow(snapshot_id=snapshot).to_pylist()  # one object a file
    names = ("partition", "bucket", "level", "record_count", "deleteRowCount", "file_size_in_bytes", "file_source")
    columns: Columns = {name: name for name in (*names, "file_path")}
    print_documents(f"{table}: files", rows, columns, as_json=as_json)


def holds(warehouse: Warehouse, table: TableArgument, as_json: AsJson = False, clock: ClockOption = None) -> None:
    """Show the holders that keep files from being deleted (snapshots, tags, branches ...), the largest first."""
    from lsm_core.iceberg.state import HOLDER_KIND

    opened = open_table(warehouse, table, clock)
    columns: Columns = {
        "holder": "holder",
        "kind": "kind",
        "files held alone": "files",
        "bytes held alone": "bytes",
        "bytes shared": "shared_bytes",
        "since (UTC)": lambda row: utc_text(int(row["since"].timestamp() * 1000)),
    }
    rows = opened.holds().to_pylist()  # one object a holder
    print_documents(f"{opened.name}: holders of data", rows, columns, as_json=as_json)
    if not as_json and any(row["kind"] == HOLDER_KIND for row in rows):
        say(
            "Iceberg readers may read the snapshots that the Iceberg metadata names. The next commit leaves out those "
            "that snapshot.num-retained.min, .max and snapshot.time-retained let expire. "
            f"`dredge refresh-iceberg {shlex.quote(opened.name)} --drop-older` leaves out all but the newest."
        )

"""Run of the demo: replay events up to each tick, wait for sensors and runs, and compare with the reference results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from dredge.assets.demo import carrier_totals, marts
from dredge.assets.demo.checksums import (
    EMPTY,
    SOURCE_ERRORS,
    TableChecksum,
    checksum_of,
    compacted_checksum_of,
    count_source_errors,
    expected_checksum,
    expected_checksum_after_expiry,
)
from dredge.assets.demo.expected_decisions import PAUSE, expected_alerts, expected_decisions
from dredge.assets.demo.outcomes import (
    EXPIRED_SNAPSHOTS,
    EXPIRY,
    TAG_HOLD,
    expected_outcomes,
    find_expiry,
    find_held_files,
    measure_changes,
)
from dredge.assets.demo.replay import REFILE_JOB, REPLAY_JOB, describe_batches
from dredge.assets.demo.replay_clock import RETENTION_MS, TICKS, Tick
from dredge.assets.demo.tables import FLIGHT_STATUS, PLANES, TABLES, WEATHER, DemoTable
from dredge.orchestration.verbs.dagster_client import CheckResult, DagsterClient, PlatformFailed, Run
from dredge.orchestration.verbs.dagster_client import Tick as SensorTick
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.health import data_version
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core.clock import FileClock
from lsm_core.json_text import parse_json
from lsm_core.maintenance import health
from lsm_core.maintenance.writers_compact import WATCHING
from lsm_core.metadata import snapshots

SENSORS: Final = (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR)
_PATIENCE_S: Final = 240
_KEPT_SNAPSHOTS: Final = 20
_TICKS_BACK: Final = 200
"""Number of newest sensor ticks to search; sensors tick every few seconds, and a busy machine may be minutes late."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of one statement with the reference results.

    Attributes:
        statement: the compared statement.
        ok: whether the statement holds.
        detail: what was found instead, or "" if the statement holds.
        in_reference: whether the reference has this statement. Further statements of the demo are counted separately.
    """

    statement: str
    ok: bool
    detail: str = ""
    in_reference: bool = True


@dataclass
class DemoPlayer:
    """Player of the demo's scenario, tick by tick.

    Attributes:
        client: client of the web server.
        warehouse: warehouse of the demo.
        clock: clock of the demo.
        say: prints a line.
        findings: comparisons that were made so far.
        shown: tables whose readers see no level-0 files and that were compacted at least once.
    """

    client: DagsterClient
    warehouse: WarehouseResource
    clock: FileClock
    say: Callable[[str], None]
    findings: list[Comparison] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    _checksums: dict[tuple[str, int], TableChecksum] = field(default_factory=dict)

    @property
    def failed(self) -> list[Comparison]:
        """Comparisons that failed."""
        return [finding for finding in self.findings if not finding.ok]

    def play(self) -> None:
        """Play all ticks (the last one with the expectations), then run the marts and retention twice.

        Raises:
            PlatformFailed: a run or a tick of a sensor failed, or did not end in time.
        """
        for tick in TICKS:
            self._run(REPLAY_JOB, {"ops": {"replay_batches": {"config": {"tick": tick.name}}}})
            # Sensors answer from this time on, shortly before Dagster records the end of the run.
            replayed_seconds = Path(self.warehouse.replay_state).stat().st_mtime
            suites = self.client.launch(names.EXPECTATIONS_JOB) if tick is TICKS[-1] else None
            self._play_tick(tick, replayed_seconds)
            if suites is not None:
                self._wait_until_finished(suites)
                self.say("     great-expectations: the suites of all tables ran")
        self._compare_marts()
        self._run_retention()
        self._compact_totals()
        self._check_self_compaction()

    def _play_tick(self, tick: Tick, start_seconds: float) -> None:
        # The newest snapshot that the replay wrote to each table: compactions may already run.
        stores = {table.name: self.warehouse.store(table.identifier) for table in TABLES}
        written = {name: data_version(store, snapshots.latest_id(store) or 0) or 0 for name, store in stores.items()}
        due = self._find_due_work(written)
        self._compare_checksums(tick.name, "as written", written)
        first = {sensor: self._find_tick_with_data(sensor, start_seconds) for sensor in SENSORS}
        self._compare_alerts(tick.name, start_seconds)
        runs = self._wait_for_runs(start_seconds)
        self.say(f"{tick.name}   {describe_batches(tick)}: {len(runs)} runs")
        for run in sorted(runs, key=lambda item: item.created):
            self.say(f"     {', '.join(_subjects(run, self.warehouse.names))}: {run.tags[names.TAG_REASON]}")
        self._compare_decisions(tick.name, first, due, runs)
        if runs:
            newest = self._newest_snapshots()
            self._compare_outcomes(tick.name, written, newest)
            self._compare_checksums(tick.name, "after maintenance", newest)
            self._wait_for_quiet(max(run.ended or start_seconds for run in runs))
            self._check_recovery(tick.name)
        if tick.name == TAG_HOLD.tick:
            tag_result = self.warehouse.table(FLIGHT_STATUS.identifier).create_tag(TAG_HOLD.tag)
            self._record(
                f"{tick.name}: tag {TAG_HOLD.tag} of {TAG_HOLD.table} names snapshot {TAG_HOLD.snapshot}",
                tag_result.tagged == TAG_HOLD.snapshot,
                f"it names {tag_result.tagged}",
            )
            self.say(f"     {TAG_HOLD.table}: tag {TAG_HOLD.tag} set on snapshot {tag_result.tagged}")
        self._compare_source_errors(tick.name)
        self._check_totals(tick.name)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _run(self, job: str, run_config: Mapping[str, object] | None = None) -> Run:
        return self._wait_until_finished(self.client.launch(job, run_config=run_config))

    def _wait_until_finished(self, run_id: str) -> Run:
        for _ in _poll(f"the end of run {run_id[:8]}"):
            finished_run = next((run for run in self.client.runs() if run.run_id == run_id), None)
            if finished_run is not None and finished_run.finished:
                return self._require_success(finished_run)
        raise AssertionError

    def _require_success(self, run: Run) -> Run:
        if run.status != "SUCCESS":
            raise PlatformFailed(f"run {run.run_id[:8]} of {run.job}", f"it ended as {run.status}")
        return run

    def _find_tick_with_data(self, sensor: str, replayed: float) -> SensorTick:
        """Return the first tick of a sensor that saw the data of the last replay.

        Such a tick ended after the replay, and was not skipped because of the replay.

        Args:
            sensor: name of the sensor.
            replayed: end of the replay (epoch seconds).
        """
        return self._first_tick(
            sensor, lambda tick: (tick.ended or 0.0) > replayed and not tick.skip_reason.startswith("replay of ")
        )

    def _first_tick(self, sensor: str, wanted: Callable[[SensorTick], bool]) -> SensorTick:
        """Return the first ended tick that `wanted` accepts, with its log. Raises PlatformFailed if the tick failed."""
        for _ in _poll(f"a tick of {sensor}"):
            ticks = self.client.ticks(sensor, _TICKS_BACK, with_logs=False)
            done = [tick for tick in ticks if tick.ended is not None and wanted(tick)]
            if done and done[-1].status == "FAILURE":
                raise PlatformFailed(f"sensor {sensor}", done[-1].error)
            if done:
                return next(tick for tick in self.client.ticks(sensor, _TICKS_BACK) if tick.started == done[-1].started)
        raise AssertionError

    def _wait_for_runs(self, since: float) -> list[Run]:
        ended = -1
        while True:  # a busy machine is slow, not stuck: the deadline restarts with every run that ends
            for _ in _poll("the end of the maintenance runs"):
                runs = [
                    run for run in self.client.runs() if self.warehouse.names.table_of(run.tags) and run.created > since
                ]
                if all(run.finished for run in runs):
                    return [self._require_success(run) for run in runs]
                before, ended = ended, sum(run.finished for run in runs)
                if ended > before:
                    break

    def _wait_for_quiet(self, since: float) -> None:
        """Wait until both sensors have ticked again, after `since` (epoch seconds), without requesting runs."""
        for sensor in SENSORS:
            while self._first_tick(sensor, partial(_began_after, since)).run_ids:
                self._wait_for_runs(since)
                since = time.time()

    # -- comparison with the reference -----------------------------------------------------------------------------

    def _record(self, statement: str, ok: bool, detail: str = "", *, in_reference: bool = True) -> None:
        self.findings.append(Comparison(statement, ok, "" if ok else detail, in_reference))
        if not ok:
            self.say(f"     WRONG: {statement}: {detail}")

    def _compare_checksums(
        self, tick: str, when: str, versions: Mapping[str, int], exceptions: Mapping[str, TableChecksum] | None = None
    ) -> None:
        """Compare the rows and checksums that the tables have in given snapshots with the reference.

        Args:
            tick: name of the tick.
            when: description of the moment.
            versions: ids of the snapshots to read, by table name.
            exceptions: expected checksums by table that replace those of the tick.
        """
        for table in TABLES:
            reference, version = (
                (exceptions or {}).get(table.name) or expected_checksum(table.name, tick),
                versions[table.name],
            )
            if table.hides_level0 and table.name not in self.shown:
                answer = self._read_checksum(table, version)
                self._record(
                    f"{tick}: {table.name} {when} shows readers nothing yet", answer == EMPTY, f"found {answer}"
                )
                answer = compacted_checksum_of(self.warehouse.table(table.identifier), version)
            else:
                answer = self._read_checksum(table, version)
            self._record(
                f"{tick}: {table.name} {when} says {reference.rows:,} rows, {reference.checksum}",
                answer == reference,
                f"found {answer}",
            )

    def _read_checksum(self, table: DemoTable, version: int) -> TableChecksum:
        """Return rows and checksum of the snapshot with the id `version`, cached until snapshots expire."""
        if (table.name, version) not in self._checksums:
            opened = self.warehouse.table(table.identifier)
            self._checksums[table.name, version] = checksum_of(opened.to_arrow(snapshot_id=version))
        return self._checksums[table.name, version]

    def _newest_snapshots(self) -> dict[str, int]:
        """Return the id of the newest snapshot by table name; 0 for a table without snapshots."""
        return {table.name: snapshots.latest_id(self.warehouse.store(table.identifier)) or 0 for table in TABLES}

    def _compare_outcomes(self, tick: str, before: Mapping[str, int], newest: Mapping[str, int]) -> None:
        """Compare the changes of the tables since the tick began with the changes that the scenario expects.

        Args:
            tick: name of the tick.
            before: snapshot ids at the beginning of the tick, by table name.
            newest: newest snapshot ids, by table name.
        """
        for table in TABLES:
            store = self.warehouse.store(table.identifier)
            table_changes = measure_changes(table.name, store, before[table.name], newest[table.name])
            due = expected_outcomes(tick)[table.name]
            self.shown |= {table.name} if table_changes else set()
            unexpected = {item.subject: item for item in table_changes}
            for item in due:
                change = unexpected.pop(item.subject, None)
                ok = change is not None and item.matches(change)
                self._record(f"{tick}: {item.text()}", ok, f"found {change.text() if change else 'it unchanged'}")
                if ok and change is not None:
                    self.say(f"     {change.text()}")
            extra = "; ".join(item.text() for item in unexpected.values())
            self._record(f"{tick}: nothing else of {table.name} was touched", not unexpected, extra)

    def _compare_alerts(self, tick: str, since: float) -> None:
        """Compare the level-0 alert that the sensor reported without a run with the expected alert.

        Args:
            tick: name of the tick.
            since: time (epoch seconds); earlier results do not count.
        """
        for alert in expected_alerts(tick):
            results = [item for item in self._read_alerts(alert.table) if item.time >= int(since)]
            first = results[-1] if results else None
            severity = None if first is None or first.passed else first.severity
            ok = first is not None and (first.description, severity) == (alert.text, alert.severity)
            self._record(
                f"{tick}: {alert.table}: {alert.text}", ok and not (first and first.run_id), f"it said {first}"
            )

    def _check_recovery(self, tick: str) -> None:
        """Check that a critical backlog overrode the pause, and that the alert ended after the compaction."""
        for alert in expected_alerts(tick):
            if alert.level != "CRITICAL":
                continue
            newest = self._read_alerts(alert.table)[0]
            self._record(
                f"{tick}: {alert.table}: the alert is over after the recovery", newest.passed, f"it says {newest}"
            )
            shown, why = expected_checksum(alert.table, tick).rows, alert.text.partition(";")[0]
            self.say(f"     {alert.table}: {why}: pause ({PAUSE}) overridden; visible rows 0 -> {shown:,}")

    def _read_alerts(self, table: str) -> list[CheckResult]:
        identifier = next(item.identifier for item in TABLES if item.name == table)
        layout = names.WarehouseNames.of(self.warehouse.path).layout_key(identifier)
        return self.client.check_results(layout.path, names.BACKLOG_CHECK)

    def _find_due_work(self, versions: Mapping[str, int]) -> set[tuple[str, str]]:
        """Return the work that the tables' own rules find due in the given snapshots.

        Args:
            versions: snapshot ids by table name.

        Returns:
            Pairs of full table name and partition path.
        """
        # The rules of tables that a policy holds back do not count.
        paused = {alert.table for alert in expected_alerts(TICKS[0].name)}
        tables = [table for table in TABLES if table.primary_keys and table.name not in paused]
        buckets_by_table = {
            table: health(self.warehouse.store(table.identifier), snapshot_id=versions[table.name]) for table in tables
        }
        return {
            (table.identifier, bucket.partition_text)
            for table, buckets in buckets_by_table.items()
            for bucket in buckets
            if bucket.cost_minor
        }

    def _compare_decisions(
        self, tick: str, ticks: dict[str, SensorTick], due: set[tuple[str, str]], runs: Sequence[Run]
    ) -> None:
        # One sensor's run may be done before the other one looks.
        started = {subject: run.created for run in runs for subject in _subjects(run, self.warehouse.names)}
        for item in expected_decisions(tick):
            sensor_tick = ticks[item.sensor]
            compacting = item.subject in started and started[item.subject] < (sensor_tick.ended or 0.0)
            is_logged = any(item.matches(line, compacting=compacting) for line in sensor_tick.text.splitlines())
            self._record(f"{tick}: {item.subject}: {item.words}", is_logged, "no such line on the tick")
        keys = {
            subject
            for key in ticks[names.SORTED_RUN_SENSOR].run_keys
            for subject in _subjects_of_key(key.partition("@")[0])
        }
        expected_keys = {f"{table}/{partition}" if partition else table for table, partition in due}
        expected_keys |= {item.subject for item in expected_decisions(tick) if item.words.startswith("run (recovery)")}
        self._record(
            f"{tick}: sorted_run starts {', '.join(sorted(expected_keys)) or 'nothing'}",
            keys == expected_keys,
            f"it started {sorted(keys)}",
        )

    def _run_retention(self) -> None:
        before = {table.identifier: len(self.warehouse.table(table.identifier).snapshots()) for table in TABLES}
        files = self._list_files()
        self._run(names.RETENTION_JOB)
        deleted = files - self._list_files()
        self._record(
            "T3: expiring deletes no file yet: they wait for their grace", not deleted, f"{len(deleted)} are gone"
        )
        for table in TABLES:
            remaining = len(self.warehouse.table(table.identifier).snapshots())
            extra_commits = table.name == WEATHER.name  # the commit that drops its months
            expired, due = before[table.identifier] + extra_commits - remaining, EXPIRED_SNAPSHOTS[table.name]
            self._record(f"T3: {due} snapshots of {table.name} expire", expired == due, f"{expired} did")
        expiry = find_expiry(self.warehouse.table(WEATHER.identifier))
        self._record(f"T3: {EXPIRY.text()}", expiry == EXPIRY, f"found {expiry}")
        self.say(f"     {EXPIRY.text()}")
        held = find_held_files(self.warehouse.table(FLIGHT_STATUS.identifier))
        self._record(
            f"T3: {TAG_HOLD.held} data files of {TAG_HOLD.table}/{TAG_HOLD.partition} stay: {TAG_HOLD.holder}",
            len(held) == TAG_HOLD.held and all(path.startswith(f"{TAG_HOLD.partition}/") for path in held),
            f"it holds {held}",
        )
        self.clock.set(RETENTION_MS)
        self._run(names.RETENTION_JOB)
        for table in TABLES:
            remaining = len(self.warehouse.table(table.identifier).snapshots())
            kept = min(before[table.identifier], _KEPT_SNAPSHOTS)
            self._record(f"T4: {table.name} keeps {kept} snapshots", remaining == kept, f"it has {remaining}")
        freed = files - self._list_files()
        self._check_deleted_files(freed, held)
        self.say(
            f"T4   retention: {sum(before.values())} snapshots before, "
            f"{len(freed)} data and manifest files deleted after their grace"
        )
        self._checksums.clear()
        self._compare_checksums(
            TICKS[-1].name,
            "after retention",
            self._newest_snapshots(),
            {WEATHER.name: expected_checksum_after_expiry()},
        )

    def _check_deleted_files(self, freed: set[str], held: Sequence[str]) -> None:
        """Check which data files expired with the snapshots, and that the rows of the tag are still readable.

        Args:
            freed: paths of the deleted data and manifest files.
            held: data files that are kept because of the tag.
        """
        for table in TABLES:
            root = self.warehouse.store(table.identifier).root
            deleted = sum(path.startswith(f"{root}/") and "/data-" in path for path in freed)
            due = TAG_HOLD.deleted if table.name == TAG_HOLD.table else 0
            self._record(
                f"T4: {due} data files of {table.name} are deleted after their grace", deleted == due, f"{deleted} are"
            )
        status_table, reference = (
            self.warehouse.table(FLIGHT_STATUS.identifier),
            expected_checksum(TAG_HOLD.table, TAG_HOLD.tick),
        )
        answer = checksum_of(status_table.to_arrow(tag=TAG_HOLD.tag))
        self._record(
            f"T4: tag {TAG_HOLD.tag} says {reference.rows:,} rows, {reference.checksum}",
            answer == reference,
            f"it says {answer}",
        )
        self.say(
            f"     {TAG_HOLD.table}: {TAG_HOLD.deleted} data files deleted, {len(held)} {TAG_HOLD.holder}, "
            f"which still reads {answer.rows:,} rows"
        )

    def _compare_marts(self) -> None:
        """Check that the marts (assets that answer questions about flights) get the same answers as from the source.

        The marts read the maintained tables.
        """
        self._run(marts.JOB)
        answers: dict[str, marts.Rows] = {}
        for mart in marts.MARTS:
            answers |= self.client.json_metadata(mart.key.path, marts.ROWS) or {}
        for question, rows in marts.expected_answers().items():
            answer = answers.pop(question, None)
            self._record(f"T3: {question}: {rows}", answer == rows, f"the mart says {answer}")
        self._record("T3: the marts answer nothing else", not answers, f"{sorted(answers)}")
        self.say(
            f"     marts: {', '.join(mart.name for mart in marts.MARTS)} "
            f"answer {len(marts.expected_answers())} questions"
        )

    def _compare_source_errors(self, tick: str) -> None:
        """Check that maintenance neither adds nor removes invalid rows of the source, except rows of expired months."""
        dirt, reference = count_source_errors(self.warehouse.table(WEATHER.identifier)), SOURCE_ERRORS[tick]
        winds, hours = reference.impossible_winds, reference.repeated_hours
        text = f"{winds} impossible winds and {hours} repeated hours, as in its source"
        self._record(f"{tick}: weather has {text}", dirt == reference, f"found {dirt}")

    def _compact_totals(self) -> None:
        """Compact the table `carrier_daily` fully, as a person would, and check the stream's running totals.

        The stream reads only compacted rows.
        """
        name = carrier_totals.TABLE
        config = {"ops": {names.WarehouseNames.of(self.warehouse.path).node_name(name): {"config": {"full": True}}}}
        self._wait_until_finished(
            self.client.launch(
                ASSET_JOB,
                run_config=config,
                assets=[names.WarehouseNames.of(self.warehouse.path).layout_key(name).path],
            )
        )
        self._check_totals("T4")

    def _check_totals(self, tick: str) -> None:
        """Check the totals that a stream over the table `carrier_daily` keeps.

        They are compared with the totals of the compacted rows, which the stream reads, and also with those of all rows
        if no level-0 file is left.
        """
        table = self.warehouse.table(carrier_totals.TABLE)
        path = carrier_totals.progress_path(self.warehouse)
        for _ in _poll(f"the stream of {carrier_totals.TABLE}"):
            runs = [run for run in self.client.runs() if run.job == carrier_totals.NAME]
            ended = [self._require_success(run) for run in runs if run.finished]
            following = carrier_totals.read_progress(path).following
            if len(ended) == len(runs) and carrier_totals.newest_change(table, following) is None:
                break
        kept = carrier_totals.read_progress(path)
        compacted = carrier_totals.compacted_totals(self.warehouse.catalog(), kept.following)
        flights = f"{sum(kept.totals['flights'].to_pylist()):,} flights"
        self._record(
            f"{tick}: the stream's running totals, {flights}, are those of the compacted carrier_daily",
            kept.totals.equals(compacted) and kept.totals.num_rows > 0,
            f"{kept.totals.to_pylist()} is not {compacted.to_pylist()}",
        )
        waiting = sum(bucket.level0_files for bucket in table.health())
        if not waiting:  # the compaction covered everything, so the job and its check have run
            whole = carrier_totals.totals_of(table.to_arrow())
            self._record(
                f"{tick}: the stream's running totals, {flights}, are those of all of carrier_daily",
                kept.totals.equals(whole),
                f"{kept.totals.to_pylist()} is not {whole.to_pylist()}",
            )
            checks = self.client.check_results(
                carrier_totals.totals_key(self.warehouse.path).path, carrier_totals.CHECK
            )
            check_text = f"it says {checks[0] if checks else 'nothing'}"
            self._record(f"{tick}: {carrier_totals.CHECK} passes", bool(checks) and checks[0].passed, check_text)
        self.say(f"     stream of carrier_daily: {flights} in its running totals; {waiting} level-0 files wait")

    def _check_self_compaction(self) -> None:
        """Check that the writer of `planes` compacts the table at the fifth commit, and the platform starts no run."""
        table = self.warehouse.table(PLANES.identifier)
        before, first = health(table.store), snapshots.latest_id(table.store) or 0
        self._run(REFILE_JOB)
        written = Path(self.warehouse.replay_state).stat().st_mtime
        store = self.warehouse.store(PLANES.identifier)
        after, kinds = health(store), [str(snapshots.read(store, first + step).commit_kind) for step in (1, 2)]
        runs, layout = before[0].sorted_runs + 1, (after[0].sorted_runs, after[0].deletes)
        self._record_extra(
            f"{PLANES.name}: its own writer compacts {runs} -> 1 sorted runs after the write, no delete is left",
            kinds == ["APPEND", "COMPACT"] and layout == (1, 0),
            f"snapshots {kinds}, sorted runs and deletes {layout}",
        )
        right, answer = (
            expected_checksum(PLANES.name, TICKS[-1].name),
            checksum_of(self.warehouse.table(PLANES.identifier).to_arrow()),
        )
        self._record_extra(
            f"{PLANES.name} says {right.rows:,} rows, {right.checksum}", answer == right, f"found {answer}"
        )
        tick = self._find_tick_with_data(names.SORTED_RUN_SENSOR, written)
        tick_line = next(
            (line for line in tick.text.splitlines() if line.startswith(f"{PLANES.identifier}: ")), "nothing"
        )
        self._record_extra(f"the tick says of {PLANES.name}: {WATCHING}", WATCHING in tick_line, f"it says {tick_line}")
        ours = [
            run.run_id[:8] for run in self.client.runs() if self.warehouse.names.table_of(run.tags) == PLANES.identifier
        ]
        self._record_extra(f"the platform started no run for {PLANES.name} all year", not ours, f"it started {ours}")
        self._wait_until_finished(
            self.client.launch(ASSET_JOB, assets=[marts.FLEET.key.path])
        )  # its table has a new commit
        self.say(f"     {PLANES.name} looks after itself: it is not write-only. A fifth commit arrived, and its writer")
        self.say(
            f"     compacted {runs} -> {layout[0]} sorted runs; the platform watches: {tick_line.partition('): ')[2]}"
        )

    def _record_extra(self, statement: str, ok: bool, detail: str) -> None:
        self._record(f"T4: {statement}", ok, detail, in_reference=False)

    def _list_files(self) -> set[str]:
        """Return all data and manifest files of the demo's tables, also files that no snapshot references."""
        paths = set()
        for table in TABLES:
            store = self.warehouse.store(table.identifier)
            pending = [store.root]
            while pending:
                for status in store.file_io.list_dir(pending.pop()):
                    if status.is_dir:
                        pending.append(status.path)
                    elif status.name.startswith(("data-", "manifest-")):
                        paths.add(status.path)
        return paths


def _subjects(run: Run, warehouse_names: names.WarehouseNames) -> list[str]:
    """Return ``db.table``, or ``db.table/partition`` for each partition, that a maintenance run worked on."""
    table, partition = warehouse_names.table_of(run.tags), run.tags.get(names.TAG_PARTITION)
    if names.TAG_PARTITIONS in run.tags:
        return [f"{table}/{path}" for path in parse_json(run.tags[names.TAG_PARTITIONS])]
    return [str(table) if partition is None else f"{table}/{partition}"]


def _subjects_of_key(subject: str) -> list[str]:
    """Split the subject of a run key, such as ``db.t/dt=1|dt=2``, into ``db.t/dt=1`` and ``db.t/dt=2``."""
    table, _, partitions = subject.partition("/")
    return [f"{table}/{partition}" for partition in partitions.split("|")] if partitions else [table]


def _began_after(moment: float, tick: SensorTick) -> bool:
    return tick.started > moment


def _poll(expectation: str) -> Iterator[None]:
    """Yield every half second until the deadline, then raise PlatformFailed."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.5)
    raise PlatformFailed(expectation, f"nothing happened within {_PATIENCE_S} s")


def summarise_comparisons(findings: Sequence[Comparison]) -> str:
    """Return one line with the number of comparisons and of differences."""
    known = [finding for finding in findings if finding.in_reference]
    beyond = [finding for finding in findings if not finding.in_reference]
    text = f"{len(known)} answers and decisions held to the reference: {_verdict(known)}"
    return f"{text}; {len(beyond)} about the table that looks after itself: {_verdict(beyond)}" if beyond else text


def _verdict(findings: Sequence[Comparison]) -> str:
    wrong = sum(not finding.ok for finding in findings)
    return f"{wrong} WRONG" if wrong else "all right"

"""The incident: compaction is paused, level 0 piles up. Alert, plan, recovery in passes, killed half-way, resumed, healthy, verified."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.orchestration.ops import layout_ops
from dredge.platform_core import names
from dredge.platform_core.policies.decisions import DAY_MS
from lsm_core import Table
from lsm_core.clock import FileClock, SystemClock
from lsm_core.commit import CommitMessage
from lsm_core.maintenance import CompactItem, health
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from tests.orchestration.alert_hook import AlertHook
from tests.support.platform import KEYED, commit, evaluations, keyed_table, open_house

_KILLED = """
import os, signal, sys
from lsm_core import Catalog
from lsm_core.maintenance import recover
from lsm_core.storage.local_file_io import LocalFileIO

done, publish = [], LocalFileIO.write_exclusive

def publish_once(self, path, data):
    if done and "/snapshot/" in path:
        os.kill(os.getpid(), signal.SIGKILL)
    return publish(self, path, data)

LocalFileIO.write_exclusive = publish_once
recover(Catalog(sys.argv[1]).table("shop.orders").store, None, int(sys.argv[2]), done.append)
"""
"""A recovery that is killed when its second pass is about to publish its snapshot: all is written, nothing can be seen."""


def _pile_up(table: Table, files: int, day: str = "a") -> None:
    """``files`` level-0 files of ten rows, each of which updates half of the rows before it; a commit has up to 500 of them."""
    user, number = f"pile {snapshots.latest_id(table.store)}", snapshots.latest_id(table.store) or 0
    writer, publish = table.new_stream_write(commit_user=user), table.new_stream_commit(user)
    messages: list[CommitMessage] = []
    for step in range(files):
        ids = range(step * 5, step * 5 + 10)
        rows = {"dt": [day] * len(ids), "id": list(ids), "v": [f"{number}/{step}/{i}" for i in ids]}
        writer.write(pa.table(rows, schema=KEYED))
        messages += writer.prepare_commit(commit_identifier=step)
        if len(messages) == 500 or step == files - 1:
            publish.commit(messages, step)
            messages = []


class _Figures:
    """Seconds of what follows one another, and the largest memory of this process and of those that it started; printed (`pytest -s`)."""

    def __init__(self, files: int) -> None:
        self._began = self._last = time.perf_counter()
        print(f"\nthe incident with {files:,} level-0 files")

    def told(self, what: str) -> None:
        now = time.perf_counter()
        peaks = (resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        here, others = peaks
        seconds, self._last = now - self._last, now
        print(f"{what}: {seconds:.1f} s of {now - self._began:.1f} s; peak {here:,} MiB, of a child {others:,} MiB")


def _level0(store: TableStore) -> int:
    newest = snapshots.latest(store)
    assert newest is not None
    return manifests.live_entries(store, newest).column("level").to_pylist().count(0)


@pytest.mark.parametrize(
    ("commits", "files"),
    [
        (18, 5),
        pytest.param(10_000, 1_000, marks=(pytest.mark.soak, pytest.mark.timeout(3600))),
    ],
)
def test_a_level_0_that_nobody_compacts_is_told_and_brought_back_in_passes(
    commits: int, files: int, tmp_path: Path
) -> None:
    root, clock, policies = tmp_path / "wh", FileClock(str(tmp_path / "clock")), tmp_path / "policies.yaml"
    limits = f"level0_warn: {commits // 2}, level0_critical: {commits}, level0_emergency: {commits * 10}"
    policies.write_text(f"tables: {{shop.orders: {{paused: {{reason: storage move, since: 2020-01-01}}, {limits}}}}}")
    table = keyed_table(root, partitioned=False)
    figures = _Figures(commits)
    _pile_up(table, commits - 1)
    figures.told("written")
    clock.set(SystemClock().now_ms() + DAY_MS)
    environment = {"DREDGE_POLICIES": str(policies), "DREDGE_CLOCK": clock.to_spec()}
    with AlertHook().running() as hook, open_house(root, DREDGE_ALERT_WEBHOOK=hook.address, **environment) as house:
        # -- nobody compacts, and somebody is told: all of it in one message
        (line, *_) = house.lines(house.tick(names.SORTED_RUN_SENSOR))
        assert line.startswith("shop.orders: decline (paused by policy): ")
        house.tick(names.WATCH_SENSOR)
        (alert,) = hook.sent
        result = "\n".join(alert["new"])
        assert f"level 0 piles up): WARN: {commits - 1:,} level-0 files" in result
        assert "maintenance stands still): nothing was compacted for 24 h >= 12 h" in result
        assert "paused for long): for " in result
        commit(table, rows=10)  # one file more, and it is critical: told once more, and only this
        house.tick(names.WATCH_SENSOR)
        assert [text.split(":")[0:2] for text in hook.sent[1]["new"]] == [["shop.orders", " error (level 0 piles up)"]]
        figures.told("three ticks and two alerts")

        # -- the plan is shown before it runs: the oldest files, and how many passes there are
        before, content = snapshots.latest_id(table.store), table.to_arrow().sort_by("id")
        plan = table.plan_maintenance("recover", files=files)
        (item,) = plan.items_of(CompactItem)
        assert len(item.inputs) == files and plan.arguments["passes"] == -(-commits // files)
        figures.told("content read, and planned")

        # -- killed half-way: the first pass is kept, the second one is lost whole
        command = [sys.executable, "-c", _KILLED, str(root), str(files)]
        assert subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
        left = _level0(table.store)
        assert left == commits - files
        assert table.to_arrow().sort_by("id").equals(content)
        figures.told("a pass, one that was killed, and content read")

        # -- resumed: a pass as a run of the platform, the rest by the same command as before
        assert house.execute("recover", run_config={"table": "shop.orders", "files": files, "passes": 1}).success
        assert _level0(table.store) == commits - 2 * files
        figures.told("a pass as a run")
        report = table.recover(files=files)
        assert report.passes and report.passes_left == 0
        figures.told(f"{len(report.passes)} passes more")

        # -- healthy, verified, and told that it is over
        opened = Table(TableStore.open(table.store.file_io, table.store.root, table.store.name, table.store.clock))
        assert opened.to_arrow().sort_by("id").equals(content)
        (bucket,) = opened.health()
        assert bucket.level0_files < table.store.options.compaction_trigger and bucket.cost_minor == 0
        newest = snapshots.latest_id(table.store)
        assert before is not None and newest is not None and opened.verify(before, newest).ok
        figures.told("content read, and all compared with what was there before")
        house.tick(names.WATCH_SENSOR)
        assert hook.sent[2]["new"] == [] and hook.sent[2]["standing"] == 1
        over = ["shop.orders: maintenance stands still (error)", "shop.orders: level 0 piles up (error)"]
        assert sorted(hook.sent[2]["over"]) == sorted(over)


_KILLED_RUN = """
import os, signal, sys
from lsm_core import Catalog
from lsm_core.storage.local_file_io import LocalFileIO

publish = LocalFileIO.write_exclusive

def killed(self, path, data):
    if "/snapshot/" in path:
        os.kill(os.getpid(), signal.SIGKILL)
    return publish(self, path, data)

LocalFileIO.write_exclusive = killed
table = Catalog(sys.argv[1]).table("shop.orders")
table.apply(table.load_plan(sys.argv[2]))
"""
"""A pass that is killed when it is about to publish its snapshot: all is written, nothing can be seen."""


@pytest.mark.parametrize(
    ("commits", "files"),
    [
        (12, 6),
        pytest.param(10_000, 2_000, marks=(pytest.mark.soak, pytest.mark.timeout(3600))),
    ],
)
def test_sensors_bring_a_huge_level_0_back_in_passes_each_a_run_of_its_own(
    commits: int, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_ops, "COMPARE_FILES", min(layout_ops.COMPARE_FILES, files // 2))  # compared once a run
    root, policies = tmp_path / "wh", tmp_path / "policies.yaml"
    policies.write_text(f"tables: {{shop.orders: {{level0_pass: {files}, approval: {{compact: required}}}}}}")
    table = keyed_table(root)
    figures = _Figures(commits)
    _pile_up(table, commits)
    commit(table, 2, day="quiet", rows=10)
    figures.told("written")
    content = table.to_arrow().sort_by("id")
    with open_house(root, DREDGE_POLICIES=str(policies)) as house:
        (line, *_) = house.lines(house.tick(names.SORTED_RUN_SENSOR))
        assert "waits for approval" in line, "a pass of a recovery is a compaction to whoever approves those"
        policies.write_text(f"tables: {{shop.orders: {{level0_pass: {files}}}}}")
        passes, before = 0, commits
        while (left := _level0_of(table.store, "dt=a")) > files:
            (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
            assert request.partition_key == "dt=a" and request.tags[names.TAG_ACTION] == "recover"
            assert f"the oldest {files:,}" in request.tags[names.TAG_REASON]
            if not passes:  # lost with its process: the plan is still there, and the next try applies it
                command = [sys.executable, "-c", _KILLED_RUN, str(root), request.tags[names.TAG_PLAN]]
                assert subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode == -signal.SIGKILL
                assert _level0_of(table.store, "dt=a") == left
            done = house.run(request)
            assert done.success and evaluations(done)[names.MERGED_VIEW_CHECK][0]
            passes += 1
            assert _level0_of(table.store, "dt=a") == before - passes * files
            figures.told(f"pass {passes}, from tick to check{'' if passes > 1 else ', killed once'}")
            story = house.materialisation("shop.orders", "dt=a")
            assert "compared by the check" in story["compared"]
            assert "the files that it replaced" in evaluations(done)[names.MERGED_VIEW_CHECK][1]
        assert passes == -(-commits // files) - 1
        story = house.materialisation("shop.orders", "dt=a")
        assert story["action"] == "recover" and "compared by the check" in story["compared"] and "undo" in story
        (rest,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
        assert rest.tags[names.TAG_ACTION] == "compact", "so few are merged by the table's own rules"
        passed, result = evaluations(house.run(rest))[names.MERGED_VIEW_CHECK]
        assert passed and "the whole buckets were compared, over" in result, "and with them all passes once more"
        figures.told(f"the rest compacted, all {passes} passes compared with what was there before")
    assert table.to_arrow().sort_by("id").equals(content)
    assert _level0_of(table.store, "dt=quiet") == 2


def _level0_of(store: TableStore, partition: str) -> int:
    return sum(bucket.level0_files for bucket in health(store) if bucket.partition_text == partition)

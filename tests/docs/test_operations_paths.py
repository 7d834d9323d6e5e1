"""Each path of the runbook (this happened: do that) has a test that walks it from the cause to the healthy state."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from lsm_core.cli.app import run as run_cli
from tests.docs.pages import DOCS, ROOT, without_code

PAGE: Final = DOCS / "operations.md"
_WALKS: Final = "orchestration/test_runbook_walks.py::"
_NAMED: Final = f"{_WALKS}test_the_command_that_a_finding_names_ends_it"
_SMALL: Final = f"{_WALKS}test_small_files_of_an_append_table_are_gathered_by_the_named_command"
_DAMAGED: Final = "orchestration/test_damaged_files.py::"
_BLOCKS: Final = "docs/test_code_blocks.py::test_the_blocks_of_a_page_work_from_top_to_bottom"
_ROUTES: Final = "orchestration/test_alert_routes.py::"
_BLOCKING: Final = "checks/test_blocking.py::"
_REMEDIES: Final = "maintenance/test_file_remedies.py::"
_UI: Final = "ui/test_repair_walks.py::test_the_links_of_the_pages_lead_from_the_sabotage_to_a_green_check"

PATHS: Final[dict[str, tuple[str, ...]]] = {
    # sections
    "Before the first run": ("cli/test_metrics_and_doctor.py::test_the_doctor_fails_for_each_thing_that_is_wrong",),
    "All tables on one page": ("ui/test_journeys.py::test_the_report_has_all_tables_and_what_was_done", _BLOCKS),
    "Alerts": (
        "orchestration/test_watch_sensor.py::test_one_message_tells_all_and_the_next_only_what_changed",
        f"{_ROUTES}test_snoozed_alerts_come_back_when_they_still_hold_and_acknowledged_ones_are_announced",
    ),
    "Monitoring": (
        "docs/test_dashboard.py::test_every_query_asks_for_metrics_and_labels_that_exist",
        "cli/test_metrics_server.py::test_the_verb_serves_until_it_is_terminated",
    ),
    "Traces": ("maintenance/test_tracing.py::test_a_compaction_has_spans_with_table_action_plan_bytes_and_files",),
    "A table is slow": (_BLOCKS, "ui/test_journeys.py::test_3_compact_this_partition_now", _NAMED, _SMALL),
    "Level 0 piles up": (
        _BLOCKS,
        _NAMED,
        "orchestration/test_incident.py::test_a_level_0_that_nobody_compacts_is_told_and_brought_back_in_passes",
        "ui/test_journeys.py::test_10_the_incident",
    ),
    "Iceberg readers miss rows": (
        _BLOCKS,
        "maintenance/test_iceberg_lag.py::test_level0_counts_from_its_oldest_commit",
        "maintenance/test_iceberg_lag.py::test_commits_without_metadata_are_invisible_too",
        "maintenance/test_iceberg_lag.py::test_rows_that_were_taken_back_fail_at_once",
    ),
    "The disk fills": (_BLOCKS, f"{_WALKS}test_a_disk_is_freed_by_the_commands_of_the_page_in_their_order", _NAMED),
    "A check failed": (_UI, f"{_BLOCKING}test_the_command_that_the_check_names_leads_back_to_green"),
    "A file is damaged or lost": (_UI, f"{_BLOCKING}test_a_damaged_index_of_deletion_vectors_leads_back_to_green"),
    "Undo": (_BLOCKS, "ui/test_journeys.py::test_7_undo"),
    "The platform itself stopped": (_BLOCKS, f"{_WALKS}test_tables_are_maintained_from_a_shell_while_nothing_ticks"),
    # findings
    "level 0 piles up": (_NAMED,),
    "small files pile up": (_SMALL,),
    "files are small on average": (_SMALL,),
    "maintenance stands still": (_NAMED,),
    "paused for long": (f"{_WALKS}test_a_pause_and_a_wrong_policy_file_end_with_the_file",),
    "a file is damaged or lost": (
        f"{_DAMAGED}test_a_damaged_input_is_alerted_at_the_first_failure_and_never_retried",
        f"{_DAMAGED}test_a_commit_that_drops_the_file_ends_the_state",
    ),
    "a run failed and no retry helps": (f"{_WALKS}test_a_failure_that_no_retry_heals_ends_with_the_next_commit",),
    "scheduled maintenance cannot read a table": (
        f"{_DAMAGED}test_an_unreadable_table_is_a_warning_of_a_scheduled_run_and_one_alert",
    ),
    "suspended after failures": (
        "orchestration/test_sensors.py::test_a_suspended_table_is_resumed_with_new_tries_and_told_once",
    ),
    "a blocking check failed": (_UI, f"{_BLOCKING}test_a_repair_ends_the_block_for_good"),
    "snapshots do not expire, tags pile up": (_NAMED,),
    "a consumer holds snapshots": (_NAMED,),
    "snapshots are missing": (_NAMED,),
    "manifests pile up": (_NAMED,),
    "Iceberg readers lag": (
        "platform_core/test_iceberg_lag.py::test_readers_that_fail_or_lag_far_behind_are_an_alert",
        "maintenance/test_refresh_iceberg.py::test_damaged_metadata_is_written_anew",
    ),
    "late data woke a partition": ("platform_core/test_findings.py::test_late_data_are_shown_and_alert_nobody",),
    "cannot be looked at, the policy file does not count": (
        f"{_WALKS}test_an_unreadable_table_is_readable_again_once_its_file_is_put_back",
        f"{_WALKS}test_a_pause_and_a_wrong_policy_file_end_with_the_file",
    ),
    "a step waits for a free pool": (
        "platform_core/test_pools.py::test_watch_assigns_the_slot_or_alerts_with_the_remedy",
    ),
    "a sensor is silent": (
        "orchestration/test_watch_sensor.py::test_dagsters_own_state_the_history_and_broken_tables_are_told",
    ),
    # remedies
    "A check failed: undo": (f"{_BLOCKING}test_a_repair_ends_the_block_for_good", _UI),
    "A check failed: rollback": (
        f"{_BLOCKING}test_a_repair_ends_the_block_for_good",
        f"{_BLOCKING}test_a_compaction_that_cannot_be_undone_names_the_way_back_that_works",
    ),
    "A check failed: a later compaction": (
        f"{_BLOCKING}test_a_later_whole_compaction_ends_the_block_if_its_rows_are_those_from_before",
    ),
    "A check failed: acceptance": (
        f"{_BLOCKING}test_a_repair_ends_the_block_for_good",
        f"{_BLOCKING}test_a_damaged_input_that_the_compaction_replaced_costs_nothing",
    ),
    "A file is damaged or lost: A copy exists": (
        f"{_DAMAGED}test_a_damaged_input_is_alerted_at_the_first_failure_and_never_retried",
    ),
    "A file is damaged or lost: Retention deleted it": (
        f"{_WALKS}test_what_retention_deleted_is_restored_by_the_commands_of_the_page",
    ),
    "A file is damaged or lost: A compaction wrote it": (
        f"{_REMEDIES}test_the_output_of_a_compaction_is_undone",
        f"{_BLOCKING}test_a_damaged_index_of_deletion_vectors_leads_back_to_green",
    ),
    "A file is damaged or lost: Metadata": (
        f"{_BLOCKING}test_a_lost_manifest_or_manifest_list_of_a_compaction_leads_back_to_green",
        "maintenance/test_damage.py::test_a_snapshot_whose_lists_are_damaged_is_set_aside_and_put_back",
    ),
    "A file is damaged or lost: Nothing has its rows": (
        f"{_REMEDIES}test_the_file_of_a_writer_is_given_up_with_or_without_later_commits",
    ),
    "A file is damaged or lost: Only old snapshots need it": (
        f"{_REMEDIES}test_a_replaced_file_and_a_changelog_cost_only_old_snapshots",
        f"{_BLOCKING}test_a_lost_changelog_file_fails_the_data_check_until_its_snapshot_expires",
    ),
    "The platform itself stopped: The daemon": (
        f"{_WALKS}test_tables_are_maintained_from_a_shell_while_nothing_ticks",
        "orchestration/test_sensors.py::test_a_broken_cursor_starts_over",
    ),
    "The platform itself stopped: A sensor": (
        "orchestration/test_watch_sensor.py::test_dagsters_own_state_the_history_and_broken_tables_are_told",
        "orchestration/test_sensors.py::test_the_time_budget_ends_a_tick_and_the_next_one_goes_on_from_there",
    ),
    "The platform itself stopped: Held on purpose": (
        "orchestration/test_sensors.py::test_a_replay_in_flight_keeps_all_sensors_still",
        "orchestration/test_live_policies.py::test_a_file_that_was_never_whole_lets_maintenance_rest_and_says_so",
    ),
    "The platform itself stopped: A run waits for a pool that is free": (
        "platform_core/test_pools.py::test_a_forgotten_step_gets_the_free_slot_after_two_minutes",
        "platform_core/test_pools.py::test_watch_assigns_the_slot_or_alerts_with_the_remedy",
    ),
    "The platform itself stopped: Runs queue and do not start": (
        "orchestration/test_launcher.py::test_the_pool_of_a_run_that_was_cancelled_is_freed",
        "orchestration/test_sensors.py::test_a_run_at_work_keeps_the_next_one_waiting",
    ),
    "The platform itself stopped: Java, Spark, disk, clock": (
        "cli/test_metrics_and_doctor.py::test_the_doctor_fails_for_each_thing_that_is_wrong",
    ),
}
"""Tests that walk each path, by section, by row of the table of findings, and by remedy ("section: remedy")."""
_REMEDY_SECTIONS: Final = ("A check failed", "A file is damaged or lost", "The platform itself stopped")


def read_paths(page: Path) -> set[str]:
    """Return the paths of the page: its sections, findings, and remedies (bold words that begin an item of a list)."""
    text = without_code(page.read_text("utf-8"))
    paths = set(re.findall(r"^###? (.+)$", text, re.MULTILINE))
    for section in re.split(r"^###? ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if title == "Alerts":
            table = body[body.index("| Finding") : body.index("A message has one line")]
            paths |= {row.split(" | ")[0] for row in re.findall(r"^\| (.+) \|$", table, re.MULTILINE)[1:]}
        if title in _REMEDY_SECTIONS:
            items = re.findall(r"^\* (.+)$", body, re.MULTILINE)
            named = [re.match(r"\*\*(.+?)\*\*", item) for item in items]
            assert all(named), f"an item of {title!r} does not begin with its name in bold: {items}"
            paths |= {f"{title}: {match[1]}" for match in named if match is not None}
    return paths


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_path_of_the_runbook_has_a_test_and_no_test_walks_a_path_that_is_gone() -> None:
    assert read_paths(PAGE) == set(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_the_tests_of_a_path_exist(path: str) -> None:
    assert PATHS[path]
    for test in PATHS[path]:
        file, name = test.split("::")
        assert name in _tests_of(file), f"{path}: {test}"


def _commands() -> list[str]:
    """Return the command lines in the running text of the page."""
    return sorted(set(re.findall(r"`(dredge [^`]+)`", without_code(PAGE.read_text("utf-8")).replace("\n", " "))))


@pytest.mark.parametrize("command", _commands())
def test_a_command_in_the_text_has_arguments_that_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    assert run_cli([words[0], "--help"]) == 0
    usage = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and word not in usage] == []
    positional = [
        word for number, word in enumerate(words[1:], 1) if not word.startswith("-") and words[number - 1][:1] != "-"
    ]
    # A name is only mentioned ("see `dredge tag`"); a whole command has no more words than arguments.
    arguments = re.findall(r"[{\[|]+[A-Za-z_|]+", usage.partition("\n")[0].replace("[OPTIONS]", ""))
    assert len(positional) <= len(arguments), f"{command}: {usage.splitlines()[0]}"

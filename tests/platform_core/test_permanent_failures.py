"""Failures that no retry heals, as values: which errors they are, and which plans they forbid."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest

from dredge.orchestration.ops.layout_ops import TRANSIENT_ERRORS
from dredge.platform_core.policies import Reason
from dredge.platform_core.policies.decisions import FinishedRun, RunResult, decide_retry
from dredge.platform_core.policies.findings import AlertCondition, find_permanent_failures
from dredge.platform_core.policies.permanent_failures import (
    PERMANENT_ERRORS,
    PermanentFailure,
    find_forbidding,
    find_permanent_error,
    is_data_file,
)
from lsm_core.errors import CorruptFile, DredgeError, StorageFailed, UnsupportedFeature

DATA = "/wh/shop.db/orders/dt=1/bucket-0/data-1-0.parquet"


def failure(file: str = DATA, plan: str = "p1", error: str = "CorruptFile") -> PermanentFailure:
    return PermanentFailure("shop.orders", "dt=1", "12345678-run", plan, 5, error, f"corrupt file {file}: short", file)


def test_no_error_is_both_permanent_and_worth_a_retry() -> None:
    assert not [kind for kind in PERMANENT_ERRORS if issubclass(kind, TRANSIENT_ERRORS)]


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (CorruptFile("a", "b"), True),
        (UnsupportedFeature("x"), True),
        (StorageFailed("read", "a", "b"), False),
        (ValueError("x"), False),
    ],
)
def test_a_permanent_error_is_found_behind_the_failures_raised_from_it(error: Exception, permanent: bool) -> None:
    outer = dg.Failure("outer")
    outer.__cause__ = error
    expected: DredgeError | None = error if permanent else None  # type: ignore[assignment]
    assert find_permanent_error(outer) is expected
    outer.__cause__ = outer
    assert find_permanent_error(outer) is None, "a cycle ends"


@pytest.mark.parametrize(
    ("file", "plan", "partition", "reads", "forbidden"),
    [
        (DATA, "p1", "dt=1", set(), True),
        (DATA, "p2", "dt=1", set(), False),
        (DATA, "p2", "dt=2", {DATA}, True),
        ("/wh/shop.db/orders/index/index-1", "p2", "dt=1", set(), True),
        ("/wh/shop.db/orders/index/index-1", "p2", "dt=2", set(), False),
        ("/wh/shop.db/orders/dt=1/bucket-0/index-1", "p2", "dt=1", set(), True),
        ("", "p2", "dt=1", set(), False),
        ("", "p1", "dt=1", set(), True),
    ],
)
def test_a_failure_forbids_its_plan_and_every_plan_that_reads_the_file(
    file: str, plan: str, partition: str, reads: set[str], forbidden: bool
) -> None:
    assert (find_forbidding([failure(file)], plan, partition, frozenset(reads)) is not None) == forbidden


def test_the_text_names_the_job_of_the_warehouse() -> None:
    text = replace(failure(), resume_job="lake__resume").text()
    assert "launch the job lake__resume for shop.orders" in text


def test_a_run_that_failed_for_good_is_not_tried_again_however_long_ago() -> None:
    tries = [FinishedRun("r1", RunResult.FAILED, 0)]
    assert decide_retry(tries, "p1", 10**12).number == 2
    corrupt = decide_retry(tries, "p1", 10**12, failure())
    assert (corrupt.number, corrupt.reason) == (None, Reason.CORRUPT)
    other = decide_retry([], "p1", 0, failure("", error="UnsupportedFeature"))
    assert (other.number, other.reason) == (None, Reason.NO_RETRY)
    assert "until a commit or a schema change" in other.text


def test_one_alert_per_table_and_kind_names_the_newest_failure_and_counts_the_others() -> None:
    findings = find_permanent_failures(
        [failure(), failure(f"{DATA}2"), failure(f"{DATA}3"), failure("", error="UnsupportedFeature")]
    )
    assert [finding.trouble for finding in findings] == [AlertCondition.CORRUPT, AlertCondition.NO_RETRY]
    assert findings[0].text.endswith("(and 2 more damaged files)")
    assert "run 12345678 failed: corrupt file" in findings[0].text


def test_only_files_in_buckets_are_inputs_of_plans() -> None:
    assert is_data_file(DATA)
    assert not is_data_file("/wh/shop.db/orders/manifest/manifest-1-0")
    assert not is_data_file("data-1-0.parquet")

"""The outcomes of a bucket's pieces as one outcome: one message, one report, and the checks that only all of them together allow."""

from __future__ import annotations

from collections.abc import Sequence

from lsm_core.commit import CommitMessage
from lsm_core.compact.task import BucketReport, BucketResult, BucketTask
from lsm_core.compact.unit import discard, plan_of
from lsm_core.compact.verify import check_tree
from lsm_core.errors import VerificationFailed
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import Shapes

_DIGEST_MODULUS = 1 << 128


def join(store: TableStore, task: BucketTask, results: Sequence[BucketResult]) -> BucketResult:
    """One result of ``task`` from those of its pieces, in key order.

    V0 over all pieces: every row of the rewritten files was read by exactly one piece (a piece takes only rows of its own range, so
    the sum tells), and the bucket is a proper tree afterwards. Raises :class:`VerificationFailed` ("V0"); the pieces' outputs are
    deleted then.
    """
    if len(results) == 1:
        return results[0]
    try:
        return _joined(store, task, results)
    except BaseException:
        for result in results:
            discard(store, task, result.message.own_files())
        raise


def _joined(store: TableStore, task: BucketTask, results: Sequence[BucketResult]) -> BucketResult:
    shapes = Shapes(store)
    plan = plan_of(store, task, shapes)
    by_name = {file.file_name: file for file in task.files}
    rewritten = [by_name[file.name] for file in plan.rewritten_files]
    moved = [by_name[file.name] for file in plan.upgrades]
    rows_in = sum(result.report.rows_in for result in results)
    counted = sum(file.row_count for file in rewritten)
    if rows_in != counted:
        raise VerificationFailed("V0", [f"the pieces read {rows_in} rows of {counted}"])
    after = [file for result in results for file in result.message.compact_after]
    check_tree(store, task, [*rewritten, *moved], after, shapes)
    before = (*rewritten, *moved)
    message = CommitMessage(
        task.partition, task.bucket, task.total_buckets, compact_before=before, compact_after=tuple(after)
    )
    return BucketResult(message, _report(rewritten, len(moved), message, [result.report for result in results]))


def _report(
    rewritten: Sequence[DataFileMeta], upgrades: int, message: CommitMessage, reports: Sequence[BucketReport]
) -> BucketReport:
    made = message.own_files()
    judged = [report for report in reports if report.rows_in] or reports  # nothing to say of a piece without rows
    reasons = sorted({reason for report in reports for reason in report.rows_dropped})
    return BucketReport(
        rows_in=sum(report.rows_in for report in reports),
        rows_out=sum(report.rows_out for report in reports),
        rows_dropped={reason: sum(report.rows_dropped.get(reason, 0) for report in reports) for reason in reasons},
        bytes_in=sum(file.file_size for file in rewritten),
        bytes_out=sum(file.file_size for file in made),
        files_in=len(rewritten),
        files_out=len(made),
        files_upgraded=upgrades,
        seconds=max(report.seconds for report in reports),
        digest=_sum_of([report.digest for report in reports]),
        verification=min(report.verification for report in judged),
        setting=reports[0].setting,
        rows_read_again=sum(report.rows_read_again for report in reports),
        keys_checked=sum(report.keys_checked for report in reports),
        keys_folded=sum(report.keys_folded for report in reports),
        keys_one_by_one=sum(report.keys_one_by_one for report in reports),
    )


def _sum_of(digests: Sequence[str]) -> str:
    """Digests of rewrites and of pieces add up; "" where one of them was not taken."""
    if not all(digests):
        return ""
    return f"{sum(int(text, 16) for text in digests) % _DIGEST_MODULUS:032x}"


__all__ = ["join"]

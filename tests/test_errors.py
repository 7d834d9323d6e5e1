"""Errors: each names what failed, all share one base, and Spark can carry them between processes."""

from __future__ import annotations

import copy
import pickle

import pytest

from lsm_core import errors

MADE = [
    errors.InvalidStatement("SELECT k FROM db.t WHERE", "it ends too early", "parser: end"),
    errors.InvalidOption("bucket", "0", "above 0", "db.t"),
    errors.ColumnNotFound("db.t", "nope", ["a", "b"]),
    errors.InvalidData("db.t", "k", "a key is null"),
    errors.SnapshotNotFound("table db.t has no snapshot 3", expired=True),
    errors.CorruptFile("/w/t/manifest-1", "cut short"),
    errors.StorageFull("/w/t/data-1"),
    errors.StorageRefused("/w/t/data-1", "Read-only file system"),
    errors.StorageFailed("Table.write of db.t", "/w/t/data-1", "connection refused"),
    errors.OutOfMemory("Table.write of db.t", "malloc of size 64 failed"),
    errors.InvalidArgument("Table.write of db.t", "an int is no table"),
    errors.UnsupportedFeature("deletion vectors", "db.t"),
    errors.CommitConflict("file-identity", ["data-1"], by_user="other", snapshot_id=9),
    errors.CommitUnknown(7, "I/O error"),
    errors.LockTimeout("job-7", 30_000, "2024-01-01T00:00:00Z", "jdbc.db.t"),
    errors.LockLost("jdbc.db.t", "taken over by job-8"),
    errors.LockRequired("db.t", "memory://w/t"),
    errors.MetastoreFailed("jdbc:sqlite:/w/t.db", "disk I/O error"),
    errors.PlanStale("input data-1 is gone"),
    errors.PlanRefused("orphans-20-percent", 0.31),
    errors.VerificationFailed("V1", [(1, "a")]),
    errors.JavaNotFound(17, ["JAVA_HOME"]),
    errors.PortInUse("Spark Connect", "localhost", 15002),
    errors.SparkFailed("compaction of db.t", "a worker was killed"),
    *(kind("table db.t: something") for kind in (errors.InvalidSchema, errors.InvalidFilter, errors.TableNotFound,
      errors.TableExists, errors.DatabaseNotFound, errors.DatabaseExists, errors.RetractNotSupported,
      errors.ArithmeticOverflow, errors.ValueTooLarge, errors.WriterStale)),
]  # fmt: skip


@pytest.mark.parametrize("error", MADE, ids=lambda e: type(e).__name__)
def test_an_error_survives_pickling_with_all_it_knows(error: errors.DredgeError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.__dict__ == error.__dict__


def test_every_error_has_the_one_base_and_is_tried_here() -> None:
    classes = {kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__}
    kinds = {kind for kind in classes if issubclass(kind, Exception)}
    assert all(issubclass(kind, errors.DredgeError) for kind in kinds)
    assert kinds - {type(error) for error in MADE} == {errors.DredgeError}


@pytest.mark.parametrize("error", MADE, ids=lambda e: type(e).__name__)
def test_an_error_is_one_line_that_names_the_thing(error: errors.DredgeError) -> None:
    message = str(error)
    assert "\n" not in message
    for value in ("db.t", "/w/t", "data-1", "snapshot 7", "job-7", "orphans-20-percent", "V1", "15002", "Java 17"):
        if value in message:
            return
    pytest.fail(message)


def test_a_conflict_has_a_kind_for_programs_and_a_reason_for_people() -> None:
    known = errors.CommitConflict(errors.ConflictKind.RACES_LOST, snapshot_id=7, reason="lost 11 races")
    assert (known.kind, known.reason) == (errors.ConflictKind.RACES_LOST, "lost 11 races")
    assert str(known) == "commit conflict (lost 11 races) with snapshot 7"
    result = errors.CommitConflict("races-lost")
    assert (result.kind, result.reason) == (errors.ConflictKind.RACES_LOST, "races-lost")
    other = errors.CommitConflict("somebody was first")
    assert (other.kind, other.reason) == (errors.ConflictKind.OTHER, "somebody was first")
    assert errors.VerificationFailed("V2").level is errors.VerificationLevel.V2


def test_a_very_long_value_is_shown_by_its_beginning() -> None:
    message = str(errors.InvalidOption("bucket", "9" * 5000, "a number", "db.t"))
    assert len(message) < 400
    assert "(5002 characters)" in message

"""List of all checks with the tables to which each applies, and their execution; read errors become failed checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import PurePosixPath
from typing import Final

from lsm_core.errors import CorruptFile, DredgeError, InvalidOption
from lsm_core.maintenance.checks.outcome import CheckInput, CheckLimits, CheckReport
from lsm_core.maintenance.file_remedies import find_file_remedies
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.progress import advance, stage

_ROOM: Final = "lsm_core.maintenance.checks"
_METADATA: Final = frozenset({"snapshot", "manifest", "schema", "tag", "changelog", "statistics"})
"""Folders of files that the action `repair` examines."""
PAGES_CHECK: Final = "pages_readable"
"""Name of the check that reads data files page by page."""


@dataclass(frozen=True)
class TableTraits:
    """Properties of a table that decide which checks apply to it.

    Attributes:
        keyed: whether the table has a primary key.
        options: stored options of the table; a missing option has its default.
    """

    keyed: bool
    options: Mapping[str, str]

    def option(self, name: str, default: str = "") -> str:
        """Return an option in lower case.

        Args:
            name: key of the option.
            default: value of a missing option.
        """
        return self.options.get(name, default).strip().lower()

    @property
    def vectors(self) -> bool:
        """Whether deletion vectors may mark rows of the table's files."""
        return self.option("deletion-vectors.enabled") == "true"

    @property
    def replays(self) -> bool:
        """Whether the changelog describes the table's rows.

        With changelog producer `input`, this holds only if the table's row of a key is always the newest written one.
        """
        producer = self.option("changelog-producer", "none")
        if not self.keyed or producer == "none":
            return False
        plain = self.option("merge-engine", "deduplicate") == "deduplicate" and not self.option("sequence.field")
        ignores = any(name.endswith("ignore-delete") and self.option(name) == "true" for name in self.options)
        return producer != "input" or (plain and not ignores)


@dataclass(frozen=True)
class Check:
    """Declaration of a check: its invariant, its function, and the tables to which it applies.

    Attributes:
        name: name of the check and of its function.
        promise: invariant that the check verifies, in one sentence.
        module: module of the function.
        of: predicate that returns whether the check applies to a table, None if it applies to all tables.
        blocking: whether a failure forbids all maintenance of the table.
        warn: whether a failure is only a warning.
        reads_rows: whether the check opens data files; such checks run at night and not after every compaction.
    """

    name: str
    promise: str
    module: str
    of: Callable[[TableTraits], bool] | None = None
    blocking: bool = False
    warn: bool = False
    reads_rows: bool = False

    def make(self, check_input: CheckInput) -> CheckReport:
        """Run the check. Errors of reading the table pass through.

        Args:
            check_input: store, snapshot and limits.
        """
        verdict: CheckReport = getattr(import_module(f"{_ROOM}.{self.module}"), self.name)(check_input)
        return verdict


def _is_keyed(kind: TableTraits) -> bool:
    return kind.keyed


def _is_sorted(kind: TableTraits) -> bool:
    return kind.keyed and kind.option("pk-clustering-override", "false") != "true"


def _is_ordered(kind: TableTraits) -> bool:
    return _is_sorted(kind) and kind.option("merge-engine", "deduplicate") != "first-row"


CHECKS: Final[Mapping[str, Check]] = {
    check.name: check
    for check in (
        Check(
            "tree_is_valid",
            "Files of one level above 0 never overlap in key range, and each file's key and sequence ranges are valid.",
            "metadata_validity",
            blocking=True,
        ),
        Check(
            "level0_backlog",
            "Level-0 files in the worst bucket stay below the warning; every read has to merge each of them.",
            "layout_condition",
            _is_keyed,
            warn=True,
        ),
        Check(
            "small_files_backlog",
            "Small files of each partition and bucket of an append table stay below the warning; "
            "every read opens them all.",
            "layout_condition",
            lambda kind: not kind.keyed,
            warn=True,
        ),
        Check(
            "bucket_size",
            "No bucket is so large that one task needs hours for it: more buckets would share the work.",
            "layout_condition",
            warn=True,
        ),
        Check(
            "average_file_size",
            "Neither a partition nor the table consists of many files that are small on average: "
            "every read opens them all.",
            "layout_condition",
            warn=True,
        ),
        Check(
            "ro_is_fresh",
            "The read-optimized view lags behind the written rows by no more than the limit.",
            "layout_condition",
            _is_keyed,
            warn=True,
        ),
        Check(
            "iceberg_is_fresh",
            "Iceberg readers see the table's rows, apart from those committed within the limit.",
            "layout_condition",
            lambda kind: kind.option("metadata.iceberg.storage", "disabled") != "disabled",
            warn=True,
        ),
        Check(
            "maintenance_alive",
            "Nothing has been due for hours while nothing ran.",
            "layout_condition",
            _is_keyed,
        ),
        Check(
            "snapshot_chain",
            "Snapshots have no gap, and every manifest, data file and index that a snapshot or tag references exists.",
            "snapshot_chain",
            reads_rows=True,
        ),
        Check(
            PAGES_CHECK,
            "Pages of data files decode and match their checksums: a sample of files, or every file in a deep read.",
            "stored_pages",
            reads_rows=True,
        ),
        Check(
            "deletion_vectors_valid",
            "Each deletion vector is in its file's bucket and marks existing rows, as many as the manifest records.",
            "metadata_validity",
            lambda kind: kind.vectors,
            reads_rows=True,
        ),
        Check(
            "unique_keys",
            "Readers see each key once, and in the bucket that lookups read.",
            "key_uniqueness",
            _is_sorted,
            reads_rows=True,
        ),
        Check(
            "equal_sequence_numbers",
            "No two versions of a key have the same sequence number (two concurrent writers cause it): "
            "their order is undefined.",
            "key_uniqueness",
            _is_ordered,
            warn=True,
            reads_rows=True,
        ),
        Check(
            "merge_engine_rules",
            "Readers see the rows that the merge engine makes of the written rows, recomputed for a sample of keys.",
            "merge_rules",
            _is_sorted,
            reads_rows=True,
        ),
        Check(
            "changelog_replays",
            "The changelog, applied to the rows of an older snapshot, gives the current rows of a sample of keys.",
            "changelog_replay",
            lambda kind: kind.replays and _is_sorted(kind),
            reads_rows=True,
        ),
    )
}
"""Checks by name, in the order in which they are shown."""


def checks_of(primary_keys: Collection[str], options: Mapping[str, str]) -> tuple[Check, ...]:
    """Return the checks that apply to a table.

    Args:
        primary_keys: names of the key columns.
        options: stored options.
    """
    kind = TableTraits(bool(primary_keys), options)
    return tuple(check for check in CHECKS.values() if check.of is None or check.of(kind))


def check_table(
    store: TableStore, names: Sequence[str] | None = None, limits: CheckLimits | None = None
) -> list[CheckReport]:
    """Run checks over the newest snapshot. A check that reads a damaged file fails, and its report names the file.

    Args:
        store: the table.
        names: names of the checks, None for all that apply to the table.
        limits: thresholds and limits of reads, None for the defaults.

    Returns:
        One report per check, in the order of `CHECKS`.

    Raises:
        InvalidOption: a check does not exist or does not apply to the table, or the limits request a deep read without
            the check `pages_readable`.
    """
    own = {check.name: check for check in checks_of(store.schema.primary_keys, store.schema.options)}
    for name in names or ():
        if name not in own:
            raise InvalidOption("check", name, f"one that the table has: {', '.join(own)}", store.name)
    chosen = [check for check in own.values() if names is None or check.name in names]
    if limits is not None and limits.deep is not None and PAGES_CHECK not in {check.name for check in chosen}:
        raise InvalidOption("deep", "true", f"together with check {PAGES_CHECK}, which reads the pages", store.name)
    reports = []
    with stage(f"checking {store.name}", len(chosen), "checks"):
        for check in chosen:
            reports.append(run_check(store, check, limits))
            advance()
    return reports


def run_check(store: TableStore, check: Check | str, limits: CheckLimits | None = None) -> CheckReport:
    """Run one check over the newest snapshot. A damaged file makes the check fail and raises no error.

    Any other DredgeError gives a warning that the check was not evaluated. Without a snapshot the check passes.

    Args:
        store: the table.
        check: the check or its name.
        limits: thresholds and limits of reads, None for the defaults.
    """
    definition = CHECKS[check] if isinstance(check, str) else check
    try:
        snapshot = snapshots.latest(store)
        if snapshot is None:
            text = "nothing was committed yet"
            return CheckReport(definition.name, store.name, None, passed=True, text=text)
        report = definition.make(CheckInput(definition.name, store, snapshot, limits or CheckLimits(), definition.warn))
    except CorruptFile as error:
        report = CheckReport(
            definition.name,
            store.name,
            None,
            passed=False,
            text=error.finding,
            problems=(error.path,),
            damaged=() if PurePosixPath(error.path).parent.name in _METADATA else (PurePosixPath(error.path).name,),
        )
    except DredgeError as error:
        text = f"not evaluated: {type(error).__name__}: {error}"
        return replace(CheckReport(definition.name, store.name, None, passed=False, text=text), warn=True)
    return replace(report, remedies=find_file_remedies(store, report.damaged)) if report.damaged else report

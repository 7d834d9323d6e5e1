"""The checks there are, which of them a table has, and how one is made: a check that cannot read the table fails, and says what it met."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final

from lsm_core.errors import CorruptFile, DredgeError, InvalidOption
from lsm_core.maintenance.checks.outcome import CheckLimits, CheckReport, Question
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.progress import advance, stage

_ROOM: Final = "lsm_core.maintenance.checks"
PAGES_CHECK: Final = "pages_readable"
"""The check that reads data files page by page."""


@dataclass(frozen=True)
class Kind:
    """What of a table decides which checks it has: its options as they are stored (a missing one has its default)."""

    keyed: bool
    options: Mapping[str, str]

    def option(self, name: str, default: str = "") -> str:
        """An option in lower case."""
        return self.options.get(name, default).strip().lower()

    @property
    def vectors(self) -> bool:
        """Whether deletion vectors may mark rows of its files."""
        return self.option("deletion-vectors.enabled") == "true"

    @property
    def replays(self) -> bool:
        """Whether its changelog tells what the table says: a writer's input does so only where the newest row of a key is the row."""
        producer = self.option("changelog-producer", "none")
        if not self.keyed or producer == "none":
            return False
        plain = self.option("merge-engine", "deduplicate") == "deduplicate" and not self.option("sequence.field")
        ignores = any(name.endswith("ignore-delete") and self.option(name) == "true" for name in self.options)
        return producer != "input" or (plain and not ignores)


@dataclass(frozen=True)
class Check:
    """One check: ``promise`` in a sentence, ``module`` and ``function`` of its code, and which tables it is ``of`` (None: of all).

    ``blocking``: while it fails nothing may be done to the table. ``warn``: its failure asks for attention only. ``reads_rows``: data files
    are opened, so it is made at night and not after every compaction.
    """

    name: str
    promise: str
    module: str
    of: Callable[[Kind], bool] | None = None
    blocking: bool = False
    warn: bool = False
    reads_rows: bool = False

    def make(self, question: Question) -> CheckReport:
        """The verdict. Raises what reading the table raises."""
        verdict: CheckReport = getattr(import_module(f"{_ROOM}.{self.module}"), self.name)(question)
        return verdict


def _is_keyed(kind: Kind) -> bool:
    return kind.keyed


def _is_ordered(kind: Kind) -> bool:
    return kind.keyed and kind.option("merge-engine", "deduplicate") != "first-row"


CHECKS: Final[Mapping[str, Check]] = {
    check.name: check
    for check in (
        Check(
            "tree_is_valid",
            "Files of one level above 0 never overlap in key range, and each file's key and sequence ranges make sense.",
            "tree_validity",
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
            "Small files of each partition and bucket of an append table stay below the warning; every read has to open each of them.",
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
            "Neither a partition nor the table lies in many files that are small on average: each is opened by every read.",
            "layout_condition",
            warn=True,
        ),
        Check(
            "ro_is_fresh",
            "The read-optimized view does not lag behind what was written by more than is allowed.",
            "layout_condition",
            _is_keyed,
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
            "Snapshots follow each other without a gap, and what every snapshot and tag names is there: manifests, data files, indexes.",
            "snapshot_chain",
            reads_rows=True,
        ),
        Check(
            PAGES_CHECK,
            "The pages of data files decode and fit their checksums: a sample of files, or every file when asked for a deep read.",
            "stored_pages",
            reads_rows=True,
        ),
        Check(
            "deletion_vectors_valid",
            "Each deletion vector lies in its file's bucket, marks rows that the file has, and as many as the index manifest records.",
            "vector_validity",
            lambda kind: kind.vectors,
            reads_rows=True,
        ),
        Check(
            "unique_keys",
            "Readers see each key once, and in the bucket in which lookups search it.",
            "key_uniqueness",
            _is_keyed,
            reads_rows=True,
        ),
        Check(
            "equal_sequence_numbers",
            "No two versions of a key have the same sequence number, as those of two writers may: chance would decide between them.",
            "key_uniqueness",
            _is_ordered,
            warn=True,
            reads_rows=True,
        ),
        Check(
            "merge_engine_rules",
            "The table says what its merge engine makes of what was written, recomputed row by row for a sample of keys.",
            "merge_rules",
            _is_keyed,
            reads_rows=True,
        ),
        Check(
            "changelog_replays",
            "The changelog, applied to what the table said before, gives what it says now, for a sample of keys.",
            "changelog_replay",
            lambda kind: kind.replays,
            reads_rows=True,
        ),
    )
}
"""By name, in the order in which they are shown."""


def checks_of(primary_keys: Collection[str], options: Mapping[str, str]) -> tuple[Check, ...]:
    """The checks that a table of these keys and options has."""
    kind = Kind(bool(primary_keys), options)
    return tuple(check for check in CHECKS.values() if check.of is None or check.of(kind))


def check_table(
    store: TableStore, names: Sequence[str] | None = None, limits: CheckLimits | None = None
) -> list[CheckReport]:
    """Make the named checks over the newest snapshot, None: all that the table has; one report each, in the order of `CHECKS`.

    A check that meets a damaged file fails and names it. Raises InvalidOption for a name that the table has no check of.
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
    """Make one check over the newest snapshot. Damage that it meets is its failure, not an error."""
    made = CHECKS[check] if isinstance(check, str) else check
    try:
        snapshot = snapshots.latest(store)
        if snapshot is None:
            text = "nothing was committed yet"
            return CheckReport(made.name, store.name, None, passed=True, text=text)
        return made.make(Question(made.name, store, snapshot, limits or CheckLimits(), made.warn))
    except CorruptFile as error:
        return CheckReport(made.name, store.name, None, passed=False, text=str(error), problems=(error.path,))
    except DredgeError as error:
        text = f"not evaluated: {type(error).__name__}: {error}"
        return replace(CheckReport(made.name, store.name, None, passed=False, text=text), warn=True)


__all__ = ["CHECKS", "PAGES_CHECK", "Check", "check_table", "checks_of", "run_check"]

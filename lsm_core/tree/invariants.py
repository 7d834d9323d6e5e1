"""Invariants of a tree, checked in tests after each step and in production before and after maintenance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

from lsm_core.errors import CorruptFile
from lsm_core.tree.model import DataFile


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant.

    Attributes:
        message: description of the violation.
        files: names of the files that violate it.
    """

    message: str
    files: tuple[str, ...]


def find_violations(files: Iterable[DataFile]) -> tuple[Violation, ...]:
    """Return every violated invariant of one bucket's files.

    The rules: no file is listed twice, levels are not negative, key and sequence ranges are not reversed. Files of one
    level above 0 never share a key; level-0 files may overlap, because each is its own run.
    """
    files = tuple(files)
    violations: list[Violation] = []
    names: set[str] = set()
    for file in files:
        violations.extend(_file_violations(file))
        if file.name in names:
            violations.append(Violation(f"file {file.name} is listed twice", (file.name,)))
        names.add(file.name)
    upper = sorted((f for f in files if f.level > 0), key=lambda f: (f.level, f.min_key, f.max_key))
    for level, group in groupby(upper, key=lambda f: f.level):
        run = tuple(group)
        reach = run[0]
        for previous, file in pairwise(run):
            reach = previous if previous.max_key >= reach.max_key else reach
            if file.min_key <= reach.max_key:
                message = f"files {reach.name} and {file.name} of level {level} overlap in key range"
                violations.append(Violation(message, (reach.name, file.name)))
    return tuple(violations)


def _file_violations(file: DataFile) -> list[Violation]:
    violations = []
    if file.level < 0:
        violations.append(Violation(f"file {file.name} has level {file.level}", (file.name,)))
    if file.max_key < file.min_key:
        violations.append(Violation(f"file {file.name} has a largest key below its smallest", (file.name,)))
    if file.max_sequence < file.min_sequence:
        violations.append(
            Violation(
                f"file {file.name} has the reversed sequence range {file.min_sequence}..{file.max_sequence}",
                (file.name,),
            )
        )
    if file.row_count < 0 or (file.delete_row_count or 0) > max(file.row_count, 0) > 0:
        violations.append(
            Violation(
                f"file {file.name} counts {file.row_count} rows, {file.delete_row_count} of them deletes", (file.name,)
            )
        )
    return violations


def check_levels(files: Iterable[DataFile]) -> None:
    """Check the invariants of one bucket's files.

    Raises:
        CorruptFile: an invariant is violated; the path names the file or files.
    """
    for violation in find_violations(files):
        raise CorruptFile(" and ".join(violation.files), violation.message)

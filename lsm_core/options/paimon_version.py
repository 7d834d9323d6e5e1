"""The Paimon version that a table follows if versions give different answers (semantics.md lists the differences)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Final

KEY: Final = "dredge.paimon-version"
"""Option that sets the version; by default the writers of the table's snapshots decide."""
_FUNCTIONS: Final = frozenset({"listagg", "nested_update", "nested_partial_update"})
"""Aggregate functions with different answers since 2.0."""
_MERGING_ENGINES: Final = frozenset({"aggregation", "partial-update"})
_ORDER: Final = "dredge.compaction.order-sensitive"
_NUMBERS: Final = re.compile(r"(?:^|-)(\d{1,4})\.(\d{1,4})(?=\D|$)")


class PaimonVersion(StrEnum):
    """A Paimon version to follow; versions are compared by their numbers."""

    V1_4 = "1.4"
    V2_0 = "2.0"
    V2_1 = "2.1"

    @property
    def numbers(self) -> tuple[int, int]:
        """Its major and minor number."""
        major, minor = self.value.split(".")
        return int(major), int(minor)

    def at_least(self, other: PaimonVersion) -> bool:
        """Return whether it is ``other`` or newer."""
        return self.numbers >= other.numbers


def version_written_by(writer_version: str | None) -> PaimonVersion | None:
    """Return the version for a snapshot's `writerVersion` ("java-2.1-SNAPSHOT-0a1b...", "python-2.1.0-...").

    A version between two known ones is treated as the older; a version outside the known range as the nearest.

    Args:
        writer_version: the text, or None.

    Returns:
        The version, or None if the text names none.
    """
    match = _NUMBERS.search(writer_version or "")
    if match is None:
        return None
    numbers = int(match.group(1)), int(match.group(2))
    return max(
        (version for version in PaimonVersion if version.numbers <= numbers),
        key=lambda version: version.numbers,
        default=PaimonVersion.V1_4,
    )


def written_as(version: PaimonVersion) -> str | None:
    """Return the `writerVersion` for snapshots that Dredge writes with the answers of ``version``.

    The table keeps following that version because of it.

    Args:
        version: the version that the table follows.

    Returns:
        The text, or None for 1.4, whose snapshots lack this member.
    """
    return None if version is PaimonVersion.V1_4 else f"dredge-{version}"


def order_of_versions_broken(oldest_first: Iterable[PaimonVersion]) -> bool:
    """Return whether an older version wrote after a newer one, which an upgrade never causes."""
    numbers = [version.numbers for version in oldest_first]
    return any(second < first for first, second in pairwise(numbers))


def answers_differ(options: Mapping[str, str], versions: Collection[PaimonVersion]) -> str | None:
    """Return the first function or rule with different answers in several versions, for a table with keys.

    Args:
        options: the table's options as texts.
        versions: the versions to compare.

    Returns:
        The option and its value, or None if all versions give the same answers.
    """
    if len(set(versions)) < 2 or options.get("merge-engine", "").strip().lower() not in _MERGING_ENGINES:
        return None
    oldest = min(versions, key=lambda version: version.numbers)
    for key in sorted(options) if not oldest.at_least(PaimonVersion.V2_0) else ():
        function = options[key].strip()
        aggregated = key.startswith("fields.") and key.endswith("aggregate-function")
        if aggregated and function in _FUNCTIONS:
            return f"'{key}' = '{function}'"
    newest = max(versions, key=lambda version: version.numbers)
    if newest.at_least(PaimonVersion.V2_1) and options.get(_ORDER, "").strip().lower() == "as-paimon":
        return f"'{_ORDER}' = 'as-paimon'"
    return None


def version_followed(writer_versions: Iterable[str | None]) -> PaimonVersion:
    """Return the version that a table without the option follows: the newest writer of its snapshots, otherwise 1.4.

    Args:
        writer_versions: `writerVersion` of each snapshot; None is a writer of unknown version.

    Returns:
        The version.
    """
    known = [version for text in writer_versions if (version := version_written_by(text)) is not None]
    return max(known, key=lambda version: version.numbers, default=PaimonVersion.V1_4)

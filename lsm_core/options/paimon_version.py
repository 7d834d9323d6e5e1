"""Which version of Paimon a table's answers follow, where versions of Paimon answer differently (semantics.md lists where)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Final

KEY: Final = "dredge.paimon-version"
"""The option that names it; without it the writers of the table's snapshots do."""
_FUNCTIONS: Final = frozenset({"listagg", "nested_update", "nested_partial_update"})
"""Aggregate functions whose answers changed with 2.0."""
_MERGING_ENGINES: Final = frozenset({"aggregation", "partial-update"})
_ORDER: Final = "dredge.compaction.order-sensitive"
_NUMBERS: Final = re.compile(r"(?:^|-)(\d{1,4})\.(\d{1,4})(?=\D|$)")


class PaimonVersion(StrEnum):
    """A version whose answers are followed; they compare as numbers do."""

    V1_4 = "1.4"
    V2_0 = "2.0"
    V2_1 = "2.1"

    @property
    def numbers(self) -> tuple[int, int]:
        """Its major and minor number."""
        major, minor = self.value.split(".")
        return int(major), int(minor)

    def at_least(self, other: PaimonVersion) -> bool:
        """Whether it is ``other`` or newer."""
        return self.numbers >= other.numbers


def version_written_by(writer_version: str | None) -> PaimonVersion | None:
    """The version that the `writerVersion` of a snapshot stands for ("java-2.1-SNAPSHOT-0a1b...", "python-2.1.0-..."); None: for none.

    Of versions between two that are known the older is followed, of newer ones than all the newest, of older ones the oldest.
    """
    found = _NUMBERS.search(writer_version or "")
    if found is None:
        return None
    numbers = int(found.group(1)), int(found.group(2))
    return max(
        (one for one in PaimonVersion if one.numbers <= numbers),
        key=lambda one: one.numbers,
        default=PaimonVersion.V1_4,
    )


def written_as(version: PaimonVersion) -> str | None:
    """The `writerVersion` of a snapshot that Dredge writes with the answers of ``version``, so that the table goes on following it.

    None for 1.4, which has no such member.
    """
    return None if version is PaimonVersion.V1_4 else f"dredge-{version}"


def order_of_versions_broken(oldest_first: Iterable[PaimonVersion]) -> bool:
    """Say whether an older version wrote after a newer one: an upgrade alone never does that."""
    numbers = [version.numbers for version in oldest_first]
    return any(later < earlier for earlier, later in pairwise(numbers))


def answers_differ(options: Mapping[str, str], versions: Collection[PaimonVersion]) -> str | None:
    """Name what a merge of a table with keys answers differently in ``versions``.

    Args:
        options: The table's options as texts.
        versions: The versions to compare.

    Returns:
        The first such function or rule with its option, None where all of the versions give the same answers.
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
    """The version that a table follows whose option is not set: the newest that wrote one of its snapshots, else 1.4.

    None: a writer that names no version.
    """
    known = [version for text in writer_versions if (version := version_written_by(text)) is not None]
    return max(known, key=lambda one: one.numbers, default=PaimonVersion.V1_4)

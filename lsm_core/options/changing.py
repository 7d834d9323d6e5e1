"""Rules for changing options of a table with data, whose files were written with the old values.

Source: Java `checkAlterTableOption`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lsm_core.errors import InvalidOption
from lsm_core.options.paimon_version import PaimonVersion
from lsm_core.options.registry import REGISTRY, canonical, parse_value

# Fixed from the table's creation, even without snapshots: they are members of the schema, or belong to the catalog.
CREATION_ONLY: Final = ("primary-key", "partition", "path")
# These can only be switched on: retracts that writers dropped are missing for later readers.
_ONLY_ON: Final = ("ignore-delete", "ignore-update-before")


def check_change(
    options: Mapping[str, str],
    key: str,
    value: str | None,
    table: str,
    dynamic: bool = False,
    version: PaimonVersion = PaimonVersion.V2_1,
) -> None:
    """Check that an option may get a new value in a table with snapshots.

    A change without effect is accepted, and so is the replacement of an invalid value.

    Args:
        options: the options before the change.
        key: the option.
        value: its new value, or None for its default.
        table: the table's name, for messages.
        dynamic: whether the change applies to one reader or writer only, not to the schema.
        version: the Paimon version that the table follows.

    Raises:
        InvalidOption: the change is not allowed.
    """
    (name,) = canonical({key: ""})
    definition = REGISTRY.get(name)
    if definition is None or definition.name.startswith("dredge."):
        return
    current = canonical(options)
    after = _parse_option({} if value is None else {name: value}, name, table)
    try:
        before = _parse_option(current, name)
    except InvalidOption:
        return
    if before == after:
        return
    if name in _ONLY_ON and value is None and not version.at_least(PaimonVersion.V2_1):
        return  # until 2.1 the option cannot become false, but it can be removed
    refusal = _refusal(current, name, before, after, dynamic)
    if refusal:
        raise InvalidOption(name, value, refusal, table)


def _parse_option(options: Mapping[str, str], name: str, table: str = "") -> Any:
    text = options.get(name, REGISTRY[name].default)
    try:
        return None if text is None else parse_value(REGISTRY[name], text)
    except InvalidOption as error:
        raise InvalidOption(error.key, error.value, error.accepted, table) from error


def _refusal(options: Mapping[str, str], name: str, before: Any, after: Any, dynamic: bool) -> str:
    if REGISTRY[name].immutable or name in CREATION_ONLY:
        return (
            "no change: it is fixed when the table is created"
            if dynamic
            else "no change: the table has snapshots that depend on it"
        )
    if name == "bucket":
        if dynamic:
            return "no change for one reader or writer: alter the table, then overwrite its partitions"
        if before < 1 or after < 1:
            return f"another number above 0 in a table of fixed buckets; this one has {before}"
    if name == "deletion-vectors.enabled" and not _parse_option(options, "deletion-vectors.modifiable"):
        return "no change, unless 'deletion-vectors.modifiable' is 'true' (the same ALTER may set it)"
    if name in _ONLY_ON and before:
        return "no change back from true: retracts were dropped already"
    if name == "clustering.columns" and "pk-clustering-override" in options:
        return "no change while 'pk-clustering-override' is set"
    return ""

"""Which options may change once a table holds data, and how: its files were laid out by the others (Java `checkAlterTableOption`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lsm_core.errors import InvalidOption
from lsm_core.options.paimon_version import PaimonVersion
from lsm_core.options.registry import REGISTRY, canonical, parse_value

# Fixed from the table's creation on, with or without snapshots: the schema holds them as members, or the catalog does.
CREATION_ONLY: Final = ("primary-key", "partition", "path")
# Once retracts were dropped on the way in, a reader that waits for them would be wrong.
_ONLY_ON: Final = ("ignore-delete", "ignore-update-before")


def check_change(
    options: Mapping[str, str],
    key: str,
    value: str | None,
    table: str,
    dynamic: bool = False,
    version: PaimonVersion = PaimonVersion.V2_1,
) -> None:
    """Raise InvalidOption unless ``key`` may become ``value`` (None: its default) in a table with snapshots.

    ``options``: before the change; ``dynamic``: for one reader or writer only, not in the schema; ``version``: the one that the
    table follows. What changes nothing passes, and so does what replaces a value that nobody could use.
    """
    (name,) = canonical({key: ""})
    known = REGISTRY.get(name)
    if known is None or known.name.startswith("dredge."):
        return
    own = canonical(options)
    after = _typed({} if value is None else {name: value}, name, table)
    try:
        before = _typed(own, name)
    except InvalidOption:
        return
    if before == after:
        return
    if name in _ONLY_ON and value is None and not version.at_least(PaimonVersion.V2_1):
        return  # until 2.1 the option cannot become false, but it can be removed
    why = _refusal(own, name, before, after, dynamic)
    if why:
        raise InvalidOption(name, value, why, table)


def _typed(options: Mapping[str, str], name: str, table: str = "") -> Any:
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
    if name == "deletion-vectors.enabled" and not _typed(options, "deletion-vectors.modifiable"):
        return "no change, unless 'deletion-vectors.modifiable' is 'true' (the same ALTER may set it)"
    if name in _ONLY_ON and before:
        return "no change back from true: retracts were dropped already"
    if name == "clustering.columns" and "pk-clustering-override" in options:
        return "no change while 'pk-clustering-override' is set"
    return ""

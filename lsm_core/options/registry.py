"""The list of all known options and how the text of each is checked, so that a typo is caught before any work starts."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from lsm_core.errors import InvalidOption
from lsm_core.options import dredge_keys, keys_a_to_g, keys_h_to_z
from lsm_core.options.key import BOOL, DOUBLE, DURATION, ENUM, INT, LONG, MAP, MEMORY, Key
from lsm_core.options.units import duration, memory_size

_LOG = logging.getLogger(__name__)
_INT_RANGE = {INT: (-(2**31), 2**31 - 1), LONG: (-(2**63), 2**63 - 1)}

REGISTRY: dict[str, Key] = {key.name: key for module in (keys_a_to_g, keys_h_to_z, dredge_keys) for key in module.KEYS}
ALIASES: dict[str, str] = {alias: key.name for key in REGISTRY.values() for alias in key.aliases}

# Only the enums that Dredge reads are listed: other engines may know more values of the rest, and those are theirs to check.
ENUMS: dict[str, tuple[str, ...]] = {
    "bucket-function.type": ("default", "mod", "hive"),
    "changelog-producer": ("none", "input", "full-compaction", "lookup"),
    "consumer.mode": ("exactly-once", "at-least-once"),
    "data-file.external-paths.strategy": ("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"),
    "dredge.compaction.order-sensitive": ("closed", "as-paimon"),
    "dredge.delete-mode": ("two-phase", "direct"),
    "lookup-compact": ("radical", "gentle"),
    "merge-engine": ("deduplicate", "partial-update", "aggregation", "first-row"),
    "sequence.field.sort-order": ("ascending", "descending"),
    "snapshot.expire.execution-mode": ("sync", "async"),
    "sort-engine": ("min-heap", "loser-tree"),
    "tag.automatic-creation": ("none", "process-time", "watermark", "batch"),
    "write.sequence-number-init-mode": ("scan", "snapshot"),
}

# Lowest and highest value that makes sense; Java often fails only later, in the middle of a job.
RANGES: dict[str, tuple[float, float]] = {
    "commit.max-retries": (0, 2**31 - 1),
    "compaction.max-size-amplification-percent": (0, 2**31 - 1),
    "compaction.min.file-num": (1, 2**31 - 1),
    "compaction.offpeak-ratio": (0, 100),
    "compaction.offpeak.end.hour": (-1, 23),
    "compaction.offpeak.start.hour": (-1, 23),
    "compaction.size-ratio": (0, 2**31 - 1),
    "compaction.small-file-ratio": (0, 1),
    "file.compression.zstd-level": (-7, 22),
    "manifest.merge-min-count": (1, 2**31 - 1),
    "num-levels": (2, 1000),
    "num-sorted-run.compaction-trigger": (1, 2**31 - 1),
    "num-sorted-run.stop-trigger": (1, 2**31 - 1),
    "snapshot.expire.limit": (1, 2**31 - 1),
    "snapshot.num-retained.max": (1, 2**31 - 1),
    "snapshot.num-retained.min": (1, 2**31 - 1),
    "sort-spill-threshold": (2, 2**31 - 1),
}

# Sizes that must hold at least one byte, or the work that they bound could never go on.
POSITIVE_SIZES = frozenset(
    {
        "dredge.merge-budget",
        "manifest.target-file-size",
        "target-file-size",
        "write-buffer-size",
        "source.split.target-size",
    }
)

# Sizes that Java keeps in an int, as a buffer of at least one byte.
BUFFER_SIZES = frozenset({"blob.copy-buffer-size"})

# Keys with a free part in them; parquet.*, orc.* and avro.* pass through to the formats.
_FREE = re.compile(
    r"fields\..+\.(aggregate-function|ignore-retract|distinct|list-agg-delimiter|nested-key|count-limit|stats-mode|"
    r"sequence-group|nested-key-null-strategy|nested-sequence-field|ts-field|map\.storage-layout|default-value)"
    r"|file-index\..+|commit\.callback\..+\.param|tag\.callback\..+\.param|(parquet|orc|avro|metadata\.iceberg)\..+"
)
_FREE_BOOLS = re.compile(r"fields\..+\.(ignore-retract|distinct)")
_STATS_MODE = re.compile(r"none|counts|full|truncate\(\s*[1-9][0-9]*\s*\)", re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}
_warned: set[tuple[str, str]] = set()


def parse_value(key: Key, value: str) -> Any:
    """Return the typed value of ``key`` (ms for durations, bytes for sizes). Raises InvalidOption."""
    text = str(value).strip()
    if key.kind == BOOL:
        return parse_boolean(key.name, text)
    if key.kind == MEMORY:
        return _parse_size(key.name, text)
    if key.kind == DURATION:
        return duration(text, key.name)
    if key.kind in _INT_RANGE:
        return _parse_int(key, text)
    if key.kind == DOUBLE:
        return _parse_double(key.name, text)
    if key.kind == MAP:
        return _parse_map(key.name, text)
    if key.kind == ENUM:
        return _parse_enum(key.name, text)
    if "stats-mode" in key.name and not _STATS_MODE.fullmatch(text):
        raise InvalidOption(key.name, value, "none, counts, full or truncate(n)")
    return str(value)


def parse_boolean(name: str, text: str) -> bool:
    """Return the boolean in ``text`` (any case). Raises InvalidOption."""
    found = _BOOLEANS.get(text.strip().lower())
    if found is None:
        raise InvalidOption(name, text, "true or false")
    return found


def _parse_size(name: str, text: str) -> int:
    size = memory_size(text, name)
    if size < 1 and name in POSITIVE_SIZES:
        raise InvalidOption(name, text, "a size of at least 1 byte")
    if name in BUFFER_SIZES and not 1 <= size < 2**31:
        raise InvalidOption(name, text, "a size of at least 1 byte and below 2 gb")
    return size


def _parse_int(key: Key, text: str) -> int:
    low, high = _INT_RANGE[key.kind]
    low, high = RANGES.get(key.name, (low, high))  # type: ignore[assignment]
    accepted = f"a whole number from {low} to {high}"
    if key.name == "bucket":
        accepted = "a whole number above 0, or -1 (dynamic, unaware), or -2 (postpone)"
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
        raise InvalidOption(key.name, text, accepted)
    if key.name == "bucket" and (int(text) == 0 or int(text) < -2):
        raise InvalidOption(key.name, text, accepted)
    return int(text)


def _parse_double(name: str, text: str) -> float:
    low, high = RANGES.get(name, (float("-inf"), float("inf")))
    try:
        number = float(text)
    except ValueError as error:
        raise InvalidOption(name, text, "a number") from error
    if not low <= number <= high:
        raise InvalidOption(name, text, f"a number from {low} to {high}")
    return number


def _parse_enum(name: str, text: str) -> str:
    known = ENUMS.get(name)
    if known is not None and text.lower() not in known:
        raise InvalidOption(name, text, ", ".join(known))
    return text.lower() if known is not None else text


def _parse_map(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, colon, value = part.partition(":")
        if not colon or not key.strip() or not value.strip():
            raise InvalidOption(name, text, "pairs such as '0:avro,3:parquet'")
        pairs[key.strip()] = value.strip()
    return pairs


def canonical(options: Mapping[str, str]) -> dict[str, str]:
    """Return ``options`` by their main names: an alias counts only where the main name is not set."""
    result = {key: value for key, value in options.items() if key not in ALIASES}
    for key, value in options.items():
        if key in ALIASES:
            result.setdefault(ALIASES[key], value)
    return result


def check(options: Mapping[str, str], table: str) -> dict[str, Any]:
    """Return typed values of the known keys in ``options``.

    Raises InvalidOption for a bad value and for an unknown ``dredge.*`` key; any other unknown key may belong to another
    engine: it is kept, and warned about once per table.
    """
    typed: dict[str, Any] = {}
    for name, value in canonical(options).items():
        key = REGISTRY.get(name)
        try:
            if key is not None:
                typed[name] = parse_value(key, value)
            elif _FREE_BOOLS.fullmatch(name):
                typed[name] = parse_boolean(name, str(value))
            elif name.startswith("dredge."):
                accepted = ", ".join(sorted(k for k in REGISTRY if k.startswith("dredge.")))
                raise InvalidOption(name, value, f"no such key; Dredge's own keys are {accepted}")
            elif table and not _FREE.fullmatch(name) and (table, name) not in _warned:
                _warned.add((table, name))
                _LOG.warning("table %s: unknown option '%s' is kept but has no effect here", table, name)
        except InvalidOption as error:
            if error.table:
                raise
            raise InvalidOption(error.key, error.value, error.accepted, table) from error
    return typed

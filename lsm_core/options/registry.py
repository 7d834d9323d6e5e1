"""Registry of all known options, and validation of their values, so that a typo is reported before any work starts."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from lsm_core.errors import InvalidOption
from lsm_core.options.keys import (
    ADDRESSES,
    BOOL,
    BUFFER_SIZES,
    DOUBLE,
    DREDGE_KEYS,
    DURATION,
    ENUM,
    ENUMS,
    INT,
    LONG,
    MAP,
    MEMORY,
    PAIMON_KEYS,
    POSITIVE_SIZES,
    READING,
    Effect,
    Key,
    family_key,
    number_range,
)
from lsm_core.options.misnamed import advice_on
from lsm_core.options.units import duration, memory_size, parse_digits

_LOG = logging.getLogger(__name__)
_INT_RANGE = {INT: (-(2**31), 2**31 - 1), LONG: (-(2**63), 2**63 - 1)}

REGISTRY: dict[str, Key] = {key.name: key for key in (*PAIMON_KEYS, *DREDGE_KEYS)}
ALIASES: dict[str, str] = {alias: key.name for key in REGISTRY.values() for alias in key.aliases}

_STATS_MODE = re.compile(r"none|counts|full|truncate\(\s*[1-9][0-9]{0,8}\s*\)", re.IGNORECASE)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_LEVEL = re.compile(r"[0-9]{1,9}")
_SECRET = re.compile(r"password|secret|token|//[^/?]*:[^/?]*@", re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}
# Paimon documents a number, but its Parquet writer reads a boolean: every number leaves dictionaries on.
_SWITCHES = frozenset({"parquet.enable.dictionary"})
_warned: set[tuple[str, str]] = set()
_Value = TypeVar("_Value")


def parse_value(key: Key, value: str) -> Any:
    """Return the typed value of an option (ms for durations, bytes for sizes).

    Raises:
        InvalidOption: the value is invalid.
    """
    text = str(value).strip()
    if key.kind == BOOL or (key.name in _SWITCHES and text.lower() in _BOOLEANS):
        return parse_boolean(key.name, text)
    if key.kind == MEMORY:
        size = memory_size(text, key.name)
        if size < 1 and key.name in POSITIVE_SIZES:
            raise InvalidOption(key.name, text, "a size of at least 1 byte")
        if key.name in BUFFER_SIZES and not 1 <= size < 2**31:
            raise InvalidOption(key.name, text, "a size of at least 1 byte and below 2 gb")
        return size
    if key.kind == DURATION:
        return duration(text, key.name)
    if key.kind in _INT_RANGE:
        return _parse_int(key, text)
    if key.kind == DOUBLE:
        return _parse_double(key.name, text)
    if key.kind == MAP:
        return _parse_map(key.name, text)
    if key.kind == ENUM:
        known = ENUMS.get(key.name)
        if known is not None and text.lower() not in known:
            raise InvalidOption(key.name, text, ", ".join(known))
        return text.lower() if known is not None else text
    if key.name.endswith("stats-mode"):
        _check_stats_mode(key.name, text)
    if key.name in ADDRESSES and _SECRET.search(text):
        raise InvalidOption(key.name, "***", "an address without a password, which comes from the environment only")
    return str(value)


def parse_boolean(name: str, text: str) -> bool:
    """Return the boolean in ``text`` (in any case).

    Raises:
        InvalidOption: the text is not a boolean.
    """
    boolean = _BOOLEANS.get(text.strip().lower())
    if boolean is None:
        raise InvalidOption(name, text, "true or false")
    return boolean


def _parse_int(key: Key, text: str) -> int:
    low, high = number_range(key.name, *_INT_RANGE[key.kind])
    accepted = f"a whole number from {low} to {high}"
    if key.name == "bucket":
        accepted = "a whole number above 0 (at most 2147483647), or -1 (dynamic, unaware), or -2 (postpone)"
    number = parse_digits(text)
    if number is None or not low <= number <= high or (key.name == "bucket" and (number == 0 or number < -2)):
        raise InvalidOption(key.name, text, accepted)
    return number


def _parse_double(name: str, text: str) -> float:
    low, high = number_range(name, float("-inf"), float("inf"))
    if not _DECIMAL.fullmatch(text):
        raise InvalidOption(name, text, "a number")
    number = float(text)
    if not low <= number <= high:
        raise InvalidOption(name, text, f"a number from {low} to {high}")
    return number


def _check_stats_mode(name: str, mode: str, text: str = "") -> None:
    if not _STATS_MODE.fullmatch(mode):
        raise InvalidOption(name, text or mode, "none, counts, full or truncate(n)")


def _parse_map(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, colon, value = part.partition(":")
        if not colon or not key.strip() or not value.strip():
            raise InvalidOption(name, text, "pairs like '0:avro,3:parquet'")
        if name.endswith(".per.level") and not _LEVEL.fullmatch(key.strip()):
            raise InvalidOption(name, text, "pairs like '0:avro,3:parquet', each with a level from 0 on")
        if name == "metadata.stats-mode.per.level":
            _check_stats_mode(name, value.strip(), text)
        pairs[key.strip()] = value.strip()
    return pairs


def canonical(options: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return ``options`` by their main names; an alias is used only if the main name is not set."""
    result = {key: value for key, value in options.items() if key not in ALIASES}
    for key, value in options.items():
        if key in ALIASES:
            result.setdefault(ALIASES[key], value)
    return result


def find_key(name: str) -> Key | None:
    """Return the definition of an option, including families of names with a free part; None if it is unknown."""
    return REGISTRY.get(name) or family_key(name)


def mistyped_reading(options: Mapping[str, str | None], others: Collection[str] = ()) -> dict[str, InvalidOption]:
    """Return an error for each option with a prefix of reading options that does not exist.

    Args:
        options: options as text; None removes one.
        others: further names that are accepted.

    Returns:
        The error to raise, by option.
    """
    errors = {}
    for name, value in options.items():
        if (
            not name.strip().lower().startswith(READING)
            or find_key(name) is not None
            or name in ALIASES
            or name in others
            or name == "scan.remove-normalize"  # accepted, because only Flink uses it; see `misnamed`
        ):
            continue
        from difflib import get_close_matches

        known = sorted(key for key in REGISTRY if key.startswith(READING))
        matches = get_close_matches(name.strip().lower(), known, 1, 0.8)
        suggestion = f"{matches[0]}, maybe; " if matches else ""
        errors[name] = InvalidOption(name, value, f"{suggestion}reading options are {', '.join(known)}")
    return errors


def not_acted_on(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that Dredge accepts but does not use, by their main names, sorted.

    Options with their default value are left out. Unknown options are left out too; `check` warns about them.
    """
    unused: dict[str, str] = {}
    for name, value in sorted(canonical(options).items()):
        key = find_key(name)
        if key is None or key.effect is not Effect.NOT_ACTED_ON:
            continue
        with suppress(InvalidOption):
            if key.default is not None and parse_value(key, value) == parse_value(key, key.default):
                continue
        unused[name] = value
    return unused


def _warn_once(table: str, name: str, text: str) -> None:
    """Log a warning about an option, with its right name if it has another one; once per table and process."""
    if not table or (table, name) in _warned:
        return
    _warned.add((table, name))
    advice = advice_on(name)
    _LOG.warning(f"table %s: {text}%s", table, name, f": {advice}" if advice else "")


def check(options: Mapping[str, str], table: str, refused: dict[str, InvalidOption] | None = None) -> dict[str, Any]:
    """Return typed values of the known keys in ``options``.

    Unknown keys may belong to another engine. They are kept, with one warning per table, which names the right spelling
    if it is known.

    Args:
        options: the options as text.
        table: the table's name, for messages.
        refused: dictionary for errors of keys that are read by name when they are needed (`TableOptions.get`,
            `TableOptions.text`), or None to raise them.

    Returns:
        The values by key.

    Raises:
        InvalidOption: a value is invalid, or a ``dredge.*`` key is unknown.
    """
    values: dict[str, Any] = {}
    for name, value in canonical(options).items():
        key = find_key(name)
        try:
            if key is not None:
                values[name] = parse_value(key, value)
            elif name.startswith("dredge."):
                accepted = ", ".join(sorted(k for k in REGISTRY if k.startswith("dredge.")))
                raise InvalidOption(name, value, f"no such key; Dredge's own keys are {accepted}")
            else:
                _warn_once(table, name, "unknown option '%s' is kept but has no effect here")
            if key is not None and advice_on(name):
                _warn_once(table, name, "option '%s'")
        except InvalidOption as error:
            table_error = error if error.table else InvalidOption(error.key, error.value, error.accepted, table)
            if refused is None or not (name in REGISTRY or name.startswith("file-index.")):
                raise table_error from error
            refused[name] = table_error
    return values

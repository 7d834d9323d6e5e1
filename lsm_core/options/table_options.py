"""Table options: the registry of all known options, their validation, and one table's options as typed attributes.

Each option is validated once, with the defaults of Paimon's CoreOptions, so that a typo is reported before any work
starts. Sizes and durations have Paimon's text form. An option is fixed when files were written with its old value. If
Paimon versions return different rows, a table follows one version (semantics.md lists the differences).

Source: ``CoreOptions``, ``MemorySize``, ``TimeUtils``, ``SchemaManager.checkAlterTableOption``.
"""

from __future__ import annotations

import logging
import operator
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, TypeVar

from lsm_core.clock import written_span
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
    OTHER_ENGINES,
    PAIMON_KEYS,
    POSITIVE_SIZES,
    READING,
    Effect,
    Key,
    family_key,
    number_range,
)
from lsm_core.options.misnamed import advice_on

PAIMON_VERSION: Final = "dredge.paimon-version"
"""Option that sets the Paimon version to follow; by default the writers of the table's snapshots decide."""
_FUNCTIONS: Final = frozenset({"listagg", "nested_update", "nested_partial_update"})
"""Aggregate functions whose results changed in Paimon 2.0."""
_MERGING_ENGINES: Final = frozenset({"aggregation", "partial-update"})
_ORDER: Final = "dredge.compaction.order-sensitive"
_NUMBERS: Final = re.compile(r"(?:^|-)(\d{1,4})\.(\d{1,4})(?=\D|$)")


class PaimonVersion(StrEnum):
    """Paimon version whose behaviour a table follows where versions differ; versions are compared by their numbers."""

    V1_4 = "1.4"
    V2_0 = "2.0"
    V2_1 = "2.1"

    @property
    def numbers(self) -> tuple[int, int]:
        """Major and minor number of the version."""
        major, minor = self.value.split(".")
        return int(major), int(minor)

    def at_least(self, other: PaimonVersion) -> bool:
        """Return whether this version is ``other`` or newer."""
        return self.numbers >= other.numbers


def version_written_by(writer_version: str | None) -> PaimonVersion | None:
    """Return the version for a snapshot's `writerVersion` ("java-2.1-SNAPSHOT-0a1b...", "python-2.1.0-...").

    A version between two known versions is treated as the older of the two. A version outside the known range is
    treated as the nearest known version.

    Args:
        writer_version: the text, or None.

    Returns:
        The version, or None if the text names no version.
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
    """Return the `writerVersion` for snapshots that Dredge writes to a table that follows ``version``.

    Because of this `writerVersion`, the table keeps following ``version``.

    Args:
        version: the version that the table follows.

    Returns:
        The text, or None for 1.4, whose snapshots lack `writerVersion`.
    """
    return None if version is PaimonVersion.V1_4 else f"dredge-{version}"


def order_of_versions_broken(oldest_first: Iterable[PaimonVersion]) -> bool:
    """Return whether an older version wrote after a newer version, which an upgrade never causes."""
    numbers = [version.numbers for version in oldest_first]
    return any(second < first for first, second in pairwise(numbers))


def answers_differ(options: Mapping[str, str], versions: Collection[PaimonVersion]) -> str | None:
    """Return the first option of a primary-key table that gives different results in ``versions``.

    Args:
        options: options of a table with a primary key, as texts.
        versions: the versions to compare.

    Returns:
        The option and its value as text, or None if all versions give the same results.
    """
    if len(set(versions)) < 2 or options.get("merge-engine", "").strip().lower() not in _MERGING_ENGINES:
        return None
    oldest = min(versions, key=lambda version: version.numbers)
    for key in sorted(options) if not oldest.at_least(PaimonVersion.V2_0) else ():
        function = options[key].strip()
        aggregated = key.startswith("fields.") and key.endswith("aggregate-function")
        if aggregated and function in _FUNCTIONS:
            return f"'{key}' = '{function}'"
    if options.get(_ORDER, "").strip().lower() == "as-paimon":
        return f"'{_ORDER}' = 'as-paimon'"
    return None


def version_followed(writer_versions: Iterable[str | None]) -> PaimonVersion:
    """Return the version that a table without `dredge.paimon-version` follows.

    This is the version of the newest writer of the table's snapshots, or 1.4 if no writer's version is known.

    Args:
        writer_versions: `writerVersion` of each snapshot; None is a writer of unknown version.

    Returns:
        The version.
    """
    known = [version for text in writer_versions if (version := version_written_by(text)) is not None]
    return max(known, key=lambda version: version.numbers, default=PaimonVersion.V1_4)


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
        value: new value of the option, or None for its default.
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


_LONG_MAX = 2**63 - 1
_TEXT = re.compile(r"([0-9]+)\s*(.*)", re.DOTALL)
_MAX_DIGITS = 40

_BYTES: dict[str, int] = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_MS, _S = 1_000_000, 1_000_000_000  # in nanoseconds
_NANOS: dict[str, int] = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("µs", "μs", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), _MS),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _S),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * _S),
    **dict.fromkeys(("h", "hour", "hours"), 3600 * _S),
    **dict.fromkeys(("d", "day", "days"), 86_400 * _S),
}
_DAY_MS = 86_400_000
SIZE_FORM = "a size like '128 mb' (units b, kb, mb, gb, tb; a bare number is bytes)"
DURATION_FORM = "a duration like '1 h' or '10 seconds' (units ns, µs, ms, s, min, h, d; a bare number is ms)"


def memory_size(value: str | int, key: str = "memory size") -> int:
    """Return a size in bytes.

    Raises:
        InvalidOption: the value is not a size; the message names ``key`` and the value.

    Source: ``MemorySize.parseBytes``.
    """
    return _parse(value, key, _BYTES, 1, SIZE_FORM)


def duration(value: str | int, key: str = "duration") -> int:
    """Return a duration in milliseconds, rounded down.

    Raises:
        InvalidOption: the value is not a duration; the message names ``key`` and the value.

    Source: ``TimeUtils.parseDuration``.
    """
    return _parse(value, key, _NANOS, _MS, DURATION_FORM)


def whole_number(value: Any, key: str, table: str = "", least: int | None = None, most: int | None = None) -> int:
    """Return an argument as an int; NumPy integers are accepted.

    Args:
        value: the argument.
        key: name of the argument, for messages.
        table: the table's name, for messages.
        least: smallest accepted number, or None.
        most: largest accepted number, or None.

    Returns:
        The number.

    Raises:
        InvalidOption: the value is not an integer in that range; the message names ``key`` and the value.
    """
    if isinstance(value, bool):
        raise InvalidOption(key, value, "a whole number", table)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InvalidOption(key, value, "a whole number", table) from error
    if least is not None and number < least:
        raise InvalidOption(key, value, f"at least {least}", table)
    if most is not None and number > most:
        raise InvalidOption(key, value, f"at most {most:,}", table)
    return number


def parse_digits(text: str) -> int | None:
    """Return the integer that ``text`` contains in ASCII digits, with or without a sign.

    Returns:
        The number; None for any other text and for more than 40 digits, which no option accepts and Python may refuse
        to convert.
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    significant = digits.lstrip("0") or "0"
    if not (digits.isascii() and digits.isdigit()) or len(significant) > _MAX_DIGITS:
        return None
    return -int(significant) if text.startswith("-") else int(significant)


def _parse(value: str | int, key: str, units: dict[str, int], divisor: int, form: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidOption(key, value, form)
    if isinstance(value, int):
        if not 0 <= value <= _LONG_MAX:
            raise InvalidOption(key, value, form)
        return value
    match = _TEXT.fullmatch(value.strip())
    unit = units.get(match.group(2).strip().lower()) if match else None
    if match is None or unit is None:
        raise InvalidOption(key, value, form)
    digits = parse_digits(match.group(1))
    result = _LONG_MAX + 1 if digits is None else digits * unit // divisor
    if result > _LONG_MAX:
        most = f"{_LONG_MAX // _DAY_MS} d" if units is _NANOS else f"{_LONG_MAX}"
        raise InvalidOption(key, value, f"{form}, at most {most}")
    return result


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
    """Return the definition of an option, also if its name belongs to a family; None if the name is unknown."""
    return REGISTRY.get(name) or family_key(name)


def mistyped_reading(options: Mapping[str, str | None], others: Collection[str] = ()) -> dict[str, InvalidOption]:
    """Return an error for each unknown option that begins like an option of reads (`scan.`, `incremental-`).

    Args:
        options: options as text; a value of None removes its option.
        others: further names that are accepted.

    Returns:
        The error to raise, by option; it suggests the most similar known option.
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
        if key is None or key.effect not in (Effect.NOT_ACTED_ON, Effect.OTHER_KIND):
            continue
        with suppress(InvalidOption):
            if key.default is not None and parse_value(key, value) == parse_value(key, key.default):
                continue
        unused[name] = value
    return unused


def _warn_once(table: str, name: str, text: str) -> None:
    """Log a warning about an option, with its right name if it is misspelt; once per table and process.

    Args:
        table: the table's name; without it, nothing is logged.
        name: the option.
        text: the warning, a format of the logging module with one ``%s`` for the option.
    """
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
        refused: dictionary that receives the error of each known or `file-index.*` key with an invalid value, so that
            it can be raised when the option is used; None to raise these errors now.

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
            elif name not in OTHER_ENGINES or advice_on(name):
                _warn_once(table, name, "unknown option '%s' is kept but has no effect here")
            if key is not None and advice_on(name):
                _warn_once(table, name, "option '%s'")
        except InvalidOption as error:
            table_error = error if error.table else InvalidOption(error.key, error.value, error.accepted, table)
            if refused is None or not (name in REGISTRY or name.startswith("file-index.")):
                raise table_error from error
            refused[name] = table_error
    return values


INLINE_VARIABLE: Final = "DREDGE_COMPACTION_INLINE"
"""Environment variable with the default of `dredge.compaction.inline` in one process."""
_INT_MAX = 2**31 - 1
_DEFAULTS: dict[str, Any] = {
    name: None if key.default is None else parse_value(key, key.default) for name, key in REGISTRY.items()
}
_MB = 1 << 20
_MINUTE = 60_000
_PERIODS = {"daily": 1440 * _MINUTE, "hourly": 60 * _MINUTE, "two-hours": 120 * _MINUTE}


def inline_default() -> str:
    """Return the default of `dredge.compaction.inline` in this process: "follow", or "never" by the environment.

    Raises:
        InvalidOption: the environment variable has a value other than "follow" and "never".
    """
    value = os.environ.get(INLINE_VARIABLE, "")
    if value.lower() not in {"", "follow", "never"}:
        raise InvalidOption(INLINE_VARIABLE, value, "follow, never (an environment variable)")
    return value.lower() or "follow"


class TableOptions:
    """Typed, immutable view of a table's options; sizes in bytes, times in ms.

    Every known key is validated at construction. In a stored table, which another engine may have written, an invalid
    value is refused only when it is needed, as in Java.

    Args:
        options: the options as text.
        table: the table's name, for messages.
        stored: whether the options come from a stored schema.

    Raises:
        InvalidOption: a value is invalid; the message names key, value and accepted values.

    Source: ``CoreOptions``.
    """

    def __init__(self, options: Mapping[str, str], table: str = "", stored: bool = False) -> None:
        self._table, self._stored = table, stored
        self._dynamic_keys: frozenset[str] = frozenset()
        self._raw = {str(k): str(v) for k, v in options.items()}
        self._refused: dict[str, InvalidOption] = {}
        self._values = check(self._raw, table, self._refused if stored else None)
        for error in self._contradictions():
            if not stored:
                raise error
            self._refused.setdefault(error.key, error)

    @classmethod
    def usable(cls, options: Mapping[str, str], table: str = "") -> TableOptions:
        """Return options without those that have invalid values, for listing or repairing a table.

        Args:
            options: the options as text.
            table: the table's name, for messages.

        Returns:
            The valid options.

        Raises:
            InvalidOption: an error remains that no removal of an option resolves.
        """
        remaining = dict(options)
        while True:
            try:
                return cls(remaining, table)
            except InvalidOption as error:
                fewer = {key: value for key, value in remaining.items() if error.key not in (key, ALIASES.get(key))}
                if len(fewer) == len(remaining):
                    raise
                remaining = fewer

    # -- general ---------------------------------------------------------------------------------------------------

    @property
    def raw(self) -> Mapping[str, str]:
        """The options as text (a copy)."""
        return dict(self._raw)

    @property
    def table(self) -> str:
        """Name of the table, for messages."""
        return self._table

    def is_tables_own(self, key: str) -> bool:
        """Return whether the table itself sets ``key``, not its catalog or a caller of this process."""
        return self.is_set(key) and key not in self._dynamic_keys

    def is_set(self, key: str) -> bool:
        """Return whether ``key`` (or an alias of it) is set."""
        return key in self._values or key in self._raw

    def get(self, key: str) -> Any:
        """Return the typed value of a known key, or its default.

        Raises:
            InvalidOption: the key is unknown or its value is invalid.
        """
        if key not in REGISTRY:
            raise InvalidOption(key, self._raw.get(key), "a known option", self._table)
        self._require(key)
        return self._values.get(key, _DEFAULTS[key])

    def text(self, key: str) -> str | None:
        """Return the text of an option, or None if it is not set; the option's name may contain a column or a level.

        Raises:
            InvalidOption: the value is invalid.
        """
        self._require(key)
        return self._raw.get(key)

    def given_size(self, key: str, default: int) -> int:
        """Return the size (bytes) in an option of a file format ("parquet.page.size"), at least 1.

        Args:
            key: the option.
            default: size if the option is not set.

        Returns:
            The size in bytes.

        Raises:
            InvalidOption: the value is not a size of at least 1 byte.
        """
        text = self._raw.get(key)
        try:
            size = default if text is None else memory_size(text, key)
        except InvalidOption as error:
            raise InvalidOption(key, text, error.accepted, self._table) from error
        if size < 1:
            raise InvalidOption(key, text, "a size of at least 1 byte", self._table)
        return size

    def _require(self, key: str) -> None:
        error = self._refused.get(key)
        if error is not None:
            accepted = f"{error.accepted}. The value is stored in the table: Catalog.alter_table can set or remove it"
            raise InvalidOption(error.key, error.value, accepted, error.table)

    def copy(self, dynamic: Mapping[str, str | None]) -> TableOptions:
        """Return the options, overridden by ``dynamic``; None removes an option, as if the table had never set it.

        Raises:
            InvalidOption: a value is invalid, an option that files depend on would change, or a reading option does not
                exist. A misspelt reading option is not ignored, because the read would return the wrong rows.
        """
        for error in mistyped_reading(dynamic).values():
            raise InvalidOption(error.key, error.value, error.accepted, self._table)
        own = canonical(self._raw)
        changes = canonical({str(k): None if v is None else str(v) for k, v in dynamic.items()})
        for name, value in changes.items():
            check_change(own, name, value, self._table, dynamic=True)
        merged = {name: value for name, value in {**own, **changes}.items() if value is not None}
        copied = TableOptions(merged, self._table, self._stored)
        copied._dynamic_keys = self._dynamic_keys.difference(changes) | {
            name for name, value in changes.items() if value is not None
        }
        for name, error in copied._refused.items():
            if name in changes or name not in self._refused:
                raise error
        return copied

    def _contradictions(self) -> Iterator[InvalidOption]:
        low, high = "snapshot.num-retained.min", "snapshot.num-retained.max"
        if not {low, high} & self._refused.keys() and (self.retained_max or _INT_MAX) < self.retained_min:
            yield InvalidOption(high, self.retained_max, f"at least {low} ({self.retained_min})", self._table)
        low, high = "commit.min-retry-wait", "commit.max-retry-wait"
        if not {low, high} & self._refused.keys() and self.commit_min_retry_wait > self.commit_max_retry_wait:
            yield InvalidOption(low, self.commit_min_retry_wait, f"at most {high}", self._table)
        delay, length, period = "tag.creation-delay", "tag.creation-period-duration", "tag.creation-period"
        usable = not {delay, length, period, "tag.automatic-creation"} & self._refused.keys()
        if usable and self.tag_creation in ("process-time", "watermark"):
            period_ms = self._number(length)
            if period_ms is not None and period_ms < _MINUTE:  # tag names contain minutes
                yield InvalidOption(length, self._raw.get(length), "at least 1 min", self._table)
            longest_delay = _PERIODS[self.get(period)] if period_ms is None else period_ms
            if self.get(delay) >= longest_delay:
                yield InvalidOption(
                    delay, self._raw.get(delay), f"less than the period ({written_span(longest_delay)})", self._table
                )

    def _names(self, key: str) -> tuple[str, ...]:
        text = self.get(key)
        return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()

    def _number(self, key: str) -> int | None:
        value = self.get(key)
        return None if value is None else int(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableOptions) and self._raw == other._raw and self._table == other._table

    def __hash__(self) -> int:
        return hash((self._table, tuple(sorted(self._raw.items()))))

    def __repr__(self) -> str:
        return f"TableOptions({self._raw!r}, table={self._table!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TableOptions, (self._raw, self._table, self._stored), {"_dynamic_keys": self._dynamic_keys}

    # -- meaning of rows -------------------------------------------------------------------------------------------

    @property
    def bucket(self) -> int:
        """``bucket``: > 0 fixed, -1 dynamic or unaware, -2 postpone."""
        return int(self.get("bucket"))

    @property
    def bucket_key(self) -> tuple[str, ...]:
        """``bucket-key`` as set; empty means the trimmed primary key."""
        return self._names("bucket-key")

    @property
    def bucket_function(self) -> str:
        """``bucket-function.type``: default, mod or hive."""
        return str(self.get("bucket-function.type"))

    @property
    def merge_engine(self) -> str:
        """``merge-engine``: deduplicate, partial-update, aggregation or first-row."""
        return str(self.get("merge-engine"))

    @property
    def sequence_field(self) -> tuple[str, ...]:
        """``sequence.field``: columns that order the versions of a row."""
        return self._names("sequence.field")

    @property
    def sequence_descending(self) -> bool:
        """Whether the smallest value of ``sequence.field`` wins."""
        return bool(self.get("sequence.field.sort-order") == "descending")

    @property
    def changelog_producer(self) -> str:
        """``changelog-producer``: none, input, full-compaction or lookup."""
        return str(self.get("changelog-producer"))

    @property
    def deletion_vectors_enabled(self) -> bool:
        """``deletion-vectors.enabled``."""
        return bool(self.get("deletion-vectors.enabled"))

    @property
    def batch_scan_skips_level0(self) -> bool:
        """Whether batch reads of a primary-key table see only compacted files (``CoreOptions.batchScanSkipLevel0``).

        This is the case with deletion vectors, unless ``deletion-vectors.merge-on-read`` is set, and with merge engine
        first-row.
        """
        if self.deletion_vectors_enabled:
            return not self.get("deletion-vectors.merge-on-read")
        return self.merge_engine == "first-row"

    @property
    def vectors_target_size(self) -> int:
        """``deletion-vector.index-file.target-size`` in bytes.

        Size at which an unbucketed table starts a new index file.
        """
        return int(self.get("deletion-vector.index-file.target-size"))

    @property
    def write_only(self) -> bool:
        """``write-only``: writers neither compact nor expire.

        Always true with `sequence.snapshot-ordering`, because a writer's new files have no snapshot id before their
        commit.
        """
        return bool(self.get("write-only")) or self.snapshot_ordering

    @property
    def snapshot_ordering(self) -> bool:
        """``sequence.snapshot-ordering``: of the rows of a key, that of the later snapshot is the newer one."""
        return bool(self.get("sequence.snapshot-ordering"))

    @property
    def ignore_delete(self) -> bool:
        """``ignore-delete``: retracts are dropped."""
        return bool(self.get("ignore-delete"))

    @property
    def rowkind_field(self) -> str | None:
        """``rowkind.field``: column with the row kind; None if not set."""
        value = self.get("rowkind.field")
        return None if value is None else str(value)

    # -- files -----------------------------------------------------------------------------------------------------

    @property
    def file_format(self) -> str:
        """``file.format``, lower case."""
        return str(self.get("file.format")).lower()

    def format_of_level(self, level: int) -> str:
        """Return the file format of a level, in lower case and not validated.

        The format is the entry of ``file.format.per.level`` ("0:avro,5:parquet") for this level, or ``file.format``
        without such an entry.
        """
        return str((self.get("file.format.per.level") or {}).get(str(level), self.file_format)).strip().lower()

    @property
    def file_compression(self) -> str:
        """``file.compression``, lower case."""
        return str(self.get("file.compression")).lower()

    @property
    def zstd_level(self) -> int:
        """``file.compression.zstd-level``, limited to the range of Zstandard."""
        return max(-131_072, min(22, int(self.get("file.compression.zstd-level"))))

    @property
    def data_file_prefix(self) -> str:
        """``data-file.prefix``: first part of the names of data files."""
        return str(self.get("data-file.prefix"))

    @property
    def stats_mode(self) -> str:
        """``metadata.stats-mode``, lower case."""
        return str(self.get("metadata.stats-mode")).strip().lower()

    @property
    def thin_mode(self) -> bool:
        """``data-file.thin-mode``: key columns are not stored twice."""
        return bool(self.get("data-file.thin-mode"))

    @property
    def write_buffer_size(self) -> int:
        """``write-buffer-size`` in bytes."""
        return int(self.get("write-buffer-size"))

    def target_file_size(self, has_primary_key: bool) -> int:
        """Return ``target-file-size`` in bytes; by default 128 MB with a primary key, 256 MB without."""
        return self._number("target-file-size") or (128 if has_primary_key else 256) * _MB

    def compaction_file_size(self, has_primary_key: bool) -> int:
        """Return the size in bytes below which a file counts as small; by default 70 % of the target size."""
        target = self.target_file_size(has_primary_key)
        if self.is_set("compaction.small-file-ratio"):
            return int(target * float(self.get("compaction.small-file-ratio")))
        return target // 10 * 7

    # -- snapshots, manifests, commits -------------------------------------------------------------------------------

    @property
    def retained_min(self) -> int:
        """``snapshot.num-retained.min``: number of newest snapshots that expiry always keeps."""
        return int(self.get("snapshot.num-retained.min"))

    @property
    def retained_max(self) -> int | None:
        """``snapshot.num-retained.max``; None means no limit."""
        value = int(self.get("snapshot.num-retained.max"))
        return None if value >= _INT_MAX else value

    @property
    def time_retained(self) -> int:
        """``snapshot.time-retained`` in ms."""
        return int(self.get("snapshot.time-retained"))

    @property
    def expire_limit(self) -> int:
        """``snapshot.expire.limit``: largest number of snapshots to expire at once."""
        return int(self.get("snapshot.expire.limit"))

    @property
    def changelog_retained_min(self) -> int:
        """``changelog.num-retained.min``, by default ``snapshot.num-retained.min``."""
        own = self._number("changelog.num-retained.min")
        return self.retained_min if own is None else own

    @property
    def changelog_retained_max(self) -> int | None:
        """``changelog.num-retained.max``, by default ``snapshot.num-retained.max``; None means no limit."""
        own = self._number("changelog.num-retained.max")
        if own is None:
            return self.retained_max
        return None if own >= _INT_MAX else own

    @property
    def changelog_time_retained(self) -> int:
        """``changelog.time-retained`` in ms, by default ``snapshot.time-retained``."""
        own = self._number("changelog.time-retained")
        return self.time_retained if own is None else own

    @property
    def changelog_decoupled(self) -> bool:
        """Whether changelogs are kept longer than their snapshots (Java `changelogLifecycleDecoupled`)."""
        keeps_more = (self.changelog_retained_max or _INT_MAX) > (self.retained_max or _INT_MAX)
        keeps_longer = self.changelog_time_retained > self.time_retained
        return keeps_more or keeps_longer or self.changelog_retained_min > self.retained_min

    @property
    def manifest_target_size(self) -> int:
        """``manifest.target-file-size`` in bytes."""
        return int(self.get("manifest.target-file-size"))

    @property
    def manifest_merge_min_count(self) -> int:
        """``manifest.merge-min-count``."""
        return int(self.get("manifest.merge-min-count"))

    @property
    def manifest_full_threshold(self) -> int:
        """``manifest.full-compaction-threshold-size`` in bytes."""
        return int(self.get("manifest.full-compaction-threshold-size"))

    @property
    def commit_max_retries(self) -> int:
        """``commit.max-retries`` as set: number of attempts after the first; a negative value has the effect of 0."""
        return int(self.get("commit.max-retries"))

    @property
    def commit_min_retry_wait(self) -> int:
        """``commit.min-retry-wait`` in ms."""
        return int(self.get("commit.min-retry-wait"))

    @property
    def commit_max_retry_wait(self) -> int:
        """``commit.max-retry-wait`` in ms."""
        return int(self.get("commit.max-retry-wait"))

    @property
    def commit_timeout(self) -> int | None:
        """``commit.timeout`` in ms; None means no limit."""
        return self._number("commit.timeout")

    @property
    def partition_default_name(self) -> str:
        """``partition.default-name``: text that stands for null and blank values in directory names of partitions."""
        return str(self.get("partition.default-name"))

    @property
    def partition_legacy_name(self) -> bool:
        """``partition.legacy-name``: whether directory names of partitions contain values in Java's toString form."""
        return bool(self.get("partition.legacy-name"))

    @property
    def delete_mode(self) -> str:
        """``dredge.delete-mode``: two-phase (files go to the trash first) or direct (files are deleted at once)."""
        return str(self.get("dredge.delete-mode"))

    @property
    def pre_compaction_tag(self) -> int | None:
        """``dredge.pre-compaction-tag.time-retained`` in ms; None if ``dredge.pre-compaction-tag`` is off."""
        on = self.get("dredge.pre-compaction-tag")
        return int(self.get("dredge.pre-compaction-tag.time-retained")) if on else None

    @property
    def trash_grace_expiry(self) -> int:
        """``dredge.trash-grace-expiry`` in ms: time for which expired snapshots can be restored from the trash.

        If only `dredge.trash-grace` is set, its value is used.
        """
        own, general = "dredge.trash-grace-expiry", "dredge.trash-grace"
        return int(self.get(general if self.is_set(general) and not self.is_set(own) else own))

    @property
    def tag_creation(self) -> str:
        """``tag.automatic-creation``: none, process-time, watermark or batch."""
        return str(self.get("tag.automatic-creation"))

    @property
    def tag_time_retained(self) -> int | None:
        """``tag.default-time-retained`` in ms; None means unlimited."""
        return self._number("tag.default-time-retained")

    @property
    def tag_retained_max(self) -> int | None:
        """``tag.num-retained-max``: number of automatic tags to keep (in batch mode: of all tags); None means all."""
        return self._number("tag.num-retained-max")

    @property
    def source_split_target(self) -> int:
        """``source.split.target-size`` in bytes."""
        return int(self.get("source.split.target-size"))

    @property
    def open_file_cost(self) -> int:
        """``source.split.open-file-cost`` in bytes."""
        return int(self.get("source.split.open-file-cost"))

    # -- the tree: triggers, choice of runs, number of inputs of a merge ---------------------------------------------

    @property
    def compaction_trigger(self) -> int:
        """``num-sorted-run.compaction-trigger``: number of sorted runs that starts a compaction."""
        return int(self.get("num-sorted-run.compaction-trigger"))

    @property
    def num_levels(self) -> int:
        """``num-levels``, by default the compaction trigger + 1."""
        return self._number("num-levels") or self.compaction_trigger + 1

    @property
    def stop_trigger(self) -> int:
        """``num-sorted-run.stop-trigger``, by default the compaction trigger + 3, and at least the trigger."""
        own = self._number("num-sorted-run.stop-trigger")
        return max(self.compaction_trigger, self.compaction_trigger + 3 if own is None else own)

    @property
    def sort_spill_threshold(self) -> int:
        """``sort-spill-threshold``: largest number of inputs of a merge, by default stop trigger + 1."""
        return self._number("sort-spill-threshold") or min(self.stop_trigger + 1, _INT_MAX)

    @property
    def max_size_amplification(self) -> int:
        """``compaction.max-size-amplification-percent``: largest size of the newer runs relative to the oldest run."""
        return int(self.get("compaction.max-size-amplification-percent"))

    @property
    def size_ratio(self) -> int:
        """``compaction.size-ratio`` in percent."""
        return int(self.get("compaction.size-ratio"))

    @property
    def offpeak_start(self) -> int:
        """``compaction.offpeak.start.hour``, -1 = none."""
        return int(self.get("compaction.offpeak.start.hour"))

    @property
    def offpeak_end(self) -> int:
        """``compaction.offpeak.end.hour``, -1 = none."""
        return int(self.get("compaction.offpeak.end.hour"))

    @property
    def offpeak_ratio(self) -> int:
        """``compaction.offpeak-ratio`` in percent."""
        return int(self.get("compaction.offpeak-ratio"))

    @property
    def optimization_interval(self) -> int | None:
        """``compaction.optimization-interval`` in ms; None if not set."""
        return self._number("compaction.optimization-interval")

    @property
    def total_size_threshold(self) -> int | None:
        """``compaction.total-size-threshold`` in bytes; None if not set."""
        return self._number("compaction.total-size-threshold")

    @property
    def incremental_size_threshold(self) -> int | None:
        """``compaction.incremental-size-threshold`` in bytes; None if not set."""
        return self._number("compaction.incremental-size-threshold")

    @property
    def force_up_level0(self) -> bool:
        """``compaction.force-up-level-0``: also compact level 0 if no rule of universal compaction picks a unit."""
        return bool(self.get("compaction.force-up-level-0"))

    @property
    def needs_lookup(self) -> bool:
        """Whether compactions look up the keys of level 0 in older levels (`LookupStrategy`).

        This is the case with changelog producer lookup, merge engine first-row, deletion vectors, or ``force-lookup``.
        """
        by_producer = self.get("changelog-producer") == "lookup" or self.get("merge-engine") == "first-row"
        return bool(by_producer or self.get("deletion-vectors.enabled") or self.get("force-lookup"))

    @property
    def lookup_compact_interval(self) -> int | None:
        """Number of compaction decisions between two forced picks of level 0, with `lookup-compact` = gentle.

        The value is ``lookup-compact.max-interval``, by default twice the compaction trigger, and at least the trigger.
        None means that every decision picks level 0.
        """
        if self.get("lookup-compact") != "gentle":
            return None
        own = self._number("lookup-compact.max-interval")
        return max(self.compaction_trigger, min(self.compaction_trigger * 2, _INT_MAX) if own is None else own)

    @property
    def force_rewrite_all(self) -> bool:
        """``compaction.force-rewrite-all-files``: rewrite also files that could move to another level unchanged."""
        return bool(self.get("compaction.force-rewrite-all-files"))

    @property
    def min_file_num(self) -> int:
        """``compaction.min.file-num``: number of small files that starts a compaction of an append table."""
        return int(self.get("compaction.min.file-num"))

    @property
    def piece_size(self) -> int:
        """``dredge.compaction.piece-size`` in bytes.

        Smallest input of one key range (piece) if a large bucket is compacted by key ranges.
        """
        return int(self.get("dredge.compaction.piece-size"))

    @property
    def read_threads(self) -> int | None:
        """``dredge.read.threads``: number of splits that one read processes at once.

        None means the number of processors.
        """
        return self._number("dredge.read.threads")

    @property
    def merge_budget(self) -> int:
        """``dredge.merge-budget`` in bytes: memory for the rows that one merge holds at once, from all its inputs."""
        return int(self.get("dredge.merge-budget"))

    @property
    def paimon_version(self) -> PaimonVersion:
        """``dredge.paimon-version``: version to follow if Paimon versions give different answers."""
        return PaimonVersion(str(self.get(PAIMON_VERSION)))

    @property
    def compaction_inline(self) -> str:
        """``dredge.compaction.inline``: "follow" or "never".

        With "follow", writers compact and expire after commits, unless the table is `write-only`.
        """
        return str(self.get("dredge.compaction.inline"))

    @property
    def order_sensitive(self) -> str:
        """``dredge.compaction.order-sensitive``: choice of sorted runs in tables whose result depends on merge order.

        With "closed", a compaction includes all older sorted runs that overlap, so that no query result changes. With
        "as-paimon", a compaction takes the sorted runs that Paimon's Java code would take, and may change query
        results.
        """
        return str(self.get("dredge.compaction.order-sensitive"))

    @property
    def exact_keys(self) -> str:
        """``dredge.compaction.exact-keys``: whether compactions keep files in whose key range no other file has a key.

        Parquet row groups of other files without such a key are copied without decoding. With "auto", where that saves
        more than it costs; with "always", files and row groups of any size; with "never", all files that overlap by
        their smallest and largest keys are rewritten, as in Paimon.
        """
        return str(self.get("dredge.compaction.exact-keys"))

    @property
    def exact_reads(self) -> str:
        """``dredge.read.exact-keys``: whether reads return parts in which one file alone has keys without a merge.

        With "auto", where that saves more than it costs; with "always", parts of any size; with "never", all files that
        overlap by their smallest and largest keys are merged, as in Paimon.
        """
        return str(self.get("dredge.read.exact-keys"))

    @property
    def clusters_incrementally(self) -> bool:
        """``clustering.incremental``: append tables are compacted by sorting files, level by level."""
        return bool(self.get("clustering.incremental"))

    @property
    def clusters_keys(self) -> bool:
        """``pk-clustering-override``: compacted files of primary-key tables are sorted by `clustering.columns`."""
        return bool(self.get("pk-clustering-override"))

    @property
    def clustering_columns(self) -> tuple[str, ...]:
        """``clustering.columns``: columns to sort by; empty if unset."""
        text = self.text("clustering.columns") or ""
        return tuple(name.strip() for name in text.split(",") if name.strip())

    @property
    def mergeable_branches(self) -> str:
        """``dredge.compaction.mergeable-branches``: whether an append table with branches is compacted.

        Paimon merges a branch only if the table's history consists of appends, which a compaction ends. With "closed",
        a table whose branches can still be merged is not compacted. With "as-paimon", it is compacted as in Paimon,
        and its branches can no longer be merged.
        """
        return str(self.get("dredge.compaction.mergeable-branches"))

    @property
    def verification(self) -> str:
        """``dredge.verification``: checks of a compaction's output before it is published: full, sampled or counts."""
        return str(self.get("dredge.verification"))

    @property
    def tombstone_retention(self) -> int:
        """``dredge.tombstone-retention`` in ms: time for which compactions keep deletes, with a ``sequence.field``."""
        return int(self.get("dredge.tombstone-retention"))

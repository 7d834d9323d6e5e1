"""Option names with a free part in them ("fields.<column>.ignore-retract"): what each takes, so that these are checked like all others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lsm_core.options.key import BOOL, DOUBLE, INT, TEXT, Key


@dataclass(frozen=True)
class Pattern:
    """A family of option names: ``form`` matches the whole name, ``kind`` is the type of its values."""

    form: re.Pattern[str]
    kind: str = TEXT
    since: str = "1.3"

    def key(self, name: str) -> Key:
        """The option ``name`` as a key of its own."""
        return Key(name, self.kind, since=self.since)


def _of_column(suffix: str, kind: str = TEXT, since: str = "1.3") -> Pattern:
    return Pattern(re.compile(rf"fields\..+\.{re.escape(suffix)}"), kind, since)


PATTERNS: Final = (
    _of_column("aggregate-function"),
    _of_column("ignore-retract", BOOL),
    _of_column("distinct", BOOL),
    _of_column("list-agg-delimiter"),
    _of_column("nested-key"),
    _of_column("count-limit", INT),
    _of_column("stats-mode"),
    _of_column("sequence-group"),
    _of_column("nested-key-null-strategy", since="2.0"),
    _of_column("nested-sequence-field", since="2.0"),
    _of_column("ts-field", since="2.0"),
    _of_column("map.storage-layout", since="2.0"),
    # Counted columns are sums of ones to other engines.
    Pattern(re.compile(r"dredge\.fields\..+\.count-inputs"), BOOL),
    # Paimon up to 1.2 kept defaults of columns in options; the schema's own members replaced them.
    _of_column("default-value"),
    Pattern(re.compile(r"file-index\.bloom-filter\..+\.items"), INT),
    Pattern(re.compile(r"file-index\.bloom-filter\..+\.fpp"), DOUBLE),
    Pattern(re.compile(r"file-index\.[^.]+\.columns")),
    Pattern(re.compile(r"file-index\.[^.]+\..+\.[^.]+")),
    Pattern(re.compile(r"(commit|tag)\.callback\..+\.param")),
    Pattern(re.compile(r"(parquet|orc|avro|metadata\.iceberg)\..+")),
)


def pattern_key(name: str) -> Key | None:
    """The key that ``name`` makes of the first family it belongs to, None when it belongs to none."""
    return next((pattern.key(name) for pattern in PATTERNS if pattern.form.fullmatch(name)), None)

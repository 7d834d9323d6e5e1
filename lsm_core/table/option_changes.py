"""Rules for changed options, and for the options that name a column when this column is renamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lsm_core.errors import InvalidSchema
from lsm_core.options import ALIASES, CREATION_ONLY, REGISTRY, PaimonVersion, canonical, check_change, find_key
from lsm_core.options.keys import TEXT

# Options whose values are columns of the table, separated by commas.
_COLUMNS: Final = frozenset(
    {
        "blob-descriptor-field",
        "blob-external-storage-field",
        "blob-field",
        "blob-view-field",
        "bucket-key",
        "changelog-producer.row-deduplicate-ignore-fields",
        "clustering.columns",
        "partial-update.remove-record-on-sequence-group",
        "pk-bitmap.index.columns",
        "pk-btree.index.columns",
        "pk-full-text.index.columns",
        "pk-multivalue.index.columns",
        "pk-vector.index.columns",
        "record-level.time-field",
        "rowkind.field",
        "sequence.field",
        "upsert-key",
        "vector-field",
    }
)
_INDEX_COLUMNS: Final = re.compile(r"file-index\.[^.]+\.columns")
_INDEX_OPTION: Final = re.compile(r"(file-index\.[^.]+\.)(.+)(\.[^.]+)")
_COLUMN_OPTION: Final = re.compile(
    r"((?:dredge\.)?fields\.)(.+?)(\.(?:aggregate-function|count-inputs|ignore-retract|distinct|list-agg-delimiter|"
    r"nested-key|count-limit|stats-mode|sequence-group|nested-key-null-strategy|nested-sequence-field|ts-field|"
    r"map\.storage-layout|default-value))"
)
_PARQUET_OPTION: Final = re.compile(r"(parquet\.[^#]+#)(.+)", re.DOTALL)
# Names of the groups that Parquet puts into the path of an array's elements and a map's values.
_GROUPS: Final = r"(?:\.list|\.key_value)?\."
# Texts of one word, in which spaces mean nothing.
_WORDS: Final = ("file.format", "compression", "stats-mode")
# Options of a column whose values are fields inside that column, separated by commas.
_INNER_LISTS: Final = ("nested-key", "nested-sequence-field")


def holds_columns(name: str) -> bool:
    """Return whether the value of the option ``name`` is a list of columns, as for `bucket-key`."""
    return name in _COLUMNS or _INDEX_COLUMNS.fullmatch(name) is not None or name.endswith(".sequence-group")


def named_in_key(name: str) -> tuple[str, ...]:
    """Return the columns that an option key names, such as a and b for "fields.a,b.sequence-group"."""
    match = _COLUMN_OPTION.fullmatch(name) or _INDEX_OPTION.fullmatch(name)
    return tuple(match.group(2).split(",")) if match else ()


def listed(value: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated option value."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def tidied(name: str, value: str) -> str:
    """Return an option's value without surrounding blanks where Java would not trim them.

    Java looks for a column called " b", and cannot open a table of " 2 " buckets.
    """
    (name,) = canonical({name: ""})
    if holds_columns(name):
        return ",".join(listed(value))
    key = find_key(name)
    words = key is not None and (key.kind != TEXT or name.endswith(_WORDS))
    return value.strip() if words else value


def with_option(
    options: Mapping[str, str],
    before: Mapping[str, str],
    key: str,
    value: str | None,
    table: str,
    followed: PaimonVersion | None,
) -> dict[str, str]:
    """Return a table's options after one option is set or removed.

    An alias of the same option (older name) is removed.

    Args:
        options: options after the earlier changes of the same ALTER.
        before: options before the ALTER, which decide whether the option may change.
        key: key of the option.
        value: new value of the option; None removes the option.
        table: name of the table, for errors.
        followed: Paimon version whose rules about option changes apply; None for a table without snapshots.

    Raises:
        InvalidSchema: the key belongs to the schema, such as `primary-key`.
        InvalidOption: the option is fixed because snapshots exist.
    """
    (name,) = canonical({key: ""})
    if name in CREATION_ONLY:
        raise InvalidSchema(f"table {table}: option '{name}' can only be set when the table is created")
    if followed is not None:
        check_change(before, name, value, table, version=followed)
    same = {name, *(REGISTRY[name].aliases if name in REGISTRY else ())}
    after = {k: v for k, v in options.items() if k not in same}
    if value is not None:
        after[name] = tidied(name, value)
    return after


def column_renamed(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """Return options in which the name ``old`` of a top-level column is replaced by ``new``, in keys and values."""
    rename = _renaming(old, new)
    result = {}
    for key, value in options.items():
        match = _COLUMN_OPTION.fullmatch(key) or _INDEX_OPTION.fullmatch(key)
        renamed = key if match is None else match.group(1) + rename(match.group(2)) + match.group(3)
        renamed = _path_renamed(renamed, (old,), new)
        result[renamed] = rename(value) if holds_columns(ALIASES.get(key, key)) else value
    return result


def inner_field_renamed(options: Mapping[str, str], path: Sequence[str], new: str) -> dict[str, str]:
    """Return options in which the last name of ``path``, a field inside a column, is replaced by ``new``."""
    rename = _renaming(path[-1], new)
    mine = {f"fields.{path[0]}.{suffix}" for suffix in _INNER_LISTS}
    return {_path_renamed(key, path, new): rename(value) if key in mine else value for key, value in options.items()}


def _path_renamed(key: str, path: Sequence[str], new: str) -> str:
    """Return the key of a Parquet setting of a column (`parquet.compression#a.b`) after a rename of ``path``."""
    match = _PARQUET_OPTION.fullmatch(key)
    if match is None:
        return key
    outer = _GROUPS.join(map(re.escape, path[:-1]))
    pattern = f"({outer}{_GROUPS if outer else ''}){re.escape(path[-1])}(\\..+)?"
    inside = re.fullmatch(pattern, match[2], re.DOTALL)
    return key if inside is None else f"{match[1]}{inside[1]}{new}{inside[2] or ''}"


def _renaming(old: str, new: str) -> Callable[[str], str]:
    def rename(text: str) -> str:
        parts = [part.strip() for part in text.split(",")]
        names = [part.partition("[")[0] for part in parts]
        if old not in names:
            return text
        # A part may carry a key of a map in brackets ("attributes[colour]").
        pairs = zip(names, parts, strict=True)
        return ",".join(new + part[len(old) :] if name == old else part for name, part in pairs)

    return rename


_FUNCTION: Final = re.compile(r"fields\.(.+)\.aggregate-function")


def with_counts(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as they are stored: `count` becomes `sum`, because not all engines have `count`.

    Dredge writes ones and zeros into a column that counts. A column counts as long as its function is `sum` and
    `dredge.fields.<column>.count-inputs` is set.
    """
    stored = dict(options)
    for key, value in options.items():
        match = _FUNCTION.fullmatch(key)
        if match is None:
            continue
        mark = f"dredge.fields.{match.group(1)}.count-inputs"
        if value.strip() == "count":
            stored[key], stored[mark] = "sum", "true"
        elif value.strip() != "sum":
            stored.pop(mark, None)
    return stored

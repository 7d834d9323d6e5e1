"""Rules for the whole definition of a new or altered table, checked before any file is written.

Source: Paimon `SchemaValidation`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Final

import pyarrow as pa

from lsm_core.errors import DredgeError, InvalidData, InvalidOption, InvalidSchema, UnsupportedFeature
from lsm_core.files import SpillSpace
from lsm_core.files.formats import require_usable, settings
from lsm_core.files.formats.writer_settings import is_setting
from lsm_core.files.index_writer import indexed_columns
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.json_text import require_whole
from lsm_core.merge import merge_function
from lsm_core.merge.engines.expire_rows import RowExpiry
from lsm_core.options import (
    OTHER_ENGINES,
    READING,
    PaimonVersion,
    TableOptions,
    canonical,
    is_secret,
    misnamed,
    mistyped_reading,
)
from lsm_core.options.operator import MASK
from lsm_core.options.table_options import PAIMON_VERSION
from lsm_core.read.table_versions import check_reading
from lsm_core.storage import check_name
from lsm_core.table.option_changes import holds_columns, listed, named_in_key
from lsm_core.types import MAX_LENGTH, NESTED, DataType, RowField, TypeRoot, to_sql
from lsm_core.types.casts import CastError, cast_values, castable
from lsm_core.write.assigner import AssignerRules

_RESERVED: Final = frozenset({"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"})
_KEY_PREFIX: Final = "_KEY_"
ROW_KIND: Final = "_ROW_KIND"
"""Column with the row kind in changes. A table column of this name, in upper or lower case, would hide this column."""
_NO_KEY: Final = NESTED | {TypeRoot.VARIANT, TypeRoot.BLOB, TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY, TypeRoot.UNKNOWN}
_TIMES: Final = frozenset({TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_COUNTED: Final = re.compile(r"dredge\.fields\.(.+)\.count-inputs")
# Avro's own limits; Java finds them only when the first row is written.
_AVRO_DIGITS: Final = {TypeRoot.TIMESTAMP: 6, TypeRoot.TIMESTAMP_LTZ: 6, TypeRoot.TIME: 3}
POSTPONE: Final = -2


def validate(
    schema: TableSchema, table: str, before: TableSchema | None = None, followed: PaimonVersion | None = None
) -> None:
    """Check the definition of a table.

    Args:
        schema: the definition.
        table: name of the table, for errors.
        before: the schema before an alteration, or None. Options of this schema that name missing columns may stay,
            because Java renames columns without their file index options.
        followed: Paimon version of the table's snapshots, whose rules for scan options apply; None without snapshots.
            The option `dredge.paimon-version` of the table takes precedence.

    Raises:
        InvalidSchema: columns, keys or defaults break a rule; the error names the table and the rule.
        InvalidOption: an option breaks a rule.
    """
    _check_texts(schema, table)
    check_columns(schema.fields, table)
    _check_rows([field for field in schema.fields if before is None or field not in before.fields], table)
    _check_keys(schema, table)
    for field in schema.fields:
        check_default(field, table)
        if before is None or field not in before.fields:
            _require_whole_default(field, table)
    known = {} if before is None else before.options
    for key, value in schema.options.items():
        if is_secret(key) and known.get(key) != value:
            raise InvalidOption(
                key,
                MASK,
                "no secrets, because every reader of the table sees its options; set them in the environment",
                table,
            )
    options = TableOptions(schema.options, table)
    dangling = set() if before is None else set(_dangling(before))
    for key, value, accepted in _dangling(schema):
        if (key, value, accepted) not in dangling:
            advice = misnamed([key]).get(key)
            columns = advice or f"{accepted} of the table: {', '.join(schema.field_names)}"
            raise InvalidOption(key, value, columns, table)
    _check_buckets(schema, options, table)
    _check_sequence(schema, options, table)
    _check_merging(schema, options, table)
    _check_clustering(schema, options, table)
    check_manifest_sort(schema, options, table)
    if schema.primary_keys:
        _check_engine(schema, table)
    elif options.get("primary-key.nullable"):
        raise InvalidOption("primary-key.nullable", "true", "false in a table without primary key", table)
    _check_writers(options, {} if before is None else before.options, table)
    _check_times(schema, options, table, known)
    _check_reading(options, table, {} if before is None else before.options, followed)
    _check_formats(schema, options, table, set() if before is None else set(_names(before)))
    _check_files(schema, options, table, before)
    if before is None:
        _check_blobs(schema, options, table)


def check_columns(fields: Sequence[DataField], table: str) -> None:
    """Raise InvalidSchema for names of columns, or of ROW fields, that are blank, reserved or repeated."""
    if not fields:
        raise InvalidSchema(f"table {table} has no columns")
    for field in fields:
        if field.name in _RESERVED or field.name.startswith(_KEY_PREFIX) or field.name.upper() == ROW_KIND:
            raise InvalidSchema(f"table {table}: column name '{field.name}' is reserved")
    for path, names in _groups((), fields):
        counts = Counter(names)
        for name in names:
            if not name.strip():
                raise InvalidSchema(f"table {table}: a column{' of ' + path if path else ''} has a blank name")
            if counts[name] > 1:
                raise InvalidSchema(f"table {table}: column '{path + '.' if path else ''}{name}' is defined twice")


def _check_rows(fields: Sequence[DataField], table: str) -> None:
    """Raise InvalidSchema for a ROW without fields, which Parquet cannot store."""
    for path, names in _groups((), fields):
        if path and not names:
            raise InvalidSchema(f"table {table}: column '{path}' is a ROW without fields, which files cannot store")


def _check_texts(schema: TableSchema, table: str) -> None:
    """Raise InvalidSchema for a text with a lone surrogate, which a schema file cannot store."""
    texts = [("comment", schema.comment or "")]
    for key, value in schema.options.items():
        texts += [("the name of option", key), (f"the value of option {key!r}:", value)]
    fields: list[DataField | RowField] = list(schema.fields)
    for column in schema.fields:
        fields += (inner for kind in column.type.with_inner() for inner in kind.fields)
    for field in fields:
        texts.append(("the name of column", field.name))
        texts.append((f"the comment of column {field.name!r}:", field.description or ""))
        texts.append((f"the default of column {field.name!r}:", field.default or ""))
    try:
        for place, text in texts:
            require_whole(text, table, place)
    except InvalidData as error:
        raise InvalidSchema(str(error)) from error


def _groups(path: tuple[str, ...], fields: Sequence[DataField | RowField]) -> Iterator[tuple[str, list[str]]]:
    """Yield the field names of every ROW, with the path of the ROW ("" for the table)."""
    yield ".".join(path), [field.name for field in fields]
    for field in fields:
        yield from _groups_inside((*path, field.name), field.type)


def _groups_inside(path: tuple[str, ...], kind: DataType) -> Iterator[tuple[str, list[str]]]:
    if kind.root is TypeRoot.ROW:
        yield from _groups(path, kind.fields)
    for step, part in (("element", kind.element), ("key", kind.key), ("value", kind.value)):
        if part is not None:
            yield from _groups_inside((*path, step), part)


def _check_keys(schema: TableSchema, table: str) -> None:
    for role, keys in (("primary key", schema.primary_keys), ("partition", schema.partition_keys)):
        for key in keys:
            if not schema.has_field(key):
                raise InvalidSchema(f"table {table}: {role} column '{key}' is not a column")
            kind = schema.field(key).type
            if kind.root in _NO_KEY:
                raise InvalidSchema(f"table {table}: {role} column '{key}' cannot be of type {to_sql(kind)}")
        if len(set(keys)) != len(keys):
            raise InvalidSchema(f"table {table}: the {role} columns contain a column twice")
    if schema.primary_keys and not schema.trimmed_primary_keys:
        raise InvalidSchema(
            f"table {table}: the primary key has only partition columns, so a "
            "partition would have one row; add another column"
        )


def _dangling(schema: TableSchema) -> Iterator[tuple[str, str, str]]:
    """Yield the options whose key or value names a column that the table does not have.

    Yields:
        (Key, value, what is accepted instead: "columns" or "a key that names columns").
    """
    for key, value in schema.options.items():
        if any(name.partition("[")[0] not in schema.field_names for name in named_in_key(key)):
            yield key, value, "a key that names columns"
        if holds_columns(key) and any(name.partition("[")[0] not in schema.field_names for name in listed(value)):
            yield key, value, "columns"


def _check_buckets(schema: TableSchema, options: TableOptions, table: str) -> None:
    bucket_key, keyed, bucket = options.bucket_key, bool(schema.primary_keys), options.bucket
    text = ",".join(bucket_key)
    if set(bucket_key) & set(schema.partition_keys):
        raise InvalidOption("bucket-key", text, "columns that are not partition columns", table)
    if keyed and not set(bucket_key) <= set(schema.trimmed_primary_keys):
        raise InvalidOption("bucket-key", text, "columns of the primary key that are not partition columns", table)
    nested = [name for name in bucket_key if schema.has_field(name) and schema.field(name).type.root in _NO_KEY]
    if nested:
        raise InvalidOption("bucket-key", text, f"columns without nested types, so not '{nested[0]}'", table)
    if bucket == -1 and bucket_key:
        raise InvalidOption("bucket-key", text, "no value with 'bucket' = -1; set 'bucket' to a number above 0", table)
    if bucket == -1 and not keyed and options.get("full-compaction.delta-commits") is not None:
        raise InvalidOption(
            "full-compaction.delta-commits",
            options.get("full-compaction.delta-commits"),
            "no value in a table without primary key and with 'bucket' = -1",
            table,
        )
    if bucket == -1 and keyed:
        AssignerRules.of(options, table)
    if bucket == POSTPONE and not keyed:
        raise InvalidOption("bucket", bucket, "a number above 0 or -1 in a table without primary key", table)
    if bucket > 0 and not keyed and not bucket_key:
        raise InvalidOption(
            "bucket", bucket, "-1, or this number together with 'bucket-key', in a table without primary key", table
        )


def _check_sequence(schema: TableSchema, options: TableOptions, table: str) -> None:
    names = options.sequence_field
    text = ",".join(names)
    if len(set(names)) != len(names):
        raise InvalidOption("sequence.field", text, "each column once", table)
    if options.snapshot_ordering:
        by_snapshot = "sequence.snapshot-ordering"
        if not schema.primary_keys:
            raise InvalidOption(by_snapshot, "true", "false in a table without primary key", table)
        if names:
            raise InvalidOption(by_snapshot, "true", "false with 'sequence.field'", table)
        if not options.get("write-only"):
            raise InvalidOption(by_snapshot, "true", "false, or true with 'write-only' = 'true'", table)
    for name in names:
        if f"fields.{name}.aggregate-function" in schema.options:
            raise InvalidOption("sequence.field", text, f"columns without aggregate function, so not '{name}'", table)
    if names and options.merge_engine == "first-row":
        raise InvalidOption("sequence.field", text, "no value with merge engine first-row", table)
    if names and schema.cross_partition:
        raise InvalidOption("sequence.field", text, "no value while the primary key lacks partition columns", table)


def _check_engine(schema: TableSchema, table: str) -> None:
    """Create the merge engine, to check that sequence groups, aggregate functions and their options fit the columns."""
    for key, value in schema.options.items():
        match = _COUNTED.fullmatch(key)
        if match is None or value.strip().lower() != "true" or not schema.has_field(match.group(1)):
            continue
        kind = schema.field(match.group(1)).type
        if kind.root not in (TypeRoot.INT, TypeRoot.BIGINT):
            function = f"fields.{match.group(1)}.aggregate-function"
            raise InvalidOption(function, f"count on type {to_sql(kind)}", "count for INT or BIGINT", table)
    merge_function(schema, schema.options, table)
    RowExpiry.of(schema, schema.options, table)


def _check_merging(schema: TableSchema, options: TableOptions, table: str) -> None:
    producer, engine = options.changelog_producer, options.merge_engine
    if producer != "none" and not schema.primary_keys:
        raise InvalidOption("changelog-producer", producer, "none in a table without primary key", table)
    if engine == "first-row" and producer not in ("none", "lookup"):
        raise InvalidOption("changelog-producer", producer, "none or lookup with merge engine first-row", table)
    if options.get("streaming-read-overwrite"):
        if producer in ("full-compaction", "lookup"):
            raise InvalidOption("streaming-read-overwrite", "true", f"false with changelog producer {producer}", table)
        if not schema.primary_keys:
            raise InvalidOption("streaming-read-overwrite", "true", "false in a table without primary key", table)
    if options.deletion_vectors_enabled:
        if producer == "full-compaction":
            raise InvalidOption(
                "deletion-vectors.enabled", "true", "false with changelog producer full-compaction", table
            )
        if engine == "first-row" and not options.get("pk-clustering-override"):
            raise InvalidOption("deletion-vectors.enabled", "true", "false with merge engine first-row", table)
    if options.get("branch-merge.enabled"):
        if schema.primary_keys:
            raise InvalidOption("branch-merge.enabled", "true", "false in a table with a primary key", table)
        if options.deletion_vectors_enabled:
            raise InvalidOption("branch-merge.enabled", "true", "false with 'deletion-vectors.enabled'", table)
    if options.get("row-tracking.enabled") and (schema.primary_keys or options.bucket != -1):
        raise InvalidOption(
            "row-tracking.enabled", "true", "false in a table with a primary key or with 'bucket' other than -1", table
        )
    if options.get("data-evolution.enabled") and not options.get("row-tracking.enabled"):
        raise InvalidOption(
            "data-evolution.enabled", "true", "false, or true together with 'row-tracking.enabled'", table
        )


def _check_blobs(schema: TableSchema, options: TableOptions, table: str) -> None:
    """Check the BLOB columns of a new table.

    Raises:
        InvalidSchema: all columns are BLOB, or a partition column is.
        InvalidOption: the table has no data evolution, or `blob-field` names another column.

    Source: Java `SchemaValidation.validateBlobFields`.
    """
    blobs = [field.name for field in schema.fields if field.type.root is TypeRoot.BLOB]
    for name in filter(None, (part.strip() for part in str(options.get("blob-field") or "").split(","))):
        if name not in blobs:
            raise InvalidOption("blob-field", name, "columns of type BLOB, BYTES or BINARY", table)
    if not blobs or schema.primary_keys:
        return
    if not options.get("data-evolution.enabled"):
        accepted = f"true, with 'row-tracking.enabled', in a table with a BLOB column ('{blobs[0]}')"
        raise InvalidOption("data-evolution.enabled", "false", accepted, table)
    if len(blobs) == len(schema.fields):
        raise InvalidSchema(f"table {table}: all columns are BLOB; add a column of another type")
    for name in blobs:
        if name in schema.partition_keys:
            raise InvalidSchema(f"table {table}: partition column '{name}' is BLOB; partition by another column")


def check_manifest_sort(schema: TableSchema, options: TableOptions, table: str) -> None:
    """Check that manifests can be sorted by a partition column if the options enable this.

    Raises:
        InvalidOption: the table has no partitions, or `manifest-sort.partition-field` is no partition column.

    Source: Java `SchemaValidation.validateManifestSort`.
    """
    if not options.get("manifest-sort.enabled"):
        return
    if not schema.partition_keys:
        raise InvalidOption("manifest-sort.enabled", "true", "false in a table without partitions", table)
    name = options.get("manifest-sort.partition-field")
    if name and name not in schema.partition_keys:
        columns = f"a partition column: {', '.join(schema.partition_keys)}"
        raise InvalidOption("manifest-sort.partition-field", name, columns, table)


def _check_clustering(schema: TableSchema, options: TableOptions, table: str) -> None:
    """Refuse options that a table with `clustering.incremental` cannot have, as Java's `SchemaValidation` does.

    Raises:
        InvalidOption: such a table has a primary key, or one of these options.
    """
    key = "clustering.incremental"
    if not options.clusters_incrementally:
        return
    if schema.primary_keys:
        raise InvalidOption(key, "true", "false in a table with a primary key", table)
    if options.get("data-evolution.enabled"):
        raise InvalidOption(key, "true", "false together with 'data-evolution.enabled'", table)
    if options.bucket == -1:
        return
    if options.get("bucket-append-ordered"):
        raise InvalidOption("bucket-append-ordered", "true", f"false together with '{key}'", table)
    if options.deletion_vectors_enabled:
        raise InvalidOption("deletion-vectors.enabled", "true", f"false together with '{key}' and buckets", table)


def _check_writers(options: TableOptions, known: Mapping[str, str], table: str) -> None:
    """Refuse `write-only` together with `commit.force-compact`, unless the table had both options before.

    Args:
        options: options of the new schema.
        known: options of the previous schema; empty for a new table.
        table: name of the table, for errors.
    """
    force = options.get("commit.force-compact")
    stored_so = {"write-only", "commit.force-compact"} <= {
        key for key, value in known.items() if value.lower() == "true"
    }
    if force and options.write_only and not stored_so:
        raise InvalidOption("commit.force-compact", "true", "false in a table that is 'write-only'", table)


def _check_times(schema: TableSchema, options: TableOptions, table: str, known: Container[str]) -> None:
    # Changelogs live as long as snapshots unless told otherwise.
    low = options.get("changelog.num-retained.min") or options.get("snapshot.num-retained.min")
    high = options.get("changelog.num-retained.max") or options.get("snapshot.num-retained.max")
    if high < low:
        raise InvalidOption("changelog.num-retained.max", high, f"at least changelog.num-retained.min ({low})", table)
    stored = "partition.expiration-time" in known  # Java creates such tables since 2.0
    if options.get("partition.expiration-time") is not None and not schema.partition_keys and not stored:
        raise InvalidOption(
            "partition.expiration-time",
            options.raw["partition.expiration-time"],
            "no value in a table without partitions",
            table,
        )
    name = options.get("record-level.time-field")
    if name and schema.has_field(name) and schema.field(name).type.root not in _TIMES:
        raise InvalidOption("record-level.time-field", name, "a column of type INT, BIGINT or TIMESTAMP", table)


def _names(schema: TableSchema) -> Iterator[str]:
    for field in schema.fields:
        yield field.name
        for kind in field.type.with_inner():
            yield from (inner.name for inner in kind.fields)


def _is_avro_name(name: str) -> bool:
    """Return whether Java accepts a name in Avro.

    Java accepts letters of any script, digits and underscores, and no character above 16 bits.
    """
    return (
        all((c.isalpha() or c.isdecimal() or c == "_") and ord(c) < 1 << 16 for c in name) and not name[0].isdecimal()
    )


def _check_reading(
    options: TableOptions, table: str, before: Mapping[str, str], followed: PaimonVersion | None
) -> None:
    """Refuse stored scan options that a read cannot use; options that were stored before may stay.

    Args:
        options: options of the table.
        table: name of the table.
        before: options that were stored before, by key.
        followed: Paimon version whose rules apply, unless the option `dredge.paimon-version` of the table names one.
    """
    now, then = (
        {name: value for name, value in canonical(each).items() if name.strip().lower().startswith(READING)}
        for each in (options.raw, before)
    )
    for name, error in mistyped_reading(now, OTHER_ENGINES).items():
        if name not in then:
            raise InvalidOption(name, error.value, error.accepted, table)
    if now != then:
        with suppress(
            UnsupportedFeature
        ):  # for other engines; tables that nobody could read here are refused elsewhere
            check_reading(options, table, None if options.is_set(PAIMON_VERSION) else followed)


def _check_formats(schema: TableSchema, options: TableOptions, table: str, known: Container[str]) -> None:
    formats = {options.file_format, *(str(name).lower() for name in options.get("file.format.per.level").values())}
    if "avro" not in formats:
        return
    for name in _names(schema):
        if name not in known and not _is_avro_name(name):
            raise InvalidSchema(
                f"table {table}: Avro files cannot hold a column called '{name}': letters, digits, _ only"
            )
    for field, kind in ((column, kind) for column in schema.fields for kind in column.type.with_inner()):
        limit = _AVRO_DIGITS.get(kind.root)
        if limit is not None and (kind.precision or 0) > limit:
            raise InvalidSchema(
                f"table {table}: column '{field.name}' of type {to_sql(kind)} does not fit into Avro files, which keep "
                f"{limit} digits of a second"
            )


def _check_files(schema: TableSchema, options: TableOptions, table: str, before: TableSchema | None) -> None:
    """Refuse options with which the first write would fail; options that were stored before may stay.

    Args:
        schema: the new schema.
        options: options of the new schema.
        table: name of the table.
        before: the previous schema, or None for a new table.
    """
    options_now, options_before = canonical(schema.options), {} if before is None else canonical(before.options)
    new = {key for key in options_now.keys() | options_before.keys() if options_now.get(key) != options_before.get(key)}
    if before is None or new.intersection(settings()) or any(map(is_setting, new)):
        require_usable(options)
    if "spill-compression" in new:
        SpillSpace.of(options)
    if before is None or any(key.startswith("file-index.") for key in new):
        indexed_columns(schema, options)
    for name in options.sequence_field if "sequence.field" in new else ():
        kind = schema.field(name).type
        if kind.root in _NO_KEY:
            raise InvalidOption(
                "sequence.field", name, f"columns of a comparable type, which {to_sql(kind)} is not", table
            )
    column = _kind_column(schema)
    if column is not None and (before is None or _kind_column(before) != column):
        texts = [field.name for field in schema.fields if field.type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)]
        if column[0] not in texts:
            choices = ", ".join(texts) or "none"
            raise InvalidOption("rowkind.field", column[0], f"one text column of: {choices}", table)
    if "data-file.prefix" in new:
        try:
            check_name(options.data_file_prefix + "0", table)
        except InvalidData as error:
            accepted = "the beginning of a plain file name"
            raise InvalidOption("data-file.prefix", options.data_file_prefix, accepted, table) from error
    folder = str(options.get("data-file.path-directory") or "")
    if "data-file.path-directory" in new and (folder.startswith("/") or ".." in folder.split("/")):
        raise InvalidOption("data-file.path-directory", folder, "a folder below the table's own", table)


def _kind_column(schema: TableSchema) -> tuple[str, DataType | None] | None:
    """Return name and type of the column of `rowkind.field`; None without this option or without a primary key."""
    name = canonical(schema.options).get("rowkind.field")
    if name is None or not schema.primary_keys:
        return None
    return name, schema.field(name).type if schema.has_field(name) else None


_TEXT: Final = DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)


def check_default(field: DataField | RowField, table: str, path: str = "") -> None:
    """Raise InvalidSchema if the default of a column, or of a field inside it, is not a value of its type."""
    name = f"{path}{field.name}"
    if field.default is not None:
        kind, place = field.type, f"table {table}: column '{name}'"
        nullable_kind = kind.with_nullable(nullable=True)
        if not castable(_TEXT, nullable_kind, explicit=True):
            raise InvalidSchema(f"{place} of type {to_sql(kind)} cannot have a default value")
        try:
            cast_values(pa.array([field.default], pa.string()), _TEXT, nullable_kind)
        except (DredgeError, CastError) as error:
            raise InvalidSchema(f"{place}: default {field.default!r} is not a {to_sql(kind)} ({error})") from error
    for inner in field.type.fields:
        check_default(inner, table, f"{name}.")


def _require_whole_default(field: DataField | RowField, table: str) -> None:
    """Raise InvalidSchema if the default of a new or changed column loses a part of its value.

    Paimon accepts such defaults. Its writers and Dredge's then write null, infinity, or a cut number or text. Columns
    that have such a default already may keep it.
    """
    if field.default is None:
        return
    value = cast_values(pa.array([field.default], pa.string()), _TEXT, field.type.with_nullable(nullable=True))[
        0
    ].as_py()
    if _is_cut(field.default, value):
        place = f"table {table}: column '{field.name}' of type {to_sql(field.type)}"
        raise InvalidSchema(
            f"{place}: default {field.default!r} does not fit, writers would use {value}; write a default that fits"
        )


def _is_cut(text: str, value: object) -> bool:
    """Return whether the ``value`` of a default is less than its ``text`` means.

    Rounded fractions of FLOAT and DOUBLE are no loss.
    """
    if isinstance(value, bool):
        return False
    if isinstance(value, int | Decimal):
        return Decimal(text) != value
    if isinstance(value, float):
        return math.isinf(value) and "inf" not in text.lower()
    if isinstance(value, str | bytes):
        return len(value) < len(text if isinstance(value, str) else text.encode())
    return value is None

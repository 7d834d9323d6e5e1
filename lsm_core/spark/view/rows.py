"""Raw rows of a set of files, and which of them (or what made of them) is the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.file_meta import ManifestEntry
from lsm_core.format.kv_layout import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.metadata.store import TableStore
from lsm_core.spark.jobs import spark_ddl
from lsm_core.spark.jobs.columns import quoted
from lsm_core.spark.read import parquet
from lsm_core.spark.view.engines import Fold, fold_of
from lsm_core.spark.view.expiry import over_at
from lsm_core.spark.view.values import exact, ordered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSIONS: Final = "__dredge_versions"
_FILES: Final = pa.schema(
    [
        ("__dredge_file", pa.string()),
        ("__dredge_bucket", pa.int32()),
        ("__dredge_level", pa.int32()),
        ("__dredge_age", pa.int32()),
    ]
)
_ADDS: Final = f"{quoted(VALUE_KIND)} IN (0, 2)"


def merged_view(
    spark: SparkSession, store: TableStore, files: Sequence[tuple[int, ManifestEntry]], now_ms: int | None = None
) -> DataFrame:
    """What ``files`` say, each given with the number of its bucket, oldest first within a bucket.

    Columns: those of the table, `__dredge_bucket`, `__dredge_row` (whether the row is part of the answer) and
    `__dredge_versions` (how many stored rows stand behind it). Of a first-row table level 0 counts too: the view is what
    readers see once it is compacted. ``now_ms``: rows whose record-level lifetime is over then stand behind no answer (None:
    none is over, as for readers). Raises UnsupportedFeature for what Spark SQL cannot say.
    """
    raw = _raw_rows(spark, store, files)
    if not store.schema.primary_keys:
        return raw.selectExpr("*", "true AS __dredge_row", f"1 AS {VERSIONS}")
    over = over_at(store, now_ms)
    engine = store.options.merge_engine
    if engine in {"partial-update", "aggregation"}:
        return _folded(raw, store, fold_of(store), over)
    if engine not in {"deduplicate", "first-row"}:
        raise UnsupportedFeature(f"comparing tables of merge engine '{engine}' on Spark", store.name)
    if store.options.ignore_delete:
        raw = raw.where(_ADDS)
    order = _order(store, newest_first=engine == "deduplicate")
    first = f"row_number() OVER (PARTITION BY {_key(store)}, {over} ORDER BY {order})"
    return raw.selectExpr("*", f"({first} = 1 AND {_ADDS} AND NOT {over}) AS __dredge_row", f"1 AS {VERSIONS}")


def _raw_rows(spark: SparkSession, store: TableStore, files: Sequence[tuple[int, ManifestEntry]]) -> DataFrame:
    paths = [store.data_path(entry.partition, entry.bucket, entry.file) for _, entry in files]
    columns = [
        pa.array([entry.file.file_name for _, entry in files]),
        pa.array([number for number, _ in files], pa.int32()),
        pa.array([entry.file.level for _, entry in files], pa.int32()),
        pa.array(range(len(files)), pa.int32()),
    ]
    ddl = spark_ddl(store.schema.fields, store.name)
    if store.schema.primary_keys:
        ddl = f"{quoted(SEQUENCE_NUMBER)} BIGINT, {quoted(VALUE_KIND)} TINYINT, {ddl}"
    stored = parquet(spark, paths, ddl).selectExpr("*", "_metadata.file_name AS __dredge_file")
    return stored.join(spark.createDataFrame(pa.table(columns, schema=_FILES)).hint("broadcast"), "__dredge_file")


def _folded(raw: DataFrame, store: TableStore, fold: Fold, over: str) -> DataFrame:
    """One row a key: its versions in merge order, folded; a lone version is the row itself, a delete too.

    Versions that are ``over`` stand together in a row that is no part of the answer.
    """
    key, order = _key(store), _order(store, newest_first=False)
    nth = f"row_number() OVER (PARTITION BY {key}, {over} ORDER BY {order}) AS n"
    columns = [f"{quoted(field.name)} AS {fold.columns[field.name]}" for field in store.schema.fields]
    numbered = raw.selectExpr("__dredge_bucket AS b", f"{over} AS x", f"{quoted(VALUE_KIND)} AS k", nth, *columns)
    own = ", ".join(["n", "k", *fold.columns.values()])
    exact_key = [exact(fold.columns[name], store.schema.field(name).type) for name in store.schema.primary_keys]
    gathered = numbered.groupBy(*_exprs(["b", "x", *exact_key])).agg(
        *_exprs([f"sort_array(collect_list(struct({own}))) AS v"])
    )
    # a generator keeps the struct whole: else every column of it, and every filter, would fold anew
    folded = f"IF(size(v) > 1 AND NOT x, {fold.expression('v')}, {fold.lone('v')})"
    merged = gathered.selectExpr("b", "x", "size(v) AS s", f"inline(array({folded}))")
    values = [f"{short} AS {quoted(name)}" for name, short in fold.columns.items()]
    kept = "NOT x AND NOT gone AS __dredge_row"
    return merged.selectExpr("b AS __dredge_bucket", f"s AS {VERSIONS}", kept, *values)


def _key(store: TableStore) -> str:
    fields = (store.schema.field(name) for name in store.schema.primary_keys)
    return ", ".join(["__dredge_bucket", *(exact(quoted(field.name), field.type) for field in fields)])


def _order(store: TableStore, newest_first: bool) -> str:
    """Order of a key's versions; a null of a sequence field is older than any value, in both directions."""
    newer, older = ("DESC", "ASC") if newest_first else ("ASC", "DESC")
    greatest = older if store.options.sequence_descending else newer
    terms = []
    for name in store.options.sequence_field:
        field = store.schema.field(name)
        terms += [f"({quoted(name)} IS NOT NULL) {newer}", f"{ordered(quoted(name), field.type)} {greatest}"]
    terms += [f"{quoted(SEQUENCE_NUMBER)} {newer}", f"({_ADDS}) {newer}"]
    return ", ".join([*terms, f"__dredge_level {older}", f"__dredge_age {newer}"])


def _exprs(texts: Sequence[str]) -> list[Any]:
    from pyspark.sql import functions

    return [functions.expr(text) for text in texts]


__all__ = ["VERSIONS", "merged_view"]

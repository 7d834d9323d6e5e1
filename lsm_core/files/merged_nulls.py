"""NOT NULL columns in which merging leaves nulls: a retract removed the value, and no newer row has set a value.

Java's readers return these nulls, but Java's writers reject them. A single retract can therefore prevent all further
compactions of a bucket (1.4.2: "expected not null but found null value"). Dredge declares these columns nullable in
the files, as in files from before an ALTER to NOT NULL, so that a compaction writes the rows that a read returns.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND, key_names
from lsm_core.metadata.store import TableStore

_GROUP: Final = re.compile(r"fields\..+\.sequence-group")


def merging_leaves_nulls(store: TableStore) -> bool:
    """Return whether the table's merge engine can reset a column to null, as aggregates and sequence groups do."""
    if not store.schema.primary_keys:
        return False
    if store.options.merge_engine == "partial-update":
        return any(_GROUP.fullmatch(key) for key in store.options.raw)
    return store.options.merge_engine == "aggregation"


def with_merged_nulls(store: TableStore, layout: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of a key-value file, with all columns nullable in which merging may leave nulls.

    Merging may leave nulls in all columns except the primary key, its `_KEY_*` columns and the system columns.
    """
    if not merging_leaves_nulls(store):
        return layout
    always = {*store.schema.primary_keys, *key_names(store.schema), SEQUENCE_NUMBER, VALUE_KIND}
    return pa.schema([f if f.name in always else f.with_nullable(nullable=True) for f in layout])

"""Check `deletion_vectors_valid`: deletion vectors of the newest snapshot, or a sample, fit their data files."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile
from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.outcome import CheckReport, Question
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes import deletion_vectors, read_vector, require_in_place


def deletion_vectors_valid(question: Question) -> CheckReport:
    """Check that positions are in range and as many as recorded, and that the file is live in the vector's bucket.

    Vectors of files that are no longer live are counted and are no failure: Java leaves some behind, and no reader
    opens them.

    Args:
        question: store, snapshot and limits; `limits.vectors` bounds the sample.
    """
    store, snapshot = question.store, question.snapshot
    columns = ["partition", "bucket", "file_name", "row_count"]
    vectors = deletion_vectors(store, snapshot)
    places = [(place, name, vector) for place, files in vectors.items() for name, vector in files.items()]
    names = pa.array([name for _, name, _ in places], pa.string())
    parts = [
        part.filter(pc.is_in(part.column("file_name"), names)).select(columns)
        for part in manifests.iter_live(store, snapshot)
    ]
    live = pa.concat_tables([manifests.NO_ENTRIES.select(columns), *parts])
    problems: list[str] = []
    try:
        require_in_place(store, snapshot, live)
    except CorruptFile as error:
        problems.append(str(error))
    rows = dict(zip(*(live.column(name).to_pylist() for name in ("file_name", "row_count")), strict=True))
    stale = sum(name not in rows for _, name, _ in places)
    chosen = sorted(
        (place for place in places if place[1] in rows),
        key=lambda place: hashlib.sha256(f"{question.seed} {place[1]}".encode()).digest(),
    )[: question.limits.vectors]
    marked = 0
    for (partition, bucket), name, vector in chosen:
        try:
            marked += read_vector(store, vector, rows[name]).cardinality
        except CorruptFile as error:
            where = bucket_name(partition_text(store.schema, partition, store.options), bucket)
            problems.append(f"{where}: vector of {name}: {error}")
    numbers = {
        "vectors_read": len(chosen),
        "vectors": len(places),
        "rows_marked": marked,
        "vectors_of_files_gone": stale,
    }
    if problems:
        return question.fails(f"{len(problems)} of {len(chosen)} vectors are wrong: {problems[0]}", problems, **numbers)
    text = f"{len(chosen)} of {len(places)} deletion vectors mark {marked:,} rows, all of live files"
    return question.passes(text, **numbers)

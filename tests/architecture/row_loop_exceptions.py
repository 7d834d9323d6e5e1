"""Where a data path may make Python objects: `file: function` and why no loop over rows is behind it."""

from __future__ import annotations

ALLOWED: dict[str, str] = {
    "compact/verify.py: finish": "two values per output file: its first and its last key",
    "format/binary_row/__init__.py: encode_row": "the one-row form of the encoder, for keys of metadata",
    "format/binary_row/__init__.py: _python": "the one-row form of the decoder, for keys of metadata",
    "format/hashing.py: _mix_tail": "words of the few rows that are much longer than all others; the rest goes by column",
    "merge/engines/errors.py: key_of": "one key for an error message",
    "merge/functions/numeric.py: _numbers": "groups of many rows one by one; decimals only where a precision may be left",
    "merge/rows.py: span": "one number per open batch of an input",
    "read/predicate.py: _scalar": "a value of the user's filter",
    "read/predicate.py: _exact": "a value of the user's filter",
    "read/predicate.py: _listed": "the values of one IN list of the user's filter",
    "read/predicate.py: _expression": "a value of the user's filter",
    "read/cut.py: splits": "one item per split, or per file in plain lists of numbers",
    "read/prune/places.py: _choices": "values of the user's filter",
    "read/prune/guarantees.py: conjoin": "one expression per key column of a file's metadata",
    "read/prune/bounds.py: _by_value": "a value of the user's filter",
    "read/prune/statistics.py: _layouts": "metadata of files, one item per file",
    "read/prune/statistics.py: _null_counts": "metadata of files, one item per file",
    "read/prune/statistics.py: _decoded": "one answer for a column of metadata",
    "read/scan.py: _exact_partitions": "partitions named by the user's filter",
    "spark/jobs/tasks.py: run": "one item per task",
    "spark/read.py: run": "one item per split",
    "spark/write.py: _slot": "one item per distinct partition of a batch",
    "spark/write.py: _groups": "one item per group of rows of one bucket",
    "write/bucket/fixed.py: partition_codes": "one item per distinct partition of a batch",
    "write/restore.py: _check_total": "one number for an error message",
    "write/restore.py: look_up": "one item per bucket that a batch touches",
    "write/rows.py: _cast": "one value for an error message",
    "write/table_write.py: _conform": "one number per column and batch",
}

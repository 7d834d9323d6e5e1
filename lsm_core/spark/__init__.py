"""Dredge on Spark: sessions, the data source `dredge`, and jobs that write, read, compact, expire and verify tables.

No function imports pyspark before it is called, so that the search for a Java or the name of an error needs no Spark.
Every call takes a `lsm_core.Table` (or its `TableStore`), and works on classic and on Connect sessions. Rules of
merging and maintenance are the engine's: this package only distributes the work. Begin with `spark_write` and
`spark_read`, or with docs/spark.md.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

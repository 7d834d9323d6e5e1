"""SQL statements over a warehouse: parsing (`statements`, `parsing`) and execution on a catalog without Spark.

This package does not import Spark; `lsm_core.spark` supplies the query engine for Spark. Names in a statement are
resolved in the catalog only: a statement cannot name a file, an address or a function outside the engine. Begin with
`running`.
"""

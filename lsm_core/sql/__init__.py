"""SQL statements over a warehouse: read (`statements`, `parsing`), and carried out on a catalog without Spark.

Nothing here knows Spark; `lsm_core.spark` brings its own engine for queries. What a text names is looked up in the catalog alone:
no file, no address and no function outside the engine can be named.
"""

"""SQL over a warehouse: queries that Spark answers over Dredge's reads, and Paimon's procedures (`CALL sys.compact(...)`) as maintenance plans.

What procedures do is planned and applied without Spark; the modules here import pyspark where a query runs only.
"""

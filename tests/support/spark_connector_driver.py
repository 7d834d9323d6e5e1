"""Driver inside .peers/paimon-spark: Spark SQL with Paimon's connector, one JSON command and one answer per line.

A command has the warehouse's path ("" for Spark's own catalog), options of its catalog, and the text of one statement; a
new warehouse becomes the current catalog. The answer has the columns and rows, or the error. Rows of an incremental
read come from the data frame reader.
"""

import datetime
import decimal
import json
import sys

from pyspark.sql import Row, SparkSession


def plain(value):
    """Return a value of Spark as JSON: dates, times, decimals and bytes as text."""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, Row | tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return sorted(([plain(key), plain(one)] for key, one in value.items()), key=repr)
    return value


class Driver:
    """One Spark session, with a catalog for each warehouse."""

    def __init__(self, spark):
        self.spark = spark
        self.catalogs = {}

    def use(self, warehouse, options):
        """Make the catalog of a warehouse the current one; it keeps no table in memory between statements."""
        if not warehouse:
            self.spark.catalog.setCurrentCatalog("spark_catalog")
            return
        if warehouse not in self.catalogs:
            name = f"paimon{len(self.catalogs)}"
            prefix = f"spark.sql.catalog.{name}"
            self.spark.conf.set(prefix, "org.apache.paimon.spark.SparkCatalog")
            self.spark.conf.set(f"{prefix}.warehouse", warehouse)
            self.spark.conf.set(f"{prefix}.cache-enabled", "false")
            for key, value in options.items():
                self.spark.conf.set(f"{prefix}.{key}", value)
            self.catalogs[warehouse] = name
        self.spark.catalog.setCurrentCatalog(self.catalogs[warehouse])

    def run(self, command):
        """Run one command; return its columns and rows."""
        self.use(command["warehouse"], command.get("catalog_options", {}))
        if "sql" in command:
            frame = self.spark.sql(command["sql"])
        else:
            reader = self.spark.read.options(**command["options"])
            frame = reader.table(f"{self.catalogs[command['warehouse']]}.{command['table']}")
        return {"columns": frame.columns, "rows": [plain(row) for row in frame.collect()]}


def main():
    """Answer commands until the input ends."""
    jar, folder, *settings = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").appName("paimon-connector")
    conf = {
        "spark.jars": jar,
        "spark.driver.extraClassPath": jar,
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": folder,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **dict(one.split("=", 1) for one in settings),
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    driver = Driver(spark)
    print("PEER " + json.dumps({"ok": True, "spark": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            answer = {"ok": True, **driver.run(json.loads(line))}
        except Exception as error:
            answer = {"ok": False, "class": type(error).__name__, "error": str(error)[:4000]}
        print("PEER " + json.dumps(answer), flush=True)
    spark.stop()


main()

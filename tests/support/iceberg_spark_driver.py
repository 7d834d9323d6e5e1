"""Driver inside .peers/paimon-spark: Spark with Iceberg's runtime reads tables; one JSON command and answer per line."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main():
    """Answer commands until the input ends."""
    jar, folder, *settings = sys.argv[1:]
    conf = {
        "spark.jars": jar,
        "spark.driver.extraClassPath": jar,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": folder,
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **dict(setting.split("=", 1) for setting in settings),
    }
    builder = SparkSession.builder.master("local[1]").appName("iceberg")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for number, line in enumerate(sys.stdin):
        command = json.loads(line)
        try:
            reader = spark.read.format("iceberg").options(**command["options"])
            out = f"{folder}/rows-{number}"
            reader.load(command["table"]).coalesce(1).write.parquet(out)
            answer = {"ok": True, "file": str(next(Path(out).glob("*.parquet")))}
        except Exception as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"[:4000]}
        print("PEER " + json.dumps(answer), flush=True)
    spark.stop()


main()

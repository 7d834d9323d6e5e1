"""dagster-paimon with frames of Spark, and the blocks of its README; its other tests are in its own folder."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from dagster_paimon import PaimonIOManager, PaimonTables
from lsm_core import Catalog

README = Path(__file__).parents[2] / "integrations" / "dagster-paimon" / "README.md"
DAYS = dg.StaticPartitionsDefinition(["mon", "tue", "wed"])


def run(folder: Path, *assets: Any, **more: Any) -> None:
    manager = PaimonIOManager(warehouse=str(folder), database="shop")
    assert dg.materialize(list(assets), resources={"io_manager": manager}, **more).success


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*backfill_policy.*in beta")
def test_frames_of_spark_replace_the_partitions_of_a_run(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import DataFrame

    frames = [[("mon", 1), ("tue", 2)], [("mon", 3)]]

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=dg.BackfillPolicy.single_run())
    def visits() -> DataFrame:
        return spark.createDataFrame(frames.pop(0), "day STRING, n BIGINT")

    @dg.asset(ins={"visits": dg.AssetIn()})
    def total(visits: DataFrame) -> DataFrame:
        return visits.groupBy("day").sum("n")

    days = {"dagster/asset_partition_range_start": "mon", "dagster/asset_partition_range_end": "tue"}
    run(tmp_path, visits, tags=days)
    run(tmp_path, visits, total, tags=days)
    assert Catalog(str(tmp_path)).table("shop.visits").to_arrow().to_pylist() == [{"day": "mon", "n": 3}]
    assert Catalog(str(tmp_path)).table("shop.total").to_arrow().to_pylist() == [{"day": "mon", "sum(n)": 3}]


@pytest.mark.spark
def test_frames_of_spark_with_rows_outside_the_partition_are_not_appended(spark: Any, tmp_path: Path) -> None:
    frames = [[("mon", 1)], [("mon", 2), (None, 3)]]

    @dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day", "mode": "append"})
    def visits() -> Any:
        return spark.createDataFrame(frames.pop(0), "day STRING, n BIGINT")

    run(tmp_path, visits, partition_key="mon")
    with pytest.raises(dg.Failure, match=r"partitions \(None,\).*nothing is written"):
        run(tmp_path, visits, partition_key="mon")
    assert Catalog(str(tmp_path)).table("shop.visits").to_arrow().to_pylist() == [{"day": "mon", "n": 1}]


def test_the_blocks_of_the_readme_run(tmp_path: Path) -> None:
    code, config = (
        re.search(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL).group(1).replace("/data", str(tmp_path))  # type: ignore[union-attr]
        for language in ("python", "yaml")
    )
    names: dict[str, Any] = {}
    exec(compile(code, str(README), "exec", dont_inherit=True), names)
    assets = [names["visits"], names["pages"]]
    resources = {"io_manager": names["io_manager"]}
    assert dg.materialize(assets[:1], resources=resources, partition_key="2024-01-01").success
    assert dg.materialize(assets, resources=resources, selection=[names["pages"]]).success
    pages = Catalog(str(tmp_path / "warehouse")).table("shop.pages").to_arrow().to_pylist()
    assert sorted(map(tuple, map(dict.values, pages))) == [("a", 3), ("b", 4)]
    attributes = yaml.safe_load(config)["attributes"]
    assert set(attributes) <= set(PaimonTables.model_fields)

"""Spark for ops and checks: a dagster-pyspark resource whose session is the engine's own, made only when it is used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
from pydantic import PrivateAttr

from lsm_core.errors import InvalidOption

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource

    from lsm_core.compact import BucketResult, BucketTask
    from lsm_core.maintenance import Runner
    from lsm_core.metadata.store import TableStore

RUNNER_VARIABLE: Final = "DREDGE_RUNNER"
REMOTE_VARIABLE: Final = "DREDGE_SPARK_REMOTE"
_RUNNERS: Final = ("spark", "local")


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Runs bucket tasks on Spark (``runner="spark"``) or in this process (``"local"``, for machines without Java).

    ``remote``: address of a shared Spark Connect server (``sc://localhost:15002``); empty: a classic local session.
    Neither pyspark nor dagster-pyspark is imported before the first use.
    """

    runner: str = "spark"
    remote: str = ""
    _pyspark: Any = PrivateAttr(default=None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> SparkResource:
        """Read ``DREDGE_RUNNER`` and ``DREDGE_SPARK_REMOTE``; raises ``InvalidOption``."""
        values = os.environ if environment is None else environment
        runner = values.get(RUNNER_VARIABLE, "").strip().lower() or "spark"
        if runner not in _RUNNERS:
            raise InvalidOption(RUNNER_VARIABLE, runner, " or ".join(_RUNNERS))
        return cls(runner=runner, remote=values.get(REMOTE_VARIABLE, "").strip())

    @property
    def uses_spark(self) -> bool:
        """Whether work goes to Spark."""
        return self.runner == "spark"

    def pyspark(self) -> LazyPySparkResource:
        """Return dagster-pyspark's resource around the engine's session; raises ``JavaNotFound``, ``SparkFailed``."""
        if self._pyspark is None:
            from dagster_pyspark import LazyPySparkResource

            from lsm_core.spark import spark_session
            from lsm_core.spark.session import SESSION_CONF

            resource = LazyPySparkResource(spark_config=dict(SESSION_CONF))
            # Its own getOrCreate knows neither our Java nor our Connect server: hand it the session it would have made.
            resource._spark_session = spark_session(self.remote or None)
            self._pyspark = resource
        found: LazyPySparkResource = self._pyspark
        return found

    def session(self) -> Any:
        """Return the Spark session (classic or Connect)."""
        return self.pyspark().spark_session

    def bucket_runner(self) -> Runner | None:
        """Return what executes bucket tasks: Spark's runner (its session is made with the first tasks), or None for this process."""
        if not self.uses_spark:
            return None

        def run_on_spark(store: TableStore, tasks: Sequence[BucketTask], /) -> Iterable[BucketResult]:
            from lsm_core.spark import spark_runner

            return spark_runner(self.session())(store, tasks)

        return run_on_spark

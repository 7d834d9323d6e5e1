"""Spark for ops and checks: a dagster-pyspark resource whose session is the engine's own, made only when it is used."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
from pydantic import Field, PrivateAttr

from lsm_core.errors import InvalidOption

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource

    from lsm_core.compact import BucketResult, BucketTask
    from lsm_core.maintenance.action import TaskRunner
    from lsm_core.metadata.store import TableStore

RUNNER_VARIABLE: Final = "DREDGE_RUNNER"
REMOTE_VARIABLE: Final = "DREDGE_SPARK_REMOTE"
SUBMIT_VARIABLE: Final = "DREDGE_SPARK_SUBMIT"
_RUNNERS: Final = ("spark", "local", "pipes")


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Runs bucket tasks on Spark (``runner="spark"``) or in this process (``"local"``, for machines without Java), or has whole
    plans applied by a program that ``submit`` starts (``"pipes"``: the words of a spark-submit command line without its script).

    ``remote``: address of a shared Spark Connect server (``sc://localhost:15002``); empty: a classic local session.
    Neither pyspark nor dagster-pyspark is imported before the first use.
    """

    runner: str = "spark"
    remote: str = ""
    submit: list[str] = Field(default_factory=list)
    _pyspark: Any = PrivateAttr(default=None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> SparkResource:
        """Read ``DREDGE_RUNNER``, ``DREDGE_SPARK_REMOTE`` and ``DREDGE_SPARK_SUBMIT``; raises ``InvalidOption``."""
        values = os.environ if environment is None else environment
        runner = values.get(RUNNER_VARIABLE, "").strip().lower() or "spark"
        if runner not in _RUNNERS:
            raise InvalidOption(RUNNER_VARIABLE, runner, " or ".join(_RUNNERS))
        return cls(runner=runner, remote=values.get(REMOTE_VARIABLE, "").strip(), submit=_submit(values, runner))

    @property
    def uses_pipes(self) -> bool:
        """Whether plans are applied by a program of their own."""
        return self.runner == "pipes"

    def command(self) -> list[str]:
        """Return the command line that applies a plan elsewhere, its script included."""
        from orchestration import pipes_worker

        return [*self.submit, str(pipes_worker.__file__)]

    def driver_environment(self) -> dict[str, str]:
        """Return variables for that command: spark-submit has this Python run the script, unless another one is named.

        Its driver runs beside the run; the ``python3`` of the PATH, which Spark would take, need not have Dredge.
        """
        named = {"PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"}.intersection(os.environ)
        return {} if named else {"PYSPARK_DRIVER_PYTHON": sys.executable}

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

    def task_runner(self) -> TaskRunner | None:
        """Return what does the work of plans on Spark (its session is made with the first work), or None: this process does it."""
        return _OnSpark(self.session) if self.uses_spark else None


@dataclass(frozen=True)
class _OnSpark:
    """The engine's runner, made with the first work that it is given: a table with little to do starts no Spark."""

    session: Callable[[], Any]

    def slots(self) -> int:
        """See TaskRunner."""
        return self._runner().slots()

    def run_parts(self, what: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        """See TaskRunner."""
        return self._runner().run_parts(what, work, parts)

    def __call__(self, store: TableStore, tasks: Sequence[BucketTask], /) -> Iterable[BucketResult]:
        """See Runner."""
        return self._runner()(store, tasks)

    def _runner(self) -> TaskRunner:
        from lsm_core.spark import spark_runner

        return spark_runner(self.session())


def _submit(values: Mapping[str, str], runner: str) -> list[str]:
    """The words of the command that starts a script on a cluster."""
    text = values.get(SUBMIT_VARIABLE, "").strip()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidOption(SUBMIT_VARIABLE, text, f"a command line ({error})") from error
    if runner == "pipes" and not words:
        accepted = (
            f"a command that runs a Python script, like 'spark-submit --master yarn', for {RUNNER_VARIABLE}=pipes"
        )
        raise InvalidOption(SUBMIT_VARIABLE, text, accepted)
    return words

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
from lsm_core.json_reader import parse_json

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource

    from lsm_core.compact import BucketResult, BucketTask
    from lsm_core.maintenance.action import TaskRunner
    from lsm_core.metadata.store import TableStore

RUNNER_VARIABLE: Final = "DREDGE_RUNNER"
REMOTE_VARIABLE: Final = "DREDGE_SPARK_REMOTE"
SUBMIT_VARIABLE: Final = "DREDGE_SPARK_SUBMIT"
CONFIG_VARIABLE: Final = "DREDGE_SPARK_CONFIG"
_RUNNERS: Final = ("spark", "local", "pipes")
_MASTER: Final = "spark.master"
_REMOTE: Final = "spark.remote"


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Runs bucket tasks on Spark (``runner="spark"``) or in this process (``"local"``, for machines without Java), or has whole
    plans applied by a program that ``submit`` starts (``"pipes"``: the words of a spark-submit command line without its script).

    The session is that of dagster-pyspark's `LazyPySparkResource`, whose ``spark_config`` holds the engine's settings and, winning, the
    resource's own. Neither pyspark nor dagster-pyspark is imported before the first use.

    Attributes:
        runner: ``spark``, ``local`` or ``pipes``.
        remote: address of a shared Spark Connect server (``sc://localhost:15002``), empty for a Spark of this process.
        submit: words of the command line that starts a program on a cluster.
        spark_config: settings of Spark as dagster-pyspark takes them, flat (``{"spark.driver.memory": "4g"}``) or nested; ``spark.master``
            names a cluster, ``spark.remote`` a Connect server. The web page of the code location shows them: no secrets.
    """

    runner: str = "spark"
    remote: str = ""
    submit: list[str] = Field(default_factory=list)
    spark_config: dict[str, Any] = Field(default_factory=dict)
    _pyspark: Any = PrivateAttr(default=None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> SparkResource:
        """Read ``DREDGE_RUNNER``, ``DREDGE_SPARK_REMOTE``, ``DREDGE_SPARK_SUBMIT`` and ``DREDGE_SPARK_CONFIG``; raises ``InvalidOption``."""
        values = os.environ if environment is None else environment
        runner = values.get(RUNNER_VARIABLE, "").strip().lower() or "spark"
        if runner not in _RUNNERS:
            raise InvalidOption(RUNNER_VARIABLE, runner, " or ".join(_RUNNERS))
        return cls(
            runner=runner,
            remote=values.get(REMOTE_VARIABLE, "").strip(),
            submit=_submit(values, runner),
            spark_config=_spark_config(values),
        )

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
        """Return dagster-pyspark's resource, whose session is made and prepared for the engine.

        Raises:
            InvalidOption: a setting in ``spark_config`` is none of Spark's, or cannot be set where the session is.
            JavaNotFound: there is no Java to start Spark with.
            SparkFailed: Spark does not start, or the Connect server does not answer.
        """
        if self._pyspark is None:
            from dagster_pyspark import LazyPySparkResource

            from lsm_core.spark import spark_session
            from lsm_core.spark.session import LOCAL_MASTER

            conf = flat_spark_config(self.spark_config)
            remote = conf.pop(_REMOTE, "") or self.remote or os.environ.get(REMOTE_VARIABLE, "")
            if self.remote not in ("", remote):
                accepted = f"the same server as {REMOTE_VARIABLE}, {_without_token(self.remote)}"
                raise InvalidOption(_REMOTE, _without_token(remote), accepted)
            started = next((key for key in conf if not key.startswith("spark.sql.")), None) if remote else None
            if started is not None:
                accepted = "settings of sessions (spark.sql.*) where a Spark Connect server runs the work: its own start decides the others"
                raise InvalidOption("spark_config", started, accepted)
            made: list[LazyPySparkResource] = []

            def create(settings: dict[str, str]) -> Any:
                made.append(LazyPySparkResource(spark_config=settings))
                return made[-1].spark_session

            spark_session(remote or None, master=conf.pop(_MASTER, LOCAL_MASTER), conf=conf, create=create)
            self._pyspark = made[-1]
        resource: LazyPySparkResource = self._pyspark
        return resource

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


def flat_spark_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Return Spark's settings by their full names, as text.

    Args:
        config: settings as dagster-pyspark takes them: flat or nested, in any mixture.

    Raises:
        InvalidOption: a name is none of Spark's, or a value is neither text, nor a number, nor true or false.
    """
    found: dict[str, str] = {}
    waiting = list(config.items())
    while waiting:
        name, value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting += [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif not str(name).startswith("spark."):
            raise InvalidOption("spark_config", name, "a setting of Spark (spark.executor.memory, spark.sql...)")
        elif isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            found[name] = str(value)
        else:
            raise InvalidOption(name, value, "text, a number, or true or false")
    return found


def _without_token(remote: str) -> str:
    """Return the address of a Connect server without its parameters, of which one may be a secret."""
    return remote.split("/;", maxsplit=1)[0]


def _spark_config(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of Spark that the environment names, by their full names."""
    text = values.get(CONFIG_VARIABLE, "").strip()
    if not text:
        return {}
    accepted = 'a JSON object of Spark settings, like {"spark.driver.memory": "4g"}'
    try:
        config = parse_json(text)
    except ValueError as error:
        raise InvalidOption(CONFIG_VARIABLE, text, f"{accepted} ({error})") from error
    if not isinstance(config, dict):
        raise InvalidOption(CONFIG_VARIABLE, text, accepted)
    return dict(flat_spark_config(config))

"""Spark for ops and checks: a dagster-pyspark resource with the engine's own session, created on first use."""

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
from lsm_core.json_text import parse_json

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
    """Resource that runs the tasks of plans.

    ``runner="spark"`` runs bucket tasks on Spark. ``"local"`` runs them in this process, for machines without Java.
    ``"pipes"`` starts a program that applies whole plans, by ``submit``: a spark-submit command line without a script.

    The session comes from dagster-pyspark's `LazyPySparkResource`. Its ``spark_config`` has the engine's settings,
    overridden by the ``spark_config`` of this resource. pyspark and dagster-pyspark are imported on first use.

    Attributes:
        runner: ``spark``, ``local`` or ``pipes``.
        remote: address of a shared Spark Connect server (``sc://localhost:15002``), or "" to start Spark in this
            process.
        submit: command line, word by word, that starts a program on a cluster.
        spark_config: settings of Spark as dagster-pyspark takes them, flat (``{"spark.driver.memory": "4g"}``) or
            nested; ``spark.master`` names a cluster, ``spark.remote`` a Connect server. The web page of the code
            location shows them: no secrets.
    """

    runner: str = "spark"
    remote: str = ""
    submit: list[str] = Field(default_factory=list)
    spark_config: dict[str, Any] = Field(default_factory=dict)
    _pyspark: Any = PrivateAttr(default=None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> SparkResource:
        """Read the resource from the environment.

        The variables are ``DREDGE_RUNNER``, ``DREDGE_SPARK_REMOTE``, ``DREDGE_SPARK_SUBMIT`` and
        ``DREDGE_SPARK_CONFIG``.

        Raises:
            InvalidOption: a value is invalid; the message names the variable.
        """
        values = os.environ if environment is None else environment
        runner = values.get(RUNNER_VARIABLE, "").strip().lower() or "spark"
        if runner not in _RUNNERS:
            raise InvalidOption(RUNNER_VARIABLE, runner, " or ".join(_RUNNERS))
        return cls(
            runner=runner,
            remote=values.get(REMOTE_VARIABLE, "").strip(),
            submit=_submit_words(values, runner),
            spark_config=_spark_config(values),
        )

    @property
    def uses_pipes(self) -> bool:
        """Whether a separate program applies the plans."""
        return self.runner == "pipes"

    def command(self) -> list[str]:
        """Return the command line of the program that applies a plan, including its script."""
        from dredge.platform_core import pipes_worker

        return [*self.submit, str(pipes_worker.__file__)]

    def driver_environment(self) -> dict[str, str]:
        """Return environment variables that make spark-submit run the driver with this process's Python.

        The driver runs on this machine. Spark's default, ``python3`` of the PATH, may not have Dredge. If a Python is
        already configured, that Python is used.
        """
        has_python = {"PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"}.intersection(os.environ)
        return {} if has_python else {"PYSPARK_DRIVER_PYTHON": sys.executable}

    @property
    def uses_spark(self) -> bool:
        """Whether Spark runs the tasks."""
        return self.runner == "spark"

    def pyspark(self) -> LazyPySparkResource:
        """Return dagster-pyspark's resource, with a session prepared for the engine.

        Raises:
            InvalidOption: a setting in ``spark_config`` is invalid, or cannot be set in a Connect session.
            JavaNotFound: no Java was found to start Spark.
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
            static_setting = next((key for key in conf if not key.startswith("spark.sql.")), None) if remote else None
            if static_setting is not None:
                accepted = "session settings (spark.sql.*): a Spark Connect server gets all others when it starts"
                raise InvalidOption("spark_config", static_setting, accepted)
            resources: list[LazyPySparkResource] = []

            def create(settings: dict[str, str]) -> Any:
                resources.append(LazyPySparkResource(spark_config=settings))
                return resources[-1].spark_session

            spark_session(remote or None, master=conf.pop(_MASTER, LOCAL_MASTER), conf=conf, create=create)
            self._pyspark = resources[-1]
        resource: LazyPySparkResource = self._pyspark
        return resource

    def session(self) -> Any:
        """Return the Spark session (classic or Connect)."""
        return self.pyspark().spark_session

    def task_runner(self) -> TaskRunner | None:
        """Return the runner for tasks on Spark, or None to run the tasks in this process.

        The Spark session starts with the first task.
        """
        return _LazySparkRunner(self.session) if self.uses_spark else None


@dataclass(frozen=True)
class _LazySparkRunner:
    """Spark runner that starts the Spark session with the first task, so that a run without tasks starts no Spark.

    Attributes:
        session: returns the Spark session.
    """

    session: Callable[[], Any]

    def slots(self) -> int:
        """Return the number of tasks that run at the same time."""
        return self._runner().slots()

    def run_parts(self, title: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        """Run a function on each of the serialized parts of some work, in tasks of Spark.

        Args:
            title: name of the work, for errors and progress.
            work: function that Spark's workers can import; it turns one part into its result.
            parts: serialized parts.

        Returns:
            Results in the order of the parts.
        """
        return self._runner().run_parts(title, work, parts)

    def __call__(self, store: TableStore, tasks: Sequence[BucketTask], /) -> Iterable[BucketResult]:
        """Run the tasks of a plan on Spark and return their results."""
        return self._runner()(store, tasks)

    def _runner(self) -> TaskRunner:
        from lsm_core.spark import spark_runner

        return spark_runner(self.session())


def _submit_words(values: Mapping[str, str], runner: str) -> list[str]:
    """Return the command line, word by word, that starts a script on a cluster.

    Args:
        values: environment variables.
        runner: name of the runner; `pipes` requires a command.
    """
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
        InvalidOption: a name does not begin with ``spark.``, or a value is no text, number or boolean.
    """
    settings: dict[str, str] = {}
    pending = list(config.items())
    while pending:
        name, value = pending.pop(0)
        if isinstance(value, Mapping):
            pending += [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif not str(name).startswith("spark."):
            raise InvalidOption("spark_config", name, "a setting of Spark (spark.executor.memory, spark.sql...)")
        elif isinstance(value, bool):
            settings[name] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            settings[name] = str(value)
        else:
            raise InvalidOption(name, value, "text, a number, or true or false")
    return settings


def _without_token(remote: str) -> str:
    """Return the address of a Connect server without its parameters, which may contain a secret."""
    return remote.split("/;", maxsplit=1)[0]


def _spark_config(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the Spark settings of the environment, by their full names."""
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

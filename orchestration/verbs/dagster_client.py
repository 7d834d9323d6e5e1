"""Small GraphQL client for Dagster's web server, used by the demo to read ticks, runs and checks and to launch runs."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lsm_core.errors import DredgeError
from lsm_core.json_text import parse_json

REPOSITORY: Final = "__repository__"
LOCATION: Final = "dredge"
_TICKS: Final = """
query Ticks($sensor: SensorSelector!, $limit: Int!, $withLogs: Boolean!) {
  sensorOrError(sensorSelector: $sensor) {
    __typename
    ... on PythonError { message }
    ... on Sensor { sensorState { status ticks(limit: $limit) {
      status timestamp endTimestamp skipReason cursor runIds runKeys
      error { message } logEvents @include(if: $withLogs) { events { message } }
    } } }
  }
}"""
_RUNS: Final = """
query Runs($limit: Int!, $filter: RunsFilter) {
  runsOrError(limit: $limit, filter: $filter) {
    __typename
    ... on PythonError { message }
    ... on Runs { results { runId jobName status startTime endTime creationTime tags { key value } } }
  }
}"""
_CHECKS: Final = """
query Checks($asset: AssetKeyInput!, $check: String!, $limit: Int!) {
  assetCheckExecutions(assetKey: $asset, checkName: $check, limit: $limit) {
    runId timestamp evaluation { success severity description }
  }
}"""
_MADE: Final = """
query Made($asset: AssetKeyInput!) {
  assetOrError(assetKey: $asset) {
    __typename
    ... on Asset { assetMaterializations(limit: 1) { runId metadataEntries {
      label ... on JsonMetadataEntry { jsonString }
    } } }
  }
}"""
_LOCATIONS: Final = """
query { workspaceOrError { __typename ... on Workspace { locationEntries {
  name loadStatus locationOrLoadError { __typename ... on PythonError { message } }
} } } }"""
_LAUNCH: Final = """
mutation Launch($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } ... on InvalidSubsetError { message }
} }"""


class PlatformFailed(DredgeError):
    """Error: Dagster did not start, or gave no valid answer.

    Attributes:
        operation: text that names the failed operation.
        reason: text of the error.
    """

    def __init__(self, operation: str, reason: str) -> None:
        self.operation, self.reason = operation, reason
        super().__init__(f"Dagster failed at {operation}: {reason}")


@dataclass(frozen=True)
class Tick:
    """One tick of a sensor.

    Attributes:
        status: status in Dagster.
        started: start in epoch seconds, different for each tick of a sensor.
        ended: end in epoch seconds, or None.
        skip_reason: reason why the tick started no run.
        lines: log of the tick, one line per table or partition.
        run_ids: ids of the runs that the tick started.
        run_keys: run keys of the started runs.
        error: error of the tick, or "".
    """

    status: str
    started: float
    ended: float | None
    skip_reason: str
    lines: tuple[str, ...]
    run_ids: tuple[str, ...]
    run_keys: tuple[str, ...]
    error: str

    @property
    def text(self) -> str:
        """Skip reason and log of the tick."""
        return "\n".join((self.skip_reason, *self.lines)).strip()


@dataclass(frozen=True)
class Run:
    """One run of a Dagster job.

    Attributes:
        run_id: id of the run.
        job: name of the run's job.
        status: status in Dagster.
        created: creation in epoch seconds.
        started: start in epoch seconds, or None.
        ended: end in epoch seconds, or None.
        tags: tags of the run.
    """

    run_id: str
    job: str
    status: str
    created: float
    started: float | None
    ended: float | None
    tags: Mapping[str, str]

    @property
    def finished(self) -> bool:
        """Whether the run ended, successfully or not."""
        return self.status in {"SUCCESS", "FAILURE", "CANCELED"}


@dataclass(frozen=True)
class CheckResult:
    """One evaluation of an asset check.

    Attributes:
        passed: whether the check passed.
        severity: severity of a failure.
        description: description of the evaluation.
        run_id: run of the evaluation, or "" if a sensor reported it without a run.
        time: epoch seconds.
    """

    passed: bool
    severity: str
    description: str
    run_id: str
    time: float


@dataclass(frozen=True)
class DagsterClient:
    """GraphQL client of Dagster's web server.

    Attributes:
        url: address of the web server, like ``http://127.0.0.1:3000``.
    """

    url: str

    def query(self, text: str, variables: Mapping[str, Any] | None = None, timeout_s: float = 30) -> dict[str, Any]:
        """Send a GraphQL query and return ``data`` of the answer.

        Args:
            text: text of the query.
            variables: variables of the query by name.
            timeout_s: time to wait for the answer (seconds).

        Raises:
            PlatformFailed: the server does not answer, or refuses the query.
        """
        body = json.dumps({"query": text, "variables": dict(variables or {})}).encode()
        request = urllib.request.Request(  # noqa: S310  (the address is our own, always http on loopback)
            f"{self.url}/graphql", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
                document: dict[str, Any] = parse_json(answer.read())
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise PlatformFailed(f"a query to {self.url}", str(error)) from error
        if document.get("errors"):
            raise PlatformFailed("a query", str(document["errors"][0].get("message")))
        data: dict[str, Any] = document["data"]
        return data

    def is_loaded(self) -> bool:
        """Return whether the code location is loaded.

        Raises:
            PlatformFailed: the code location cannot be loaded.
        """
        entries = self.query(_LOCATIONS)["workspaceOrError"].get("locationEntries", [])
        for entry in entries:
            location = entry["locationOrLoadError"]
            if location and location["__typename"] == "PythonError":
                raise PlatformFailed(f"loading {entry['name']}", location["message"].strip().splitlines()[-1])
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)

    def ticks(self, sensor: str, limit: int = 20, *, with_logs: bool = True) -> list[Tick]:
        """Return the newest ticks of a sensor, newest first.

        Args:
            sensor: name of the sensor.
            limit: most ticks to return.
            with_logs: whether to read the logs of the ticks, one file per tick.
        """
        selector = {"sensorName": sensor, "repositoryName": REPOSITORY, "repositoryLocationName": LOCATION}
        sensor_state = self.query(_TICKS, {"sensor": selector, "limit": limit, "withLogs": with_logs})["sensorOrError"]
        if sensor_state["__typename"] != "Sensor":
            raise PlatformFailed(f"sensor {sensor}", str(sensor_state.get("message", sensor_state["__typename"])))
        return [_tick(item) for item in sensor_state["sensorState"]["ticks"]]

    def runs(self, tags: Mapping[str, str] | None = None, limit: int = 200) -> list[Run]:
        """Return the newest runs that have all given tags, newest first."""
        run_filter = {"tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]}
        answer = self.query(_RUNS, {"limit": limit, "filter": run_filter})["runsOrError"]
        if answer["__typename"] != "Runs":
            raise PlatformFailed("listing runs", str(answer.get("message", answer["__typename"])))
        return [_run(item) for item in answer["results"]]

    def check_results(self, asset: Sequence[str], check: str, limit: int = 20) -> list[CheckResult]:
        """Return the newest finished evaluations of an asset check, newest first.

        Args:
            asset: key of the asset.
            check: name of the check.
            limit: most evaluations to read.
        """
        answer = self.query(_CHECKS, {"asset": {"path": list(asset)}, "check": check, "limit": limit})
        return [
            CheckResult(
                passed=bool(item["evaluation"]["success"]),
                severity=item["evaluation"]["severity"],
                description=item["evaluation"]["description"] or "",
                run_id=item["runId"] or "",
                time=float(item["timestamp"]),
            )
            for item in answer["assetCheckExecutions"]
            if item["evaluation"]
        ]

    def json_metadata(self, asset: Sequence[str], label: str) -> Any:
        """Return the JSON value under a metadata label of an asset's newest materialisation.

        Args:
            asset: key of the asset.
            label: label of the metadata.

        Returns:
            The value, or None if there is no materialisation or no such metadata.
        """
        answer = self.query(_MADE, {"asset": {"path": list(asset)}})["assetOrError"]
        newest = answer.get("assetMaterializations") or [{"metadataEntries": []}]
        values = {entry["label"]: entry.get("jsonString") for entry in newest[0]["metadataEntries"]}
        return None if values.get(label) is None else parse_json(values[label])

    def launch(
        self,
        job: str,
        *,
        run_config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        assets: Sequence[Sequence[str]] = (),
    ) -> str:
        """Launch a job as a person would from the UI.

        Args:
            job: name of the job.
            run_config: configuration of the run.
            tags: tags of the run.
            assets: assets of the job to materialise; empty for all.

        Returns:
            The id of the run.
        """
        selector: dict[str, Any] = {"jobName": job, "repositoryName": REPOSITORY, "repositoryLocationName": LOCATION}
        if assets:
            selector["assetSelection"] = [{"path": list(path)} for path in assets]
        metadata = {"tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]}
        params = {"selector": selector, "runConfigData": dict(run_config or {}), "executionMetadata": metadata}
        answer = self.query(_LAUNCH, {"params": params})["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            problems = [item["message"] for item in answer.get("errors", [])] or [
                answer.get("message", answer["__typename"])
            ]
            raise PlatformFailed(f"launching {job}", "; ".join(map(str, problems)))
        return str(answer["run"]["runId"])

    def dismiss_welcome(self) -> None:
        """Suppress the welcome pop-up for screenshots and demos."""
        self.query("mutation { setNuxSeen }")


def _tick(item: Mapping[str, Any]) -> Tick:
    events = (item.get("logEvents") or {}).get("events") or []
    return Tick(
        status=item["status"],
        started=float(item["timestamp"]),
        ended=item.get("endTimestamp"),
        skip_reason=item.get("skipReason") or "",
        lines=tuple(event["message"] for event in events),
        run_ids=tuple(item.get("runIds") or ()),
        run_keys=tuple(item.get("runKeys") or ()),
        error=(item.get("error") or {}).get("message", ""),
    )


def _run(item: Mapping[str, Any]) -> Run:
    return Run(
        run_id=item["runId"],
        job=item["jobName"],
        status=item["status"],
        created=float(item["creationTime"]),
        started=item.get("startTime"),
        ended=item.get("endTime"),
        tags={tag["key"]: tag["value"] for tag in item["tags"]},
    )

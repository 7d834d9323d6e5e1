"""A small GraphQL client for Dagster's web server: what the demo waits for, asserts on and shows."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lsm_core.errors import DredgeError
from lsm_core.json_reader import parse_json

REPOSITORY: Final = "__repository__"
LOCATION: Final = "dredge"
_TICKS: Final = """
query Ticks($sensor: SensorSelector!, $limit: Int!, $told: Boolean!) {
  sensorOrError(sensorSelector: $sensor) {
    __typename
    ... on PythonError { message }
    ... on Sensor { sensorState { status ticks(limit: $limit) {
      id status timestamp endTimestamp skipReason cursor runIds runKeys
      error { message } logEvents @include(if: $told) { events { message } }
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
    """Dagster did not start, or did not answer as it should: ``what`` was asked and ``reason``."""

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"Dagster failed at {what}: {reason}")


@dataclass(frozen=True)
class Tick:
    """One tick of a sensor. ``started`` and ``ended`` in epoch seconds; ``lines`` is its log, a line a table or partition."""

    number: int
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
        """Everything the tick says: its skip reason and its log."""
        return "\n".join((self.skip_reason, *self.lines)).strip()


@dataclass(frozen=True)
class Run:
    """One run. ``created``, ``started`` and ``ended`` in epoch seconds."""

    run_id: str
    job: str
    status: str
    created: float
    started: float | None
    ended: float | None
    tags: Mapping[str, str]

    @property
    def finished(self) -> bool:
        """Whether it ended, well or badly."""
        return self.status in {"SUCCESS", "FAILURE", "CANCELED"}


@dataclass(frozen=True)
class CheckResult:
    """One evaluation of an asset check. ``run_id`` is "" when a sensor reported it without a run; ``time`` in epoch seconds."""

    passed: bool
    severity: str
    description: str
    run_id: str
    time: float


@dataclass(frozen=True)
class DagsterClient:
    """Speaks GraphQL with the web server at ``url`` (``http://127.0.0.1:3000``)."""

    url: str

    def query(self, text: str, variables: Mapping[str, Any] | None = None, timeout_s: float = 30) -> dict[str, Any]:
        """Return ``data`` of the answer. Raises PlatformFailed when the server is away or the query is wrong."""
        body = json.dumps({"query": text, "variables": dict(variables or {})}).encode()
        request = urllib.request.Request(  # noqa: S310  (the address is our own, always http on loopback)
            f"{self.url}/graphql", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
                value: dict[str, Any] = parse_json(answer.read())
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise PlatformFailed(f"a query to {self.url}", str(error)) from error
        if value.get("errors"):
            raise PlatformFailed("a query", str(value["errors"][0].get("message")))
        data: dict[str, Any] = value["data"]
        return data

    def loaded(self) -> bool:
        """Return whether the code location is there. Raises PlatformFailed when it cannot be loaded, with its error."""
        entries = self.query(_LOCATIONS)["workspaceOrError"].get("locationEntries", [])
        for entry in entries:
            found = entry["locationOrLoadError"]
            if found and found["__typename"] == "PythonError":
                raise PlatformFailed(f"loading {entry['name']}", found["message"].strip().splitlines()[-1])
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)

    def ticks(self, sensor: str, limit: int = 20, *, told: bool = True) -> list[Tick]:
        """Return the newest ticks of a sensor, newest first; ``told`` False leaves their logs out (a file each to read)."""
        selector = {"sensorName": sensor, "repositoryName": REPOSITORY, "repositoryLocationName": LOCATION}
        found = self.query(_TICKS, {"sensor": selector, "limit": limit, "told": told})["sensorOrError"]
        if found["__typename"] != "Sensor":
            raise PlatformFailed(f"sensor {sensor}", str(found.get("message", found["__typename"])))
        return [_tick(index, item) for index, item in enumerate(found["sensorState"]["ticks"])]

    def runs(self, tags: Mapping[str, str] | None = None, limit: int = 200) -> list[Run]:
        """Return the newest runs that carry all ``tags``, newest first."""
        wanted = {"tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]}
        found = self.query(_RUNS, {"limit": limit, "filter": wanted})["runsOrError"]
        if found["__typename"] != "Runs":
            raise PlatformFailed("listing runs", str(found.get("message", found["__typename"])))
        return [_run(item) for item in found["results"]]

    def check_results(self, asset: Sequence[str], check: str, limit: int = 20) -> list[CheckResult]:
        """Return the newest evaluations of an asset check, newest first; planned ones that have no result yet are left out."""
        found = self.query(_CHECKS, {"asset": {"path": list(asset)}, "check": check, "limit": limit})
        return [
            CheckResult(
                passed=bool(item["evaluation"]["success"]),
                severity=item["evaluation"]["severity"],
                description=item["evaluation"]["description"] or "",
                run_id=item["runId"] or "",
                time=float(item["timestamp"]),
            )
            for item in found["assetCheckExecutions"]
            if item["evaluation"]
        ]

    def json_metadata(self, asset: Sequence[str], label: str) -> Any:
        """Return what the newest materialisation of an asset says as JSON under ``label``; None: nothing."""
        found = self.query(_MADE, {"asset": {"path": list(asset)}})["assetOrError"]
        newest = found.get("assetMaterializations") or [{"metadataEntries": []}]
        told = {entry["label"]: entry.get("jsonString") for entry in newest[0]["metadataEntries"]}
        return None if told.get(label) is None else parse_json(told[label])

    def launch(
        self,
        job: str,
        *,
        run_config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        assets: Sequence[Sequence[str]] = (),
    ) -> str:
        """Launch a job as a person would from the UI and return the run's id; ``assets`` chooses some of the job's."""
        selector: dict[str, Any] = {"jobName": job, "repositoryName": REPOSITORY, "repositoryLocationName": LOCATION}
        if assets:
            selector["assetSelection"] = [{"path": list(path)} for path in assets]
        metadata = {"tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]}
        params = {"selector": selector, "runConfigData": dict(run_config or {}), "executionMetadata": metadata}
        found = self.query(_LAUNCH, {"params": params})["launchRun"]
        if found["__typename"] != "LaunchRunSuccess":
            problems = [item["message"] for item in found.get("errors", [])] or [
                found.get("message", found["__typename"])
            ]
            raise PlatformFailed(f"launching {job}", "; ".join(map(str, problems)))
        return str(found["run"]["runId"])

    def dismiss_welcome(self) -> None:
        """Keep the pop-up for newcomers away (screenshots, demos)."""
        self.query("mutation { setNuxSeen }")


def _tick(index: int, item: Mapping[str, Any]) -> Tick:
    events = (item.get("logEvents") or {}).get("events") or []
    return Tick(
        number=int(item["id"]) if str(item["id"]).isdigit() else index,
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

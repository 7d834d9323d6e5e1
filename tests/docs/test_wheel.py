"""The wheel: built, installed into a clean environment beside its dependencies, and started there, far from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

NAMES = {"lsm_core", "dredge"}
LINKS = ("orchestration", "platform_core", "assets", "checks")


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None, seconds: float = 120) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `make wheel` builds, in a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel, and this environment's packages as its dependencies (but not the checkout)."""
    folder = tmp_path_factory.mktemp("clean")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
    python = folder / "bin" / "python"
    site = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    offline = ["--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", *offline, str(wheel)], folder)
    # A path file adds the folder alone: path files inside it, such as the checkout's editable install, are not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture
def environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith(("DREDGE_", "PYTHON", "DAGSTER_"))}


def test_the_wheel_holds_the_packages_and_their_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == NAMES
    data = {"dredge/orchestration/dagster.yaml", "dredge/py.typed", "lsm_core/py.typed"}
    data |= {f"dredge/platform_core/report/{name}" for name in ("page.html.j2", "script.js", "style.css")}
    assert data <= set(names)
    files = {f"dredge/{path.relative_to(ROOT).as_posix()}" for link in LINKS for path in (ROOT / link).rglob("*.py")}
    for package in NAMES:
        files |= {
            path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.py*") if path.suffix != ".pyc"
        }
    assert len([name for name in files if name.endswith(".pyi")]) >= 10
    demo = {name for name in files if name.startswith(("dredge/assets/demo/", "dredge/orchestration/verbs/demo_"))}
    assert len(demo) >= 15
    assert [name for name in names if name.endswith("README.md")] == []
    assert files - demo <= set(names)
    assert not [name for name in names if name in demo or "assets/demo" in name]


def test_the_command_starts_far_from_the_checkout(python: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    dredge = str(python.with_name("dredge"))
    command = subprocess.run(
        [dredge, "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert command.returncode == 1
    assert "make demo" in command.stderr
    assert len(command.stderr.splitlines()) == 1
    make = (
        "import pyarrow as pa; from lsm_core import Catalog, Schema; catalog = Catalog('warehouse'); catalog.create_database('db')\n"
        "fields = pa.schema([pa.field('k', pa.int64(), nullable=False)])\n"
        "catalog.create_table('db.t', Schema(fields, primary_keys=['k'], options={'bucket': '1'})).write(pa.table({'k': [1, 2]}))"
    )
    _run([str(python), "-c", make], tmp_path, environment)
    assert "db.t" in _run([dredge, "status", "-w", "warehouse"], tmp_path, environment)
    assert "1 table" in _run([dredge, "report", "-w", "warehouse", "-o", "report.html"], tmp_path, environment)
    assert "db.t</button>" in (tmp_path / "report.html").read_text()


@pytest.mark.soak
def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """The tests of the wheel thus hold for an installation from source, whose folders are no links."""
    build = [sys.executable, "-m", "hatchling", "build", "-d"]
    _run([*build, str(tmp_path), "-t", "sdist"], ROOT)
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        assert [member.name for member in archive if member.issym() or member.islnk()] == []
        archive.extractall(tmp_path / "source", filter="data")
    (folder,) = (tmp_path / "source").iterdir()
    _run([*build, str(tmp_path), "-t", "wheel"], folder)
    (rebuilt,) = tmp_path.glob("*.whl")
    assert _checksums(rebuilt) == _checksums(wheel)


def _checksums(wheel: Path) -> dict[str, int]:
    return {entry.filename: entry.CRC for entry in zipfile.ZipFile(wheel).infolist()}


_HELP = """\
import contextlib, importlib.metadata, io, json
from lsm_core.cli import app
names = [*app._VERBS, *app._load_action_verbs(), *(e.name for e in importlib.metadata.entry_points(group="dredge.verbs"))]
outcomes = {}
for name in ("", *names):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = app.run([name, "--help"] if name else ["--help"])
    words = {"": "Usage: dredge", "demo": "--headless"}
    texts = ("Usage:", name, words.get(name, name))
    outcomes[name] = (code, all(text in printed.getvalue() for text in texts))
print(json.dumps(outcomes))
"""


def test_every_verb_has_its_help(python: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    outcomes = json.loads(_run([str(python), "-c", _HELP], tmp_path, environment))
    assert {"status", "compact", "undo", "sql", "demo", "policy", "report", "simulate"} <= set(outcomes)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != [0, True]} == {}


@pytest.mark.soak
def test_a_table_lives_by_the_command_alone(python: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """Creation, writes, compaction, reading and checks, without a line of Python."""
    (tmp_path / "warehouse").mkdir()
    environment |= {"DREDGE_WAREHOUSE": "warehouse", "DREDGE_COMPACTION_INLINE": "never"}

    def dredge(*arguments: str) -> str:
        return _run([str(python.with_name("dredge")), *arguments], tmp_path, environment)

    def sql(statement: str) -> str:
        return dredge("sql", statement, "--engine", "local", "--json")

    sql("CREATE DATABASE db")
    sql("CREATE TABLE db.t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')")
    sql("INSERT INTO db.t VALUES (1, 'a'), (2, 'b')")
    sql("INSERT INTO db.t VALUES (2, 'c')")
    assert "verified: V2" in dredge("compact", "db.t", "--full")
    rows = json.loads(sql("SELECT k, v FROM db.t ORDER BY k"))["rows"]
    assert rows == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}]
    assert "failed" not in dredge("check", "db.t")


def test_the_platform_loads_far_from_the_checkout(python: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    look = (
        "import lsm_core, dredge, dredge.orchestration.definitions as platform\n"
        "from dredge.orchestration.verbs.dagster_process import INSTANCE\n"
        "assert dredge.__version__ == lsm_core.__version__; print(lsm_core.__file__); print(INSTANCE); print(platform.defs() is not None)"
    )
    engine, settings, loaded = _run([str(python), "-c", look], tmp_path, environment).split()
    inside = str(python.parents[1].resolve())
    assert str(Path(engine).resolve()).startswith(inside)
    assert str(Path(settings).resolve()).startswith(inside)
    assert Path(settings).read_text() == (ROOT / "orchestration" / "dagster.yaml").read_text()
    assert loaded == "True"


_PROJECT = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "lake"
registry_modules = ["lake.components.*"]
"""
_OWN = """\
import dagster as dg
import assets, checks, orchestration

@dg.asset
def report() -> None:
    assert assets.OWNER == checks.OWNER == orchestration.OWNER == "lake"
"""
_LOAD = """\
import sys
import dagster as dg
import lake
repository = dg.load_from_defs_folder(path_within_project=__import__("pathlib").Path(lake.__file__).parent).get_repository_def()
for key in repository.asset_graph.get_all_asset_keys():
    print(key.to_user_string())
print(repository.get_job("__ASSET_JOB").execute_in_process(asset_selection=[dg.AssetKey("report")]).success)
print(*(name for name in ("assets", "checks", "orchestration") if sys.modules[name].OWNER == "lake"))
"""


def test_a_project_with_folders_of_the_same_names_is_joined(
    python: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The layout is that of `create-dagster project`; `assets`, `checks` and `orchestration` are packages of its own."""
    root = tmp_path / "lake"
    (root / "src" / "lake" / "defs" / "tables").mkdir(parents=True)
    (root / "pyproject.toml").write_text(_PROJECT)
    for package in ("lake", "lake/defs", "assets", "checks", "orchestration"):
        (root / "src" / package).mkdir(exist_ok=True)
        (root / "src" / package / "__init__.py").write_text('OWNER = "lake"\n')
    (root / "src" / "lake" / "defs" / "reports.py").write_text(_OWN)
    definition = "type: dredge.PaimonWarehouse\nattributes:\n  warehouse: wh\n  runner: local\n"
    (root / "src" / "lake" / "defs" / "tables" / "defs.yaml").write_text(definition)
    create = (
        "import pyarrow as pa; from lsm_core import Catalog\n"
        "Catalog('wh').create_table('shop.orders', pa.schema([('k', pa.int64())]), create_database=True)"
    )
    _run([str(python), "-c", create], root, environment)
    (root / "load.py").write_text(_LOAD)
    printed = _run([str(python), "load.py"], root, {**environment, "PYTHONPATH": str(root / "src")}).splitlines()
    assert {"report", "wh/shop/orders", "wh/shop/orders_layout"} <= set(printed)
    assert printed[-2:] == ["True", "assets checks orchestration"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_commands_of_dagster_take_the_component(python: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """`create-dagster` and `dg` come from the package index, into the environment of the wheel."""
    import dagster

    pins = [f"{name}=={dagster.__version__}" for name in ("create-dagster", "dagster-dg-cli")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    _run([*pip, *pins], tmp_path, seconds=600)
    folder = str(python.parent)
    environment |= {"PATH": f"{folder}{os.pathsep}{environment['PATH']}", "DAGSTER_DISABLE_TELEMETRY": "yes"}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": "src", "COLUMNS": "200"}
    _run([f"{folder}/create-dagster", "project", "lake", "--no-uv-sync"], tmp_path, environment)
    root = tmp_path / "lake"
    for package in ("assets", "checks", "orchestration"):
        (root / "src" / package).mkdir()
        (root / "src" / package / "__init__.py").write_text('OWNER = "lake"\n')
    (root / "src" / "lake" / "defs" / "reports.py").write_text(_OWN)
    create = (
        "import pyarrow as pa; from lsm_core import Catalog\n"
        "Catalog('wh').create_table('shop.orders', pa.schema([('k', pa.int64())]), create_database=True)"
    )
    _run([str(python), "-c", create], root, environment)

    def dg(*arguments: str) -> str:
        return _run([f"{folder}/dg", *arguments], root, environment, 300)

    assert "dredge.PaimonWarehouse" in dg("list", "components")
    dg("scaffold", "defs", "dredge.PaimonWarehouse", "tables", "--warehouse", "wh")
    written = root / "src" / "lake" / "defs" / "tables" / "defs.yaml"
    assert written.read_text().split() == ["type:", "dredge.PaimonWarehouse", "attributes:", "warehouse:", "wh"]
    assert "All definitions loaded successfully" in dg("check", "defs")
    assets = {asset["asset_key"] for asset in json.loads(dg("list", "defs", "--json"))["assets"]}
    assert {"report", "wh/shop/orders", "wh/shop/orders_layout", "wh/warehouse_health"} <= assets
    dg("launch", "--assets", "report")
    written.write_text(f"{written.read_text()}  runner: flink\n")
    with pytest.raises(AssertionError, match="'spark', 'local' or 'pipes'"):
        dg("check", "defs")

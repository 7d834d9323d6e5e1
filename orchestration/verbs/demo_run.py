"""Run of `dredge demo`: the tables, one shared Spark, a real Dagster, and the player of the scenario."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import typer

from dredge.assets.demo.carrier_totals import totals_key
from dredge.assets.demo.replay import REFILE_JOB, create_tables
from dredge.assets.demo.replay_clock import BACKFILL, batch_clock_ms
from dredge.assets.demo.tables import DATABASE, PLANES, TABLES
from dredge.orchestration.verbs.dagster_process import WEB_SERVER, start_platform
from dredge.orchestration.verbs.demo_player import DemoPlayer, summarise_comparisons
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core.clock import FileClock
from lsm_core.errors import InvalidOption
from lsm_core.processes import require_free

_POLICIES: Final = Path(__file__).resolve().parents[2] / "assets" / "demo" / "policies.yaml"
_MARK: Final = "dredge-demo"
_SPARK: Final = {
    # The JVM lives two minutes on two cores beside Dagster, so optimised compilation never pays back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # The sessions of the runs share compiled code; none adds files of its own.
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # The versions of a bucket's keys fit in memory, and sorting them again costs as much as folding them.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
}


def run_demo(*, headless: bool, port: int | None, folder: Path) -> None:
    """Play the scenario; without `headless`, leave the UI up until Ctrl-C.

    Args:
        headless: whether to end after the scenario.
        port: port of the Dagster UI, or None for any.
        folder: folder of the demo's files; it is emptied first.

    Raises:
        PortInUse: the port is in use.
        InvalidOption: the folder holds other files.
        Exit: an expected number was not met.
    """
    if port is not None:
        require_free(port, WEB_SERVER)
    start_seconds = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start_seconds:6.1f} s] {text}", flush=True)

    home = _prepare_folder(folder.absolute())
    with ExitStack() as stack:
        stack.enter_context(_stop_on_signals())
        story = _start(home, port, stack, say)
        story.play()
        say(summarise_comparisons(story.findings))
        if not headless:
            _show_links(story, say)
            try:
                while True:
                    signal.pause()
            except KeyboardInterrupt:
                print("ending", file=sys.stderr)
    if story.failed:
        raise typer.Exit(1)


def _start(home: Path, port: int | None, stack: ExitStack, say: Callable[[str], None]) -> DemoPlayer:
    """Create the tables and start Spark and Dagster, which stop when `stack` closes.

    Args:
        home: folder of the demo's files.
        port: port of the Dagster UI, or None for any.
        stack: context that stops Spark and Dagster.
        say: prints a line.

    Returns:
        The player of the demo's scenario.
    """
    from lsm_core.spark import await_server, start_server, stop_server  # pyspark only when the demo runs

    clock = FileClock(str(home / "clock"))
    clock.set(batch_clock_ms(BACKFILL))
    warehouse = WarehouseResource(
        path=str(home / "warehouse"), clock=clock.to_spec(), replay_state=str(home / "replay")
    )
    tables = create_tables(warehouse.catalog())
    say(f"{len(tables)} empty tables in {warehouse.path}")
    say(
        f"{PLANES.identifier} is not write-only: its writers compact it; the platform compacts the others and watches "
        "this one"
    )
    stack.callback(stop_server, home / "spark")
    server = start_server(home / "spark", conf=_SPARK, wait=False)  # both take seconds to start: side by side
    environment = {
        "DREDGE_DEMO": "1",
        "DREDGE_WAREHOUSE": warehouse.path,
        "DREDGE_CLOCK": warehouse.clock,
        "DREDGE_REPLAY_STATE": warehouse.replay_state,
        "DREDGE_POLICIES": str(_POLICIES),
        "DREDGE_RUNNER": "spark",
        "DREDGE_SENSOR_SECONDS": "3",  # at every round of Dagster's sensor daemon, which takes 5 s
        "DREDGE_SCHEDULES": "off",  # the story's clock is not the wall's: it launches retention itself
        **server.environment(one_session=True),
    }
    platform = start_platform(home / "dagster", environment, port=port)
    stack.callback(platform.stop)
    platform.client.dismiss_welcome()
    say(f"Dagster with its daemon: {platform.url}")
    await_server(server)
    say(f"one Spark for all runs: Spark Connect on loopback port {server.port}")
    return DemoPlayer(platform.client, warehouse, clock, say)


def _prepare_folder(folder: Path) -> Path:
    """Return an empty folder for the demo.

    Only a folder of an earlier demo is emptied, after the processes of that demo were stopped.
    """
    marker = folder / _MARK
    if folder.exists() and any(folder.iterdir()):
        if not marker.exists():
            raise InvalidOption("--folder", str(folder), "an empty folder, or one that an earlier demo made")
        from lsm_core.spark import stop_server

        stop_server(folder / "spark")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("made by `dredge demo`; the next demo empties this folder\n", encoding="utf-8")
    return folder


def _show_links(story: DemoPlayer, say: Callable[[str], None]) -> None:
    """Materialise the ranking of tables (`warehouse_health`), and print links to the demo's pages in the Dagster UI.

    Args:
        story: player of the demo's scenario.
        say: prints a line.
    """
    url, warehouse_path = story.client.url, story.warehouse.path
    ranking = names.WarehouseNames.of(warehouse_path).warehouse_health_key().path
    story.client.launch(ASSET_JOB, assets=[ranking])  # the schedule that makes it is off here
    layout = "/".join(names.WarehouseNames.of(warehouse_path).layout_key(TABLES[0].identifier).path)
    totals = "/".join(totals_key(warehouse_path).path)
    itself = "/".join(names.WarehouseNames.of(warehouse_path).layout_key(PLANES.identifier).path)
    say("the UI is up. Where to click:")
    for label, page in (
        ("what hurts: all tables ranked", f"/assets/{'/'.join(ranking)}"),
        ("lineage", f"/locations/dredge/asset-groups/{DATABASE}/lineage"),
        ("a table's layout: partitions, plots", f"/assets/{layout}?view=partitions"),
        ("its checks", f"/assets/{layout}?view=checks"),
        ("running totals from a changelog", f"/assets/{totals}"),
        ("a table that looks after itself", f"/assets/{itself}"),
        ("a sensor's ticks, with a reason per table", f"/locations/dredge/sensors/{names.SORTED_RUN_SENSOR}"),
        ("runs: replays, compactions, retention", "/runs"),
    ):
        print(f"    {label:<44}{url}{page}")
    print("    your turn: materialize a layout, which merges all there is to merge, or run `dredge health` beside it;")
    print(
        f"    launch the job {REFILE_JOB} four times: {PLANES.name} gets four more sorted runs, and the fourth write "
        "merges all five"
    )
    print("Ctrl-C ends it.", flush=True)


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that a terminated demo stops its processes."""

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

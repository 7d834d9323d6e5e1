"""The verb that prints numbers for monitoring, writes them into a file, or serves them to Prometheus."""

from __future__ import annotations

import os
import tempfile
from contextvars import copy_context
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lsm_core.cli.render import print_json, say, visible_lines
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    Warehouse,
    load_platform_function,
    load_policy_functions,
    open_catalog,
)
from lsm_core.cli.verbs.inspection import table_names
from lsm_core.errors import DredgeError, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from lsm_core.maintenance.metrics import Sample
    from lsm_core.table import Catalog


def metrics(
    warehouse: Warehouse,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write into this file, which is replaced atomically. node_exporter's textfile collector reads files "
            "that end in .prom.",
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="[HOST:]PORT",
            help="Serve http://HOST:PORT/metrics until interrupted. HOST is 127.0.0.1 unless it is given.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        str,
        typer.Option("--every", metavar="TIME", help="With --listen: read the tables again at most this often."),
    ] = "1 min",
    window: Annotated[
        str, typer.Option("--window", metavar="TIME", help="Count runs of the ledgers that are no older.")
    ] = "1 d",
    with_holders: Annotated[
        bool,
        typer.Option(
            "--holds",
            help="Also report the bytes that snapshots, tags, branches and consumers hold. Reads the manifests of all "
            "snapshots.",
        ),
    ] = False,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Print health, history and ledger of all tables in Prometheus's text format.

    A table that cannot be read has dredge_table_readable 0. With --listen and DAGSTER_HOME set, states and alerts of
    the platform are served too.
    """
    from lsm_core.maintenance.metrics import format_metrics
    from lsm_core.options import duration

    span, pause_ms = duration(window, "--window"), duration(every, "--every")

    def read_samples() -> list[Sample]:
        return _read_samples(open_catalog(warehouse, clock), span, with_holders=with_holders)

    if listen is not None:
        if output is not None or as_json:
            raise InvalidOption("--listen", listen, "no --output and no --json beside it")
        table_names(open_catalog(warehouse, clock))  # a folder that is no warehouse fails now, not at each scrape

        def read_all() -> list[Sample]:
            return [*read_samples(), *_read_platform_samples(warehouse, clock)]

        catalog_options = copy_context()  # requests are answered in threads
        _serve(listen, lambda: catalog_options.run(lambda: format_metrics(read_all())), pause_ms)
        return
    samples = read_samples()
    if as_json:
        print_json([asdict(sample) for sample in samples])
        return
    text = format_metrics(samples)
    if output is None:
        typer.echo(visible_lines(text), nl=False)
    else:
        _replace(Path(output), text)


def _read_samples(catalog: Catalog, window_ms: int, *, with_holders: bool) -> list[Sample]:
    from lsm_core.maintenance.metrics import Sample, table_samples

    now = catalog.clock.now_ms()
    since = max(0, now - window_ms)
    names, broken = table_names(catalog)
    policy_functions = load_policy_functions("dredge.metrics")
    samples = [
        Sample("dredge_scrape_timestamp_seconds", now / 1000),
        Sample("dredge_tables", len(names)),
        *(sample for function in policy_functions for sample in function(None, since)),
        *(Sample("dredge_table_readable", 0, {"table": f"{database}.*"}) for database in broken),
    ]
    for name in names:
        try:
            store = catalog.store(name)
            of_table = table_samples(store, since, with_holders=with_holders)
            of_policy = [sample for function in policy_functions for sample in function(store, since)]
            samples += [*of_table, *of_policy]
        except Exception:  # noqa: BLE001  (whatever is wrong with one table, the numbers of the others are wanted)
            samples.append(Sample("dredge_table_readable", 0, {"table": name}))
    return samples


def _read_platform_samples(warehouse: str, clock: str | None) -> list[Sample]:
    """Return states and alerts from the Dagster instance of DAGSTER_HOME; none if the variable is not set."""
    from lsm_core.maintenance.metrics import Sample

    home = os.environ.get("DAGSTER_HOME", "").strip()
    read_samples = load_platform_function("metrics") if home else None
    if read_samples is None:
        return []
    try:
        return [Sample("dredge_platform_readable", 1), *read_samples(warehouse, clock, home)]
    except Exception as error:  # noqa: BLE001  (whatever is wrong with Dagster, the numbers of the tables are wanted)
        say(visible_lines(f"warning: states and alerts cannot be read from DAGSTER_HOME: {error}"))
        return [Sample("dredge_platform_readable", 0)]


def _serve(address: str, read_text: Callable[[], str], pause_ms: int) -> None:
    """Serve the metrics that ``read_text`` returns until the process is interrupted or terminated."""
    from lsm_core.cli.metrics_server import open_server, serve_until_stopped

    server = open_server(address, read_text, pause_ms / 1000)
    host, port = str(server.server_address[0]), server.server_address[1]
    say(f"serving http://{f'[{host}]' if ':' in str(host) else host}:{port}/metrics; stop it with Ctrl-C")
    serve_until_stopped(server)


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically, so that readers see the old or the new content. Raises DredgeError."""
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(draft).chmod(0o644)  # the collector runs as another user
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DredgeError(f"--output {path} cannot be written: {error.strerror or error}") from error

"""The verb that prints numbers for monitoring."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lsm_core.cli.render import print_json, visible_lines
from lsm_core.cli.verbs.common import AsJson, ClockOption, Warehouse, open_catalog
from lsm_core.cli.verbs.inspection import table_names
from lsm_core.errors import DredgeError


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
    window: Annotated[
        str, typer.Option("--window", metavar="TIME", help="Count runs of the ledgers that are no older.")
    ] = "1 d",
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Print health, history and ledger of all tables in Prometheus's text format.

    A table that cannot be read has dredge_table_readable 0.
    """
    from lsm_core.maintenance.metrics import Sample, format_metrics, table_samples
    from lsm_core.options import duration

    catalog = open_catalog(warehouse, clock)
    now = catalog.clock.now_ms()
    since = max(0, now - duration(window))
    names, broken = table_names(catalog)
    samples = [
        Sample("dredge_scrape_timestamp_seconds", now / 1000),
        Sample("dredge_tables", len(names)),
        *(Sample("dredge_table_readable", 0, {"table": f"{database}.*"}) for database in broken),
    ]
    for name in names:
        try:
            samples += table_samples(catalog.store(name), since)
        except Exception:  # noqa: BLE001  (whatever is wrong with one table, the numbers of the others are wanted)
            samples.append(Sample("dredge_table_readable", 0, {"table": name}))
    if as_json:
        print_json([asdict(sample) for sample in samples])
        return
    text = format_metrics(samples)
    if output is None:
        typer.echo(visible_lines(text), nl=False)
    else:
        _replace(Path(output), text)


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

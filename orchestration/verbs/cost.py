"""`dredge cost`: prices of maintenance, storage and saved reads, by table or owner and month."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer

from dredge.orchestration.verbs.policies import PolicyFileOption
from dredge.platform_core.policies.costs import CostLine, Month, StoredBytes, cost_lines, money_text, sum_by_owner
from dredge.platform_core.policies.policy import Policy
from dredge.platform_core.policies.policy_files import read_policies
from lsm_core.arrays import arrow_array
from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, Warehouse, add_catalog_options, open_catalog
from lsm_core.cli.verbs.inspection import select_tables, table_names
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.maintenance import holds
from lsm_core.maintenance.file_holders import HolderKind
from lsm_core.maintenance.holder_sizes import READERS
from lsm_core.maintenance.ledger import iterate_ledger
from lsm_core.metadata.store import TableStore, list_schema_ids

_MOST_MONTHS: Final = 120
_COLUMNS: Final = (
    "month",
    "table",
    "owner",
    "runs",
    "seconds",
    "bytes read",
    "runs cost",
    "storage cost",
    "total",
    "reads saved",
)


@add_catalog_options
def cost(
    warehouse: Warehouse,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Tables: a database, 'db.*' or one table.")] = "*",
    policies: PolicyFileOption = None,
    months: Annotated[int, typer.Option("--months", metavar="N", help="Calendar months (UTC), the current last.")] = 1,
    by_owner: Annotated[bool, typer.Option("--by-owner", help="Add up the tables of each owner.")] = False,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Show what maintenance and storage cost and what reads saved, by the prices in the policy file (cost)."""
    if policies is None:
        raise DredgeError("no policy file, so there are no prices: name one by --policies or DREDGE_POLICIES")
    if not 1 <= months <= _MOST_MONTHS:
        raise InvalidOption("--months", months, f"1 to {_MOST_MONTHS}")
    loaded, catalog = read_policies(policies), open_catalog(warehouse, clock)
    now = catalog.clock.now_ms()
    names, broken = table_names(catalog)
    lines: list[CostLine] = []
    unpriced = 0
    for name in select_tables(names, pattern, catalog.place):
        policy = loaded.of(name)
        if not policy.cost.has_prices:
            unpriced += 1
            continue
        try:
            lines += read_costs(catalog.store(name), policy, Month.last(months, now), now)
        except DredgeError as error:
            broken[name] = str(error)
    shown = sum_by_owner(lines) if by_owner else sorted(lines, key=lambda line: (line.month, -line.total, line.table))
    if as_json:
        print_json([asdict(line) | {"total": line.total} for line in shown])
    else:
        _show(shown, unpriced, unreadable=len(broken))
    if broken:
        raise DredgeError("; ".join(f"{name}: {error}" for name, error in broken.items()))


def read_costs(store: TableStore, policy: Policy, months: list[Month], now_ms: int) -> list[CostLine]:
    """Return the costs of one table by month, from its ledger and the files that it holds now.

    Args:
        store: the table.
        policy: policy of the table, with prices.
        months: months, the oldest first.
        now_ms: current time (epoch ms).

    Raises:
        CorruptFile: metadata of the table cannot be read.
    """
    # The entry of a run is named by its begin, and its time is its end: a run may reach into the first month.
    entries = iterate_ledger(store, heads=True, since_ms=max(0, months[0].begin_ms - 86_400_000))
    held = holds(store)
    live = pc.equal(held.column("kind"), HolderKind.LIVE.value)
    reader = pc.is_in(held.column("kind"), arrow_array(sorted(READERS), pa.string()))
    others = held.filter(pc.invert(pc.or_(live, reader)))
    alone, shared = (pc.sum(held.filter(live).column(name)).as_py() or 0 for name in ("bytes", "shared_bytes"))
    created_ms = store.schema_of(min(list_schema_ids(store.file_io, store.root), default=store.schema.id)).time_millis
    stored = StoredBytes(alone + shared, pc.sum(others.column("bytes")).as_py() or 0, min(created_ms, now_ms))
    return cost_lines(
        store.name,
        ", ".join(policy.owners) or "-",
        policy.cost,
        entries,
        months,
        now_ms,
        stored=stored,
        open_file_cost=store.options.open_file_cost,
    )


def _show(lines: list[CostLine], unpriced: int, unreadable: int) -> None:
    if lines:
        print_table("", _COLUMNS, [_cells(line) for line in lines])
        say("storage: the files of now, from the start of the month until now; past months have no storage cost")
        if any(line.saved is None for line in lines):
            say("reads saved: unknown without cost.reads_a_day in the policy")
    if unpriced:
        noun = "table has" if unpriced == 1 else "tables have"
        say(f"{unpriced} {noun} no prices: set cost.core_hour, cost.tb_scanned or cost.gb_month in the policy")
    elif not lines and not unreadable:
        say("no tables yet")


def _cells(line: CostLine) -> list[Any]:
    def money(price: float | None) -> str:
        return "-" if price is None else money_text(price, line.currency)

    return [
        line.month,
        line.table,
        line.owner,
        line.runs,
        f"{line.seconds:,.1f}",
        f"{line.bytes_read:,}",
        money(line.work),
        money(line.storage),
        money(line.total),
        money(line.saved),
    ]

"""The report's page: hostile texts stay text, it loads nothing, it is small, and the same report gives the same page."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from dredge.platform_core.report.model import ActionEntry, HolderEntry, PartitionEntry, action_entry, cut_text
from dredge.platform_core.report.page import PAGE_BYTES, render_page, sample_trend
from lsm_core.maintenance import LedgerEntry
from tests.support.fleet import NOW_MS, RUN, STATES, invented_fleet

HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}`\u202e\u0000"


class Elements(HTMLParser):
    """Tags with their attributes, and the text of the page, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_hostile_names_errors_and_owners_become_neither_tags_nor_attributes() -> None:
    fleet = invented_fleet(8)
    entry = ActionEntry("r", NOW_MS, HOSTILE[:60], HOSTILE[:30], author=HOSTILE, error=HOSTILE)
    hostile = replace(
        fleet.tables[0],
        table=f"db{HOSTILE}.t{HOSTILE}",
        label=HOSTILE,
        reason=HOSTILE,
        action=HOSTILE,
        when=HOSTILE,
        costs_most=HOSTILE,
        readable=True,
        owners=(HOSTILE,),
        held_bytes=1,
        holders=(HolderEntry(HOSTILE, HOSTILE, 1),),
        partitions=(PartitionEntry(HOSTILE, "due", HOSTILE, HOSTILE, HOSTILE),),
        entries=(entry,),
        trend_of=HOSTILE,
        trend=((1, 1.0), (2, 2.0)),
    )
    plain, dirty = (
        Elements(render_page(replace(fleet, tables=[table, *fleet.tables[1:]], notes=[note], warehouse=note)))
        for table, note in ((replace(hostile, **dict.fromkeys(("label", "reason"), "x")), "x"), (hostile, HOSTILE))
    )
    assert [(tag, sorted(attributes)) for tag, attributes in plain.tags] == [
        (tag, sorted(attributes)) for tag, attributes in dirty.tags
    ]
    assert [tag for tag, _ in dirty.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in dirty.tags}
    assert not [name for _, attributes in dirty.tags for name in attributes if name.startswith("on")]
    shown = "".join(dirty.texts)
    assert "<img src=x onerror=alert(2)>{{7*7}}" in shown, "nothing of it is evaluated or lost"
    assert "\u202e" not in shown and "\x00" not in shown and "\\u202e" in shown


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    page = render_page(invented_fleet(30))
    elements = Elements(page)
    for tag, attributes in elements.tags:
        assert "src" not in attributes and "style" not in attributes, tag
        assert tag not in {"link", "iframe", "object", "embed", "base", "form", "img"}
        if "href" in attributes:
            assert tag == "a" and str(attributes["href"]).startswith("https://dagster.example.org/")
            assert attributes["rel"] == "noreferrer"
    assert "url(" not in page and "@import" not in page
    (policy,) = [
        a["content"] for t, a in elements.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in str(policy)
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in str(policy)


def test_only_web_addresses_become_links() -> None:
    fleet = invented_fleet(3)
    assert "javascript:" not in render_page(replace(fleet, dagster_url="javascript:alert(1)//"))
    page = render_page(replace(fleet, dagster_url='https://x.org/"><b>'))
    assert "<b>'" not in page and 'href="https://x.org/%22%3E%3Cb%3E/assets/' in page
    assert "<a " not in render_page(replace(fleet, dagster_url=""))


def test_a_thousand_tables_fit_into_two_megabytes_and_the_worst_show_the_most_actions() -> None:
    fleet = invented_fleet(1_000, actions=50)
    page = render_page(fleet)
    assert len(page.encode()) <= PAGE_BYTES
    parts = page.split("<tbody ")[1:]
    assert len(parts) == 1_000
    rows = [part.count("<tr><td>") for part in parts]
    assert min(rows) >= 1, "every table shows its newest action"
    assert rows[0] >= 10
    assert all(
        f"dredge ledger {table.table}" in part
        for table, part in zip(fleet.tables, parts, strict=True)
        if table.entries_more
    )


def test_long_texts_of_a_thousand_tables_are_cut_further() -> None:
    tables = [
        replace(table, reason="x" * 390, costs_most="y" * 390, action="z" * 390, when="w" * 390)
        for table in invented_fleet(1_000, actions=3).tables
    ]
    page = render_page(replace(invented_fleet(1), tables=tables))
    assert len(page.encode()) <= PAGE_BYTES
    assert "xxx…" in page and "x" * 390 not in page
    few = render_page(replace(invented_fleet(1), tables=tables[:10]))
    assert "x" * 390 in few


def test_the_same_report_gives_the_same_page_worst_first_with_counts() -> None:
    fleet = invented_fleet(46)
    page = render_page(fleet)
    assert page == render_page(invented_fleet(46))
    assert re.findall(r"<button class=nm>([^<]+)</button>", page) == [table.table for table in fleet.tables]
    chips = re.findall(r'data-n="([^"]+)"[^>]*><b>(\d+)</b>', page)
    assert [(name, int(number)) for name, number in chips] == [
        (legend.name, number) for legend, number in fleet.counts()
    ]
    assert sum(int(number) for _, number in chips) == 46
    assert all(legend.text in page.replace("&#39;", "'") for legend in STATES)


def test_rows_carry_what_sorting_and_filters_compare() -> None:
    fleet = invented_fleet(12)
    bodies = [a for t, a in Elements(render_page(fleet)).tags if t == "tbody"]
    databases = sorted({item.database for item in fleet.tables})
    for number, (body, table) in enumerate(zip(bodies, fleet.tables, strict=True)):
        keys = str(body["data-k"]).split("|")
        assert keys[0] == str(number)
        assert float(keys[2]) == table.score and int(keys[3]) == table.sorted_runs
        assert keys[7] == ("" if table.held_bytes is None else str(table.held_bytes))
        assert databases[int(str(body["data-d"]))] == table.database
        assert len(str(body["data-o"]).split()) == len(table.owners)


def test_an_empty_warehouse_has_a_page() -> None:
    page = render_page(replace(invented_fleet(0), notes=["the warehouse has no tables yet"]))
    assert "0 tables" in page and "the warehouse has no tables yet" in page


@pytest.mark.parametrize("most", [2, 5, 24])
def test_a_sampled_trend_keeps_peaks_and_the_newest_point(most: int) -> None:
    trend = [(time, 90.0 if time == 37 else float(time % 7)) for time in range(100)]
    sampled = sample_trend(trend, most)
    assert len(sampled) <= most and sampled[-1] == trend[-1]
    assert (37, 90.0) in sampled
    assert [time for time, _ in sampled] == sorted(time for time, _ in sampled)
    assert sample_trend(trend[:2], most) == trend[:2]


def test_an_entry_of_the_ledger_keeps_only_numbers_that_it_may_have() -> None:
    entry = LedgerEntry(
        "1-compact-ab", "compact", "a.b", 5, "done", approved_by=f"dagster run {RUN}", error="e" * 999,
        report={"bytes_in": 7, "bytes_out": "7", "bytes_freed": True, "bytes_recorded": 9, "runs_before": -1, "runs_after": 2.5},
    )  # fmt: skip
    shown = action_entry(entry, RUN)
    assert (shown.bytes_in, shown.bytes_out, shown.bytes_freed, shown.runs_before, shown.runs_after) == (
        7,
        None,
        9,
        None,
        None,
    )
    assert len(shown.error) == 400 and shown.error.endswith("…")
    assert cut_text("\u202e" * 900, 10).count("\\u202e") <= 10


def test_commands_between_backticks_become_code_and_nothing_else_does() -> None:
    fleet = invented_fleet(1)
    texts = {
        "run `dredge check <b>`, then wait": "run <code>dredge check &lt;b&gt;</code>, then wait",
        "a ` b <i>": "a ` b &lt;i&gt;",
    }
    for text, shown in texts.items():
        assert f"<td>{shown}" in render_page(replace(fleet, tables=[replace(fleet.tables[0], action=text)]))


def test_commands_quote_odd_names_for_a_shell() -> None:
    fleet = invented_fleet(1)
    page = render_page(replace(fleet, tables=[replace(fleet.tables[0], table="shop.it's; ls", entries_more=True)]))
    assert """dredge ledger &#39;shop.it&#39;&#34;&#39;&#34;&#39;s; ls&#39;</code>""" in page

"""Storage keys that a catalog server gives out for each table (`data-token.enabled`), with an S3 server."""

from __future__ import annotations

import json
import logging
import pickle
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import DredgeError, MetastoreFailed, TableNotFound, UnsupportedFeature
from lsm_core.metadata.store import TableStore
from lsm_core.spark.spark_tasks import shipped_store
from lsm_core.table import rest_client, rest_keys
from lsm_core.table.rest_client import RestClient
from lsm_core.table.rest_keys import ServedKeys
from tests.support.rest_script import Script, open_house, table_answer
from tests.support.s3_server import S3Server

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
ROWS = pa.table({"k": [1, 2], "v": ["a", "b"]}, schema=FIELDS)
TOKENS = {"config": {"defaults": {"prefix": "p", "data-token.enabled": "true"}, "overrides": {}}}
HOUR_MS = 3_600_000


class KeyServer:
    """Scripted catalog server of the table db.t, in a store that accepts the table's keys only.

    Attributes:
        script: the server.
        s3: the store.
        issued: ids of the keys that were given out.
        life_ms: life of new keys in ms.
        extra: further settings in each answer.
        ahead_ms: difference of the server's clock in ms.
    """

    def __init__(self, script: Script, s3: S3Server, root: str) -> None:
        self.script, self.s3, self.issued, self.life_ms = script, s3, list[str](), 3 * HOUR_MS
        self.extra: dict[str, object] = {}
        self.ahead_ms = 0
        external = table_answer(root, isExternal=True)
        self.answers: dict[str, object] = {**TOKENS, "db": {"name": "db"}, "t": external, "token": self.issue}
        script.answers(**self.answers)

    def issue(self) -> dict[str, object]:
        """Give out new keys; the store accepts them and the keys before."""
        self.issued.append(f"KEY{len(self.issued)}PRECIOUS")
        self.s3.accept_keys(*self.issued[-2:])
        keys = {"fs.s3a.access.key": self.issued[-1], "fs.s3a.secret.key": f"hunter2-{self.issued[-1]}"}
        session = {"fs.s3a.session.token": f"session-{self.issued[-1]}"}
        return {"token": {**keys, **session, **self.extra}, "expiresAtMillis": now_ms() + self.ahead_ms + self.life_ms}

    @property
    def table(self) -> Table:
        """The table, opened anew."""
        return open_house(self.script, **self.s3.options).table("db.t")


def now_ms() -> int:
    """Return the time in ms since the epoch."""
    return time.time_ns() // 1_000_000


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Yield a scripted server; no keys are kept from other tests."""
    monkeypatch.setattr(rest_keys, "_kept", {})
    running = Script()
    yield running
    running.close()


@pytest.fixture
def keys(s3: S3Server, script: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyServer]:
    """Yield the server of a table with three files of the same key; the environment has no keys."""
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    local = Catalog(s3.bucket(), s3.options)
    local.create_database("db")
    table = local.create_table("db.t", FIELDS, primary_keys=["k"], options={"bucket": "1"})
    for _ in range(3):
        table.write(ROWS)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    yield KeyServer(script, s3, table.store.root)
    s3.accept_keys()


def test_a_table_is_read_and_written_with_its_own_keys(keys: KeyServer) -> None:
    table = keys.table
    table.write(pa.table({"k": [3], "v": ["c"]}, schema=FIELDS))
    assert table.compact(full=True).changed
    assert keys.table.to_arrow().sort_by("k").to_pylist()[-1] == {"k": 3, "v": "c"}
    assert keys.issued == ["KEY0PRECIOUS"], "keys are kept for all table objects of this process"
    requests = keys.s3.requests()[-20:]
    assert {line["session"] for line in requests} == {"session-KEY0PRECIOUS"}


def test_keys_that_change_while_a_compaction_runs(keys: KeyServer) -> None:
    keys.life_ms = 300
    table = keys.table
    for number in range(6):
        table.write(pa.table({"k": [number], "v": ["c"]}, schema=FIELDS))
    before = len(keys.issued)
    keys.s3.requests()
    while len(keys.issued) - before < 2:
        assert table.compact(full=True) is not None
        table.write(ROWS)
    assert len({line["key"] for line in keys.s3.requests()}) >= 3
    assert table.to_arrow().sort_by("k").column("k").to_pylist() == [0, 1, 2, 3, 4, 5]


def test_keys_are_renewed_before_they_end(keys: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    source = keys.table.store.file_io.keys
    monkeypatch.setattr(rest_keys.SystemClock, "now_ms", lambda self: now_ms() + keys.ahead_ms)
    for keys.ahead_ms, issued in ((HOUR_MS, 1), (2 * HOUR_MS + 60_000, 2)):
        assert source.keys().access_key == f"KEY{issued - 1}PRECIOUS"
    keys.answers["token"] = (503, {"Retry-After": "0"}, b"")
    keys.script.answers(**keys.answers)
    monkeypatch.setattr(rest_client, "_ATTEMPTS", 1)
    keys.ahead_ms += 2 * HOUR_MS + 60_000  # within their last hour: the old keys serve on
    assert source.keys().access_key == "KEY1PRECIOUS"
    keys.ahead_ms += HOUR_MS
    with pytest.raises(MetastoreFailed, match="503"):
        source.keys()


def test_keys_are_in_no_text(keys: KeyServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    table = keys.table
    table.compact(full=True)
    store = table.store
    provider = store.file_io.keys
    plan = table.plan_maintenance("expire_snapshots")
    texts = [store.to_json(), repr(provider), repr(provider.keys()), repr(store.file_io), str(plan), caplog.text]
    texts += [pickle.dumps(value).decode("latin1") for value in (store, store.file_io, provider)]
    keys.s3.accept_keys("others")
    with pytest.raises(DredgeError) as raised:
        table.refresh().to_arrow()
    texts += [str(raised.value), repr(raised.value), json.dumps(raised.value.args, default=repr)]
    assert "ExpiredToken" in texts[-3], texts[-3:]
    assert not [text for text in texts if "PRECIOUS" in text or "hunter2" in text]


def test_another_process_fetches_its_own_keys(keys: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_REST_TOKEN", "of-the-driver")
    store = keys.table.store
    text, pickled = store.to_json(), pickle.dumps(store)
    assert "of-the-driver" not in text and b"of-the-driver" not in pickled
    monkeypatch.setenv("DREDGE_REST_TOKEN", "of-the-executor")
    for opened in (lambda: shipped_store(text), lambda: pickle.loads(pickled)):
        rest_keys._kept.clear()
        keys.script.seen.clear()
        other: TableStore = opened()
        assert other.file_io.exists(other.root)
        tokens = {headers.get("Authorization") for _, path, headers in keys.script.seen if path.endswith("/token")}
        assert tokens == {"Bearer of-the-executor"}
    assert pickle.loads(pickled).file_io == store.file_io == shipped_store(text).file_io


def test_a_server_names_no_host_and_no_region(
    keys: KeyServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    thief = Script()
    hosts = ("fs.s3a.endpoint", "s3.endpoint", "fs.s3.endpoint", "endpoint", "fs.oss.endpoint")
    keys.extra = dict.fromkeys(hosts, thief.url)
    keys.extra |= {"s3.endpoint.region": "x.evil.com/", "fs.s3a.path.style.access": "false", "fs.s3a.proxy.host": "x"}
    try:
        assert keys.table.to_arrow().num_rows == 2
        assert thief.seen == []
        rest_keys._kept.clear()
        monkeypatch.setenv("AWS_ENDPOINT_URL", keys.s3.endpoint)
        assert open_house(keys.script).table("db.t").to_arrow().num_rows == 2
        assert thief.seen == []
        assert "which is not used" in caplog.text
    finally:
        thief.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"token": "x", "expiresAtMillis": 9}, MetastoreFailed),
        ({"token": {}, "expiresAtMillis": None}, MetastoreFailed),
        ({"token": {}, "expiresAtMillis": True}, MetastoreFailed),
        ({"token": {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b"}, "expiresAtMillis": 9}, MetastoreFailed),
        ({"token": {"akId": "a", "akSecret": "b"}, "expiresAtMillis": 1 << 62}, MetastoreFailed),
        ({"token": {"fs.s3a.access.key": 7, "fs.s3a.secret.key": "b"}, "expiresAtMillis": 1 << 62}, MetastoreFailed),
        (
            {"token": {"s3.access-key": "a\r\nHost: x", "s3.secret-key": "b"}, "expiresAtMillis": 1 << 62},
            MetastoreFailed,
        ),
        (
            {"token": {"s3.access-key": "a" * 99_999, "s3.secret-key": "b"}, "expiresAtMillis": 1 << 62},
            MetastoreFailed,
        ),
        ((404, {}, b'{"message": "nothing", "resourceType": "TABLE"}'), TableNotFound),
        ((403, {}, b'{"message": "not yours"}'), MetastoreFailed),
        ((501, {}, b'{"message": "none here"}'), UnsupportedFeature),
        ((200, {}, b"<html>"), MetastoreFailed),
    ],
)
def test_odd_answers_are_one_error(script: Script, answer: object, error: type[DredgeError]) -> None:
    script.answers(**TOKENS, db={"name": "db"}, t=table_answer("s3://bucket/t"), token=answer)
    with pytest.raises(error) as raised:
        open_house(script).table("db.t")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("s3", {"s3.access-key": "i", "s3.secret-key": "s", "s3.session-token": "t"}),
        ("s3a", {"fs.s3a.access.key": "i", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t"}),
        ("s3", {"fs.s3.accessKeyId": "i", "fs.s3.accessKeySecret": "s", "fs.s3.securityToken": "t"}),
        ("oss", {"fs.oss.accessKeyId": "i", "fs.oss.accessKeySecret": "s", "fs.oss.securityToken": "t"}),
        ("obs", {"fs.obs.access.key": "i", "fs.obs.secret.key": "s", "fs.obs.session.token": "t"}),
        ("cosn", {"fs.cosn.userinfo.secretId": "i", "fs.cosn.userinfo.secretKey": "s"}),
    ],
)
def test_names_of_keys_that_servers_send(script: Script, scheme: str, settings: dict[str, str]) -> None:
    others = {"fs.oss.accessKeyId": "x", "fs.oss.accessKeySecret": "x", "s3.access.key": "x", "s3.secret.key": "x"}
    token = {**(others if len(settings) == 2 else {}), **settings, "fs.gs.access.key": "x", "s3": "z"}
    script.answers(**TOKENS, token={"token": token, "expiresAtMillis": now_ms() + HOUR_MS})
    keys = ServedKeys(RestClient(script.url, "house"), "db", "t", "1", scheme).keys()
    assert (keys.access_key, keys.secret_key, keys.session_token) == ("i", "s", "t" if len(settings) == 3 else None)
    with pytest.raises(MetastoreFailed, match="no keys of gs"):
        ServedKeys(RestClient(script.url, "house"), "db", "t", "1", "gs").keys()


def test_stores_of_another_kind_are_refused_by_name(script: Script) -> None:
    keys = {"token": {"fs.gs.key": "x"}, "expiresAtMillis": now_ms() + HOUR_MS}
    script.answers(**TOKENS, db={"name": "db"}, t=table_answer("gs://bucket/db.db/t"), token=keys)
    with pytest.raises(MetastoreFailed, match="gs"):
        open_house(script).table("db.t")

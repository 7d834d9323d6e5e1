"""Client of a REST catalog server against a scripted server: odd, hostile and failing answers."""

from __future__ import annotations

import json
import pickle
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, SchemaChange
from lsm_core.clock import SystemClock
from lsm_core.errors import (
    CorruptFile,
    InvalidOption,
    MetastoreFailed,
    StorageRefused,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.metadata.store import OutcomeUnknown
from lsm_core.table import rest_client
from lsm_core.table.definition import as_definition, new_table_schema
from lsm_core.table.rest_client import RestClient, ServerRefusal
from lsm_core.table.rest_metastore import RestPublisher, change_objects
from tests.support.clocks import replace_sleep
from tests.support.rest_script import Answer, Script, open_house, table_answer


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Yield a scripted server; waits between attempts take no time."""
    replace_sleep(monkeypatch, rest_client.__name__, lambda seconds: None)
    running = Script()
    running.answers()
    yield running
    running.close()


@pytest.mark.parametrize(
    "path",
    ["relative/folder", "/a/../../etc", "", None, 7, "/", "file:/", "file://elsewhere/x", "ftp://host/x", "/a\x00b"],
)
def test_unsafe_folders_are_refused(script: Script, path: object) -> None:
    script.answers(db={"name": "db"}, t=table_answer(path))
    with pytest.raises(MetastoreFailed, match=r"folder|path"):
        open_house(script).table("db.t")


def test_a_folder_that_is_not_the_table_is_not_opened(script: Script, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    script.answers(db={"name": "db"}, t=table_answer(str(tmp_path)))
    with pytest.raises(CorruptFile, match="no such schema file"):
        open_house(script).table("db.t")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_unsafe_names_are_left_out(script: Script) -> None:
    names = ["t", "../../etc", "a/b", "", "x\x00y", "%2e%2e", "t$branch_b", 7, None]
    script.answers(db={"name": "db"}, tables={"tables": names}, databases={"databases": ["db", "..", "/etc"]})
    catalog = open_house(script)
    assert catalog.list_databases() == ["db"]
    assert catalog.list_tables("db") == ["t"]


def test_a_table_of_another_type_is_refused_by_name(script: Script, tmp_path: Path) -> None:
    schema = {"fields": [], "options": {"type": "format-table"}}
    script.answers(db={"name": "db"}, t=table_answer(str(tmp_path), schema=schema))
    with pytest.raises(UnsupportedFeature, match="format-table"):
        open_house(script).table("db.t")


def test_descriptions_that_were_read_ahead_are_used_once(script: Script, tmp_path: Path) -> None:
    local = Catalog(tmp_path / "local")
    local.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    made = local.create_table("db.t", fields, primary_keys=["k"], options={"bucket": "1"})
    details = {"tableDetails": [table_answer(made.store.root), {"name": 7}, "none"]}
    script.answers(**{"db": {"name": "db"}, "t": table_answer(made.store.root), "table-details": details})
    catalog = open_house(script)
    catalog.read_ahead("db")
    script.seen.clear()
    assert catalog.table("db.t").schema.field_names == ("k",)
    assert script.seen == []
    assert catalog.table("db.t").schema.field_names == ("k",)
    assert [path.rpartition("/")[2] for _, path, _ in script.seen] == ["t"]
    script.answers(db={"name": "db"}, t=table_answer(made.store.root))
    catalog.read_ahead("db")
    assert catalog.table("db.t").schema.field_names == ("k",)


@pytest.mark.parametrize("schema_id", [None, -1, "0", True, 1.5])
def test_invalid_schema_ids_are_refused(script: Script, tmp_path: Path, schema_id: object) -> None:
    script.answers(db={"name": "db"}, t=table_answer(str(tmp_path), schemaId=schema_id))
    with pytest.raises(MetastoreFailed, match="schemaId"):
        open_house(script).table("db.t")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ((200, {}, b"<html>hello</html>"), "not JSON"),
        ((200, {}, b"[1]"), "not an object"),
        ((200, {}, b'{"status": "up"}'), "does not speak"),
        ((404, {}, b"not found"), "no configuration"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "no configuration"),
        ((200, {}, b'{"defaults": ' + b"[" * 300 + b"]" * 300 + b"}"), "not JSON"),
    ],
)
def test_servers_of_another_protocol(script: Script, config: Answer, text: str) -> None:
    script.answers(config=config)
    with pytest.raises(MetastoreFailed, match=text):
        open_house(script).list_databases()


def test_a_redirect_does_not_take_the_token_away(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_REST_TOKEN", "precious")
    thief = Script()
    try:
        script.answers(databases=(307, {"Location": f"{thief.url}/v1/p/databases"}, b""))
        with pytest.raises(MetastoreFailed):
            open_house(script).list_databases()
        assert thief.seen == []
        assert script.seen[0][2]["Authorization"] == "Bearer precious"
    finally:
        thief.close()


def test_listings_that_do_not_end(script: Script) -> None:
    script.answers(databases={"databases": ["a"], "nextPageToken": "again"})
    with pytest.raises(MetastoreFailed, match="does not end"):
        open_house(script).list_databases()
    script.answers(databases={"databases": {"a": 1}})
    with pytest.raises(MetastoreFailed, match="invalid member"):
        open_house(script).list_databases()


def test_pages_are_joined(script: Script) -> None:
    pages = {"": (["b"], "2"), "2": (["a"], "3"), "3": (["c"], None)}

    def answer(method: str, path: str) -> Answer:
        if "/config" in path:
            return 200, {}, b'{"defaults": {}, "overrides": {}}'
        names, following = pages[path.partition("pageToken=")[2]]
        return 200, {}, json.dumps({"databases": names, "nextPageToken": following}).encode()

    script.answer = answer
    assert open_house(script).list_databases() == ["a", "b", "c"]
    assert script.seen[-1][1].startswith("/v1/databases?")


def test_an_answer_without_end_is_cut(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "_MAX_ANSWER_BYTES", 1000)
    script.answers(databases=(200, {}, b" " * 2000))
    with pytest.raises(MetastoreFailed, match="larger than 1000 bytes"):
        open_house(script).list_databases()


def test_texts_of_the_server_are_shortened_and_printable(script: Script) -> None:
    text = json.dumps({"message": "no\n\x1b[31m" + "x" * 9000, "resourceType": "TABLE", "resourceName": "t"})
    script.answers(databases=(403, {}, text.encode()))
    with pytest.raises(MetastoreFailed, match="forbids") as raised:
        open_house(script).list_databases()
    assert len(str(raised.value)) < 700 and str(raised.value).isprintable()


def test_a_change_is_not_repeated_when_it_may_have_arrived(script: Script) -> None:
    client = RestClient(script.url, "house")
    script.answers(databases=(500, {}, b""))
    with pytest.raises(OutcomeUnknown):
        client.post(b"{}", "databases")
    assert [method for method, _, _ in script.seen] == ["GET", "POST"]
    script.answers(databases=(400, {}, b'{"message": "no"}'))
    with pytest.raises(ServerRefusal, match="400: no"):
        client.post(b"{}", "databases")
    script.seen.clear()
    script.answers(databases=(429, {"Retry-After": "0"}, b""))
    with pytest.raises(MetastoreFailed):
        client.get("databases")
    assert len(script.seen) == 5


def test_paths_are_encoded_and_headers_sent(script: Script) -> None:
    script.answers(config={"defaults": {"prefix": "a/b c"}, "overrides": {}})
    client = RestClient(script.url + "/base/", "house", {"X-Team": "data"})
    script.answer = lambda method, path: (200, {}, b'{"defaults": {"prefix": "a/b c"}, "overrides": {}}')
    client.get("databases", "d b", "tables", "t$branch_ü")
    assert script.seen[-1][1] == "/base/v1/a%2Fb+c/databases/d+b/tables/t%24branch_%C3%BC"
    assert script.seen[-1][2]["X-Team"] == "data"


def test_a_pickled_client_has_no_token(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_REST_TOKEN", "precious")
    client = RestClient(script.url, "house")
    client.get("databases") if script.answers(databases={}) else None
    data = pickle.dumps(client)
    assert b"precious" not in data
    assert pickle.loads(data).get("databases") == {}


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "uri"),
        ({"uri": "http://user:hunter2@host"}, "uri"),
        ({"uri": "http://host:port"}, "uri"),
        ({"uri": "http://host/?x=1"}, "uri"),
        ({"uri": "http://host", "token": "x"}, "token"),
        ({"uri": "http://host", "header.Authorization": "x"}, "header.Authorization"),
        ({"uri": "http://host", "header.X-Api-Key": "x"}, "header.X-Api-Key"),
        ({"uri": "http://host", "header.Cookie": "x"}, "header.Cookie"),
        ({"uri": "http://host", "token.provider": "dlf"}, "token.provider"),
    ],
)
def test_invalid_options(options: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        Catalog("house", {"metastore": "rest", **options})
    assert raised.value.key == key
    assert "hunter2" not in str(raised.value)


def test_an_address_as_warehouse_contradicts_another_metastore() -> None:
    with pytest.raises(InvalidOption, match="because the warehouse is rest:http://host"):
        Catalog("rest:http://host", {"metastore": "jdbc"})
    assert Catalog("rest:http://host", {"warehouse": "house"}).place == "http://host/house"


def test_a_token_file_that_cannot_be_read(script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DREDGE_REST_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(InvalidOption, match="DREDGE_REST_TOKEN_FILE"):
        open_house(script).list_databases()
    (tmp_path / "lines").write_text("a\r\nHost: b")
    monkeypatch.setenv("DREDGE_REST_TOKEN_FILE", str(tmp_path / "lines"))
    with pytest.raises(InvalidOption, match="one line"):
        open_house(script).list_databases()


def test_changes_in_the_protocols_form() -> None:
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("r", pa.struct([("a", pa.int32())]))])
    definition = as_definition("db.t", fields, ["k"], [], {"bucket": "1"}, None)
    schema = new_table_schema(definition, "db.t", SystemClock())
    changes = [
        SchemaChange.remove_option("x"),
        SchemaChange.set_comment(None),
        SchemaChange.add_column("r.b", "DECIMAL(5, 2)", comment="c"),
        SchemaChange.add_column("z", pa.int32(), before="k"),
        SchemaChange.update_nullability("r", nullable=False),
        SchemaChange.update_default("r.a", None),
        SchemaChange.drop_column(["r", "a"]),
    ]
    assert change_objects(schema, changes, "db.t") == [
        {"action": "removeOption", "key": "x"},
        {"action": "updateComment", "comment": None},
        {
            "action": "addColumn",
            "fieldNames": ["r", "b"],
            "dataType": "DECIMAL(5, 2)",
            "comment": "c",
            "move": None,
        },
        {
            "action": "addColumn",
            "fieldNames": ["z"],
            "dataType": "INT",
            "comment": None,
            "move": {"fieldName": "z", "referenceFieldName": "k", "type": "BEFORE"},
        },
        {"action": "updateColumnNullability", "fieldNames": ["r"], "newNullability": False},
        {"action": "updateColumnDefaultValue", "fieldNames": ["r", "a"], "newDefaultValue": None},
        {"action": "dropColumn", "fieldNames": ["r", "a"]},
    ]


@pytest.mark.parametrize("data", [b"<html>sign in</html>", b"[]", b'{"success": tr', b" " * 2000])
def test_an_answer_without_meaning_leaves_a_change_unknown(
    script: Script, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(rest_client, "_MAX_ANSWER_BYTES", 1000)
    client = RestClient(script.url, "house")
    script.answers(databases=(200, {}, data))
    with pytest.raises(OutcomeUnknown):
        client.post(b"{}", "databases")
    with pytest.raises(MetastoreFailed):
        client.get("databases")


@pytest.mark.parametrize("name", ["", "a b", "X\r\nHost"])
def test_malformed_headers_are_refused_without_their_value(name: str) -> None:
    for header, value in ((name, "hunter2"), ("X-Team", "hunter2\r\nHost: b"), ("X-Team", "hunter2\u00e9")):
        with pytest.raises(InvalidOption) as raised:
            RestClient("http://host", "house", {header: value})
        assert "hunter2" not in str(raised.value)


def test_a_token_that_no_header_can_have(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_REST_TOKEN", "hunter2\u00e9")
    with pytest.raises(InvalidOption, match="DREDGE_REST_TOKEN") as raised:
        open_house(script).list_databases()
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("header", ["nan", "inf", "-1", "Fri, 31 Dec 1999 23:59:59 GMT"])
def test_odd_times_to_wait(script: Script, monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    waits: list[float] = []
    replace_sleep(monkeypatch, rest_client.__name__, waits.append)
    script.answers(databases=(503, {"Retry-After": header}, b""))
    with pytest.raises(MetastoreFailed, match="503"):
        open_house(script).list_databases()
    assert len(waits) == 4 and all(0 <= seconds <= 33 for seconds in waits)


@pytest.mark.parametrize(
    "config",
    [{"defaults": 5, "overrides": {}}, {"defaults": "x", "overrides": {}}, {"overrides": {"prefix": "\ud800"}}],
)
def test_odd_configurations_are_refused(script: Script, config: dict[str, object]) -> None:
    script.answers(config=config)
    with pytest.raises(MetastoreFailed):
        open_house(script).list_databases()


def test_names_that_no_database_or_table_can_have_are_left_out(script: Script) -> None:
    script.answers(
        databases={"databases": [" ", "a.b", "x$y", "d\ud800", "ok"]}, tables={"tables": [" ", "u", "t\ud800"]}
    )
    script_house = open_house(script)
    assert script_house.list_databases() == ["ok"]
    assert script_house._metastore.tables("ok") == ["u"]


def test_a_warehouse_that_is_not_unicode(script: Script) -> None:
    with pytest.raises(InvalidOption, match="Unicode"):
        Catalog("\ud800", {"metastore": "rest", "uri": script.url})
    script.answers(databases=(404, {}, b'{"message": "\\ud800"}'))
    with pytest.raises(MetastoreFailed) as raised:
        open_house(script).list_databases()
    assert str(raised.value).isprintable()


def test_odd_partitions_of_a_server_are_left_out(script: Script, tmp_path: Path) -> None:
    local = Catalog(tmp_path / "local")
    local.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.int32(), nullable=False)])
    options = {"bucket": "1", "metastore.partitioned-table": "true"}
    made = local.create_table("db.t", fields, primary_keys=["k", "p"], partition_keys=["p"], options=options)
    made.write(pa.table({"k": [1, 2, 3], "p": [1, 2, 3]}, schema=fields))
    odd = [7, None, {}, {"spec": 1}, {"spec": {"p": 3}, "done": True}, {"spec": {"q": "1"}, "done": True}]
    odd += [{"spec": {"p": "1"}, "done": "yes", "createdAt": 1 << 60, "createdBy": 7, "options": []}]
    odd += [{"spec": {"p": "2"}, "done": True, "createdAt": 1000, "createdBy": "me", "options": {"a": "b"}}]
    served = table_answer(made.store.root)
    script.answers(db={"name": "db"}, t=served, partitions={"partitions": odd})
    rows = open_house(script).table("db.t$partitions").to_arrow().to_pylist()
    columns = ("partition", "done", "created_by", "options")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("p=1", False, None, None),
        ("p=2", True, "me", '{"a": "b"}'),
        ("p=3", False, None, None),
    ]
    assert [row["created_at"] is None for row in rows] == [True, False, True]
    script.answers(db={"name": "db"}, t=served, partitions=(501, {}, b"{}"))
    assert open_house(script).table("db.t$partitions").to_arrow().num_rows == 3
    script.answers(db={"name": "db"}, t=served, partitions=(403, {}, b"{}"))
    with pytest.raises(MetastoreFailed, match="forbids"):
        open_house(script).table("db.t$partitions").to_arrow()


def test_partitions_are_marked_done_in_batches(script: Script, tmp_path: Path) -> None:
    publisher = RestPublisher(RestClient(script.url, "house"), "db.t", "1")
    script.answers(mark={})
    publisher.mark_partitions_done([{"p": str(number)} for number in range(2500)], "main")
    assert [path for method, path, _ in script.seen if method == "POST"] == [
        "/v1/p/databases/db/tables/t/partitions/mark"
    ] * 3
    for answer, error in (((500, {}, b""), MetastoreFailed), ((404, {}, b"{}"), TableNotFound)):
        script.answers(mark=answer)
        with pytest.raises(error):
            publisher.mark_partitions_done([{"p": "1"}], "main")


class Dripper:
    """Server that sends its answers byte by byte.

    Attributes:
        url: address of the server.
        connections: number of requests that arrived.
    """

    def __init__(self, head: bytes, pause: float) -> None:
        self.connections = 0
        dripper = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if b"/config" in (request := self.request.recv(65536)):
                    body = b'{"defaults": {}, "overrides": {}}'
                    self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                    request = self.request.recv(65536)
                dripper.connections += bool(request)
                with suppress(OSError):
                    self.request.sendall(head)
                    while not dripper.closed:
                        self.request.sendall(b"x")
                        threading.Event().wait(pause)

        self.closed = False
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self.closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b"HTTP"]
)
def test_an_answer_that_drips_ends_in_time(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    monkeypatch.setattr(rest_client, "_REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(rest_client, "_TOTAL_SECONDS", 2.0)
    server = Dripper(head, 0.02)
    try:
        client = RestClient(server.url, "house")
        start = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            client.post(b"{}", "databases")
        assert server.connections == 1, "a change is not repeated"
        assert time.monotonic() - start < 1.5
        start = time.monotonic()
        with pytest.raises(MetastoreFailed, match="did not answer"):
            client.get("databases")
        assert time.monotonic() - start < 3
    finally:
        server.close()


def test_the_repetitions_of_a_request_end_in_time(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = time.monotonic(), list[float]()
    script.answers(databases=(503, {"Retry-After": "9999"}, b""))
    client = RestClient(script.url, "house")
    client._load_prefix()
    monkeypatch.setattr(rest_client, "_TOTAL_SECONDS", 70.0)
    monkeypatch.setattr(rest_client.time, "monotonic", lambda: now + sum(waits))
    client._sleep = waits.append
    for send in (lambda: client.get("databases"), lambda: client.post(b"{}", "databases")):
        waits.clear()
        with pytest.raises((MetastoreFailed, OutcomeUnknown)):
            send()
        assert sum(waits) < 70.0


def test_a_server_cannot_steer_a_copy(script: Script, tmp_path: Path) -> None:
    local = Catalog(tmp_path / "local")
    local.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    made = local.create_table("db.t", fields, primary_keys=["k"], options={"bucket": "1"})
    made.write(pa.table({"k": [1]}, schema=fields))
    other = local.create_table("db.u", fields, primary_keys=["k"], options={"bucket": "2"})
    (tmp_path / "bare").mkdir()
    folders = {
        made.store.root: StorageRefused,
        f"{made.store.root}/bucket-0": CorruptFile,
        str(tmp_path / "bare"): CorruptFile,
        "/a/../../etc": MetastoreFailed,
        other.store.root: TableExists,
    }
    for folder, error in folders.items():
        script.answers(db={"name": "db"}, t=table_answer(made.store.root), copy=table_answer(folder, name="copy"))
        table = open_house(script).table("db.t")
        with pytest.raises(error):
            table.plan_maintenance("copy_table", target="db.copy")
    script.answers(db={"name": "db"}, t=table_answer(made.store.root))
    table = open_house(script).table("db.t")
    plan = table.plan_maintenance("copy_table", target="db.copy")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "/dredge/" not in str(path)}
    for folder, error in folders.items():
        answer = table_answer(folder, name="copy")
        script.answers(db={"name": "db"}, t=table_answer(made.store.root), tables={}, copy=answer)
        with pytest.raises(error):
            table.apply(plan)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "/dredge/" not in str(path)}
    assert after == before

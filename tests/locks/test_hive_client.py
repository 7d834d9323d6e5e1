"""The client of a Hive metastore: addresses, retries, unknown outcomes, limits, processes. No Java is needed."""

from __future__ import annotations

import multiprocessing
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymetastore.hive_metastore import ttypes

from lsm_core.errors import InvalidOption, MetastoreFailed, UnsupportedFeature
from lsm_core.locks.hive_client import CallUnknown, HiveClient, HiveRefusal
from lsm_core.locks.hive_settings import HiveSettings, hive_settings, parse_addresses
from tests.support.hive_double import Fault, HiveDouble


@pytest.fixture
def double(tmp_path: Path) -> Iterator[HiveDouble]:
    server = HiveDouble(str(tmp_path))
    yield server
    server.close()


def _client(*uris: str, seconds: float = 10.0, pool_size: int = 2) -> HiveClient:
    client = HiveClient(HiveSettings(parse_addresses(",".join(uris)), call_seconds=seconds, pool_size=pool_size))
    client._sleep = lambda pause: None
    return client


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_connection_is_kept_for_further_calls(double: HiveDouble) -> None:
    client = _client(double.uri)
    assert [client.read("get_all_databases") for _ in range(3)] == [["default"]] * 3
    assert double.connections == 1
    assert double.calls == ["set_ugi", *["get_all_databases"] * 3]


def test_addresses_are_tried_in_their_order(double: HiveDouble) -> None:
    client = _client(f"thrift://127.0.0.1:{_closed_port()}", double.uri)
    assert client.read("get_all_databases") == ["default"]


def test_without_a_server_the_error_names_every_address() -> None:
    ports = _closed_port(), _closed_port()
    client = _client(*(f"thrift://127.0.0.1:{port}" for port in ports))
    with pytest.raises(MetastoreFailed, match="cannot be reached") as failure:
        client.read("get_all_databases")
    assert all(str(port) in str(failure.value) for port in ports)


@pytest.mark.parametrize("kind", ["cut-before", "cut-after", "error"])
def test_a_read_is_repeated(double: HiveDouble, kind: str) -> None:
    double.faults = [Fault("get_all_databases", kind, times=2)]
    assert _client(double.uri).read("get_all_databases") == ["default"]
    assert double.calls.count("get_all_databases") == 3


@pytest.mark.parametrize(("kind", "happened"), [("cut-before", False), ("cut-after", True), ("error", False)])
def test_a_change_without_an_answer_is_sent_once(double: HiveDouble, kind: str, happened: bool) -> None:
    double.faults = [Fault("create_database", kind)]
    with pytest.raises(CallUnknown, match="create_database"):
        _client(double.uri).change("create_database", ttypes.Database("shop", "", None, {}))
    assert double.calls.count("create_database") == 1
    assert ("shop" in double.databases) is happened


def test_a_change_is_sent_again_if_the_login_failed(double: HiveDouble) -> None:
    double.faults = [Fault("set_ugi", "cut-before")]
    _client(double.uri).change("create_database", ttypes.Database("shop", "", None, {}))
    assert double.calls.count("create_database") == 1


def test_a_connection_that_the_server_closed_while_idle_is_replaced(double: HiveDouble) -> None:
    client = _client(double.uri)
    client.read("get_all_databases")
    double.cut()
    client.change("create_database", ttypes.Database("shop", "", None, {}))
    assert double.connections == 2


def test_declared_errors_keep_their_kind(double: HiveDouble) -> None:
    client = _client(double.uri)
    with pytest.raises(HiveRefusal) as refusal:
        client.read("get_database", "none")
    assert refusal.value.is_absence and not refusal.value.is_presence
    with pytest.raises(HiveRefusal) as refusal:
        client.change("create_database", ttypes.Database("default", "", None, {}))
    assert refusal.value.is_presence
    assert double.connections == 1


def test_a_call_ends_at_its_deadline(double: HiveDouble) -> None:
    double.faults = [Fault("*", "silence", times=9, seconds=1.0)]
    with pytest.raises(MetastoreFailed, match="did not answer get_all_databases"):
        _client(double.uri, seconds=0.1).read("get_all_databases")


def test_an_unknown_method_names_the_version(double: HiveDouble) -> None:
    double.unknown = {"get_all_databases"}
    with pytest.raises(MetastoreFailed, match=r"Hive 2\.3 or newer"):
        _client(double.uri).read("get_all_databases")
    assert double.calls.count("get_all_databases") == 1


_HEAD = struct.pack("!I", 0x80010002) + struct.pack("!i", 17) + b"get_all_databases" + struct.pack("!i", 0)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00" * 64,
        _HEAD + b"\x0f\x00\x00\x0b\x7f\xff\xff\xff",  # a list of 2^31 - 1 texts
        _HEAD + b"\x0f\x00\x00\x0b\x00\x00\x00\x01\x7f\xff\xff\xff",  # a text of 2^31 - 1 bytes
        _HEAD + b"\x0c\x00\x09" * 100_000,  # a struct in a struct in a struct ...
    ],
    ids=["http", "zeros", "long-list", "long-text", "deep"],
)
def test_answers_in_another_form_are_one_error(double: HiveDouble, data: bytes) -> None:
    double.faults = [Fault("get_all_databases", "bytes", times=99, data=data)]
    with pytest.raises(MetastoreFailed, match="get_all_databases"):
        _client(double.uri, seconds=0.5).read("get_all_databases")


def test_an_answer_has_a_limited_size(double: HiveDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsm_core.locks.hive_connection._MAX_ANSWER_BYTES", 1000)
    double.databases |= {f"d{number}": ttypes.Database(f"d{number}", "", "", {}) for number in range(200)}
    with pytest.raises(MetastoreFailed, match="larger than 1000 bytes"):
        _client(double.uri).read("get_all_databases")
    assert double.calls.count("get_all_databases") == 1


def test_threads_share_the_connections_of_the_pool(double: HiveDouble) -> None:
    client, answers = _client(double.uri, pool_size=3), []
    threads = [threading.Thread(target=lambda: answers.append(client.read("get_all_databases"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [["default"]] * 20
    assert double.connections <= 3


def test_a_pickled_copy_and_a_forked_process_open_their_own_connections(double: HiveDouble) -> None:
    client = _client(double.uri)
    client.read("get_all_databases")
    assert pickle.loads(pickle.dumps(client)).read("get_all_databases") == ["default"]
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        assert pool.apply(client.read, ("get_all_databases",)) == ["default"]
    client.read("get_all_databases")
    assert double.connections == 3


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "localhost:9083",
        "http://h:1",
        "thrift://",
        "thrift://u:secret@h:1",
        "jdbc:x://h/d?password=secret",
        "thrift://h:x",
        "thrift://h:1/db",
        "thrift://h:1,",
    ],
)
def test_malformed_addresses_are_refused_without_secrets(uri: str) -> None:
    with pytest.raises(InvalidOption, match="thrift://") as refusal:
        hive_settings({"uri": uri}, {})
    assert "secret" not in str(refusal.value)


def test_addresses_have_a_default_port() -> None:
    assert parse_addresses("thrift://a, thrift://[::1]:1,THRIFT://B:2/") == (("a", 9083), ("::1", 1), ("b", 2))


def _site(folder: Path, name: str, **properties: str) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items()]
    (folder / name).write_text(f"<configuration>{''.join(lines)}</configuration>", "utf-8")


def test_the_files_of_hive_and_hadoop_give_settings(tmp_path: Path) -> None:
    _site(
        tmp_path / "hive",
        "hive-site.xml",
        **{
            "hive.metastore.uris": "thrift://site:1,thrift://other:2",
            "hive.metastore.warehouse.dir": "s3://lake/warehouse",
            "hive.metastore.client.socket.timeout": "5min",
            "hive.metastore.batch.retrieve.max": "0",
            "javax.jdo.option.ConnectionPassword": "secret",
        },
    )
    _site(tmp_path / "hadoop", "core-site.xml", **{"hive.metastore.uris": "thrift://core:1"})
    options = {"hive-conf-dir": str(tmp_path / "hive"), "hadoop-conf-dir": str(tmp_path / "hadoop")}
    settings = hive_settings(options, {})
    assert settings.addresses == (("site", 1), ("other", 2))
    assert (settings.warehouse, settings.call_seconds, settings.batch_size) == ("s3://lake/warehouse", 300.0, 300)
    assert "secret" not in repr(settings)
    # The file system of a path without a scheme is known to the metastore only, so it chooses the folder itself.
    assert hive_settings({"uri": "thrift://h:1", "hive.metastore.warehouse.dir": "/warehouse"}, {}).warehouse == ""
    assert hive_settings({}, {"HIVE_CONF_DIR": str(tmp_path / "hive")}).addresses[0] == ("site", 1)
    assert hive_settings({"hadoop-conf-dir": str(tmp_path / "hadoop")}, {}).addresses == (("core", 1),)
    named = hive_settings({**options, "uri": "thrift://mine:3", "warehouse": "/own"}, {})
    assert (named.addresses, named.warehouse) == ((("mine", 3),), "/own")
    assert hive_settings({**options, "hive.metastore.uris": "thrift://set:4"}, {}).addresses == (("set", 4),)


@pytest.mark.parametrize("text", [None, "<configuration>", "<a" * 10])
def test_an_unreadable_file_is_an_option_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "hive-site.xml").write_text(text, "utf-8")
    with pytest.raises(InvalidOption, match=r"hive-site\.xml"):
        hive_settings({"hive-conf-dir": str(tmp_path)}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metastore.client.class", "com.aliyun.ProxyMetaStoreClient"),
        ("hive.metastore.use.SSL", "true"),
        ("hive.metastore.thrift.framed.transport.enabled", "TRUE"),
        ("metastore.thrift.transport.mode", "http"),
        ("hive.metastore.client.auth.mode", "plain"),
    ],
)
def test_other_clients_and_transports_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"(?i){name.removeprefix('hive.').removeprefix('metastore.')}"):
        hive_settings({"uri": "thrift://h:1", name: value}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client-pool-size", "0"),
        ("client-pool-size", "many"),
        ("hive.metastore.client.socket.timeout", "0"),
        ("hive.metastore.client.socket.timeout", "5 parsecs"),
    ],
)
def test_invalid_numbers_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        hive_settings({"uri": "thrift://h:1", name: value}, {})


def test_kerberos_needs_a_principal_and_its_packages() -> None:
    options = {"uri": "thrift://127.0.0.1:1", "hive.metastore.sasl.enabled": "true"}
    with pytest.raises(InvalidOption, match="principal"):
        hive_settings(options, {})
    settings = hive_settings({**options, "hive.metastore.kerberos.principal": "hive/_HOST@REALM"}, {})
    assert settings.principal == "hive/_HOST@REALM"
    with pytest.raises(MetastoreFailed, match="pip install pure-sasl kerberos"):
        HiveClient(settings).read("get_all_databases")

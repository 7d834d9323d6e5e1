"""Stores of other providers with an S3 interface: their options, keys, hosts, and what makes commits exclusive."""

from __future__ import annotations

import http.server
import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.cli.app import run
from lsm_core.errors import InvalidOption, LockRequired, StorageRefused
from lsm_core.storage import Guarantee, file_io_for, storage_options
from lsm_core.storage.store_settings import CreationMode, creation_mode, settings_of
from tests.support.s3_server import PROVIDER_KEYS, S3Server

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PROVIDER_KEYS.items():
        monkeypatch.setenv(name, value)


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "options", "endpoint", "region"),
    [
        (
            "oss://lake",
            {"fs.oss.endpoint": "oss-cn-hangzhou.aliyuncs.com"},
            "https://lake.oss-cn-hangzhou.aliyuncs.com",
            "oss-cn-hangzhou",
        ),
        (
            "oss://lake",
            {"fs.oss.endpoint": "https://oss-cn-beijing-internal.aliyuncs.com/", "fs.oss.sld.enabled": "true"},
            "https://oss-cn-beijing-internal.aliyuncs.com",
            "oss-cn-beijing",
        ),
        (
            "oss://lake",
            {"fs.oss.endpoint": "store:9000", "fs.oss.connection.secure.enabled": "false"},
            "http://lake.store:9000",
            "us-east-1",
        ),
        (
            "obs://lake",
            {"fs.obs.endpoint": "obs.cn-north-4.myhuaweicloud.com"},
            "https://lake.obs.cn-north-4.myhuaweicloud.com",
            "cn-north-4",
        ),
        (
            "cosn://lake-125",
            {"fs.cosn.bucket.region": "ap-guangzhou"},
            "https://lake-125.cos.ap-guangzhou.myqcloud.com",
            "ap-guangzhou",
        ),
        (
            "cos://lake-125",
            {"fs.cosn.bucket.endpoint_suffix": "cos.ap-nanjing.myqcloud.com", "s3.endpoint.region": "x-y"},
            "https://lake-125.cos.ap-nanjing.myqcloud.com",
            "x-y",
        ),
    ],
)
def test_the_options_of_spark_and_flink_name_the_host(
    place: str, options: dict[str, str], endpoint: str, region: str
) -> None:
    config = settings_of(place, options, {}).config
    assert (config["endpoint"], config["region"]) == (endpoint, region)
    assert config["virtual_hosted_style_request"] == (options.get("fs.oss.sld.enabled") != "true")


def test_the_environment_names_the_host_if_no_option_does() -> None:
    assert settings_of("oss://b", {}, {"OSS_ENDPOINT": "http://h:1"}).config["endpoint"] == "http://b.h:1"
    with pytest.raises(InvalidOption, match=r"'fs\.oss\.endpoint' .*variable OSS_ENDPOINT"):
        settings_of("oss://b", {}, {})
    with pytest.raises(InvalidOption, match=r"AWS_ENDPOINT_URL in its place"):
        settings_of("oss://b", {"fs.oss.endpoint": "h"}, {"AWS_ENDPOINT_URL_S3": "http://x"})
    with pytest.raises(InvalidOption, match=r"AWS_ENDPOINT_URL_S3, which precedes"):
        settings_of("s3://b", {"s3.endpoint": "http://h"}, {"AWS_ENDPOINT_URL_S3": "http://x"})


@pytest.mark.parametrize("bucket", ["evil.example#", "a?b=", "u@evil", "evil:80", "b c", "..", "%2e", "ü", "a" * 300])
@pytest.mark.parametrize("scheme", ["s3", "oss", "obs", "cosn", "gs"])
def test_a_bucket_with_parts_of_an_address_reaches_no_server(scheme: str, bucket: str) -> None:
    options = {"fs.oss.endpoint": "h", "fs.obs.endpoint": "h", "fs.cosn.bucket.region": "r"}
    with pytest.raises(StorageRefused, match="needs a plain name of a bucket"):
        settings_of(f"{scheme}://{bucket}", options, {})


@pytest.mark.parametrize(
    "account", ["files", "files@", "@account.host", "files@evil/x", "files@a?b", "f:k@account.host"]
)
def test_an_azure_address_needs_a_container_and_an_account(account: str) -> None:
    with pytest.raises(StorageRefused, match="container@account"):
        settings_of(f"abfss://{account}", {}, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fs.oss.endpoint": "ftp://host"}, r"fs\.oss\.endpoint"),
        ({"fs.oss.endpoint": "https://key:hush@host"}, r"fs\.oss\.endpoint"),
        ({"fs.obs.endpoint": "https://"}, r"fs\.obs\.endpoint"),
        ({"fs.oss.sld.enabled": "maybe"}, r"fs\.oss\.sld\.enabled"),
        ({"dredge.exclusive-create": "always"}, "accepted: forbid-overwrite, if-none-match, none for oss://"),
        ({"fs.oss.accessKeyId": "hush"}, "secrets from the environment only; set OSS_ACCESS_KEY_ID instead"),
        ({"fs.oss.accessKeySecret": "hush"}, "set OSS_ACCESS_KEY_SECRET instead"),
        ({"fs.obs.secret.key": "hush"}, "set OBS_SECRET_ACCESS_KEY instead"),
        ({"fs.cosn.userinfo.secretId": "hush"}, "set COSN_SECRET_ID instead"),
    ],
)
def test_wrong_options_and_secrets_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        Catalog("oss://bucket/house", options)
    assert "hush" not in str(caught.value)


def test_keys_come_from_the_providers_variables_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"ALIBABA_CLOUD_ACCESS_KEY_ID": "a", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "hush"}
    settings = settings_of("oss://b", {"fs.oss.endpoint": "h"}, environment)
    assert settings.keys is not None
    assert (settings.keys.access_key, settings.keys.secret_key) == ("a", "hush")
    assert "hush" not in repr(settings)
    with pytest.raises(StorageRefused, match="set OSS_ACCESS_KEY_SECRET, too"):
        settings_of("oss://b", {"fs.oss.endpoint": "h"}, {"OSS_ACCESS_KEY_ID": "a"})
    for name in PROVIDER_KEYS:
        monkeypatch.delenv(name)
    with pytest.raises(StorageRefused, match="no keys: set OBS_ACCESS_KEY_ID and OBS_SECRET_ACCESS_KEY"):
        Catalog("obs://bucket/house", {"fs.obs.endpoint": "http://127.0.0.1:1"}).list_databases()


def test_the_safe_default_is_a_lock_for_providers_without_if_none_match() -> None:
    assert {scheme: creation_mode(scheme, {}) for scheme in ("s3", "gs", "abfss")} == dict.fromkeys(
        ("s3", "gs", "abfss"), CreationMode.IF_NONE_MATCH
    )
    assert {creation_mode(scheme, {}) for scheme in ("oss", "obs", "cosn", "cos")} == {CreationMode.NONE}
    assert file_io_for("s3://b", {"dredge.exclusive-create": "none"})[0].guarantee is Guarantee.NONE
    with pytest.raises(InvalidOption, match="accepted: if-none-match, none for obs://"):
        creation_mode("obs", {"dredge.exclusive-create": "forbid-overwrite"})


# -- against a server --------------------------------------------------------------------------------------------------


class _Proxy(http.server.BaseHTTPRequestHandler):
    hosts: list[str]

    def do_GET(self) -> None:
        self.hosts.append(f"{self.headers['Host']} {self.path.partition('?')[0]}")
        body = b"<ListBucketResult></ListBucketResult>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep the output of the tests clean."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    hosts: list[str] = []
    handler = type("Proxy", (_Proxy,), {"hosts": hosts})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    yield hosts
    server.shutdown()
    server.server_close()


def test_the_bucket_is_a_part_of_the_host_unless_the_path_style_is_wanted(proxy: list[str]) -> None:
    with_number = settings_of("oss://lake", {"fs.oss.endpoint": "http://127.0.0.1:9000"}, {}).config
    assert with_number["endpoint"] == "http://127.0.0.1:9000"  # no bucket can be a part of it
    for extra in ({}, {"fs.oss.sld.enabled": "true"}):
        io, root = file_io_for("oss://lake/house", {"fs.oss.endpoint": "http://store.example", **extra})
        assert io.list_dir(root) == []
    assert proxy == ["lake.store.example http://lake.store.example/", "store.example http://store.example/lake"]


@pytest.mark.parametrize(
    ("scheme", "mode"),
    [("oss", "forbid-overwrite"), ("cosn", "forbid-overwrite"), ("oss", ""), ("obs", ""), ("gs", "")],
)
@pytest.mark.parametrize("failure", ["before", "after"])
def test_a_put_whose_answer_was_lost_is_known_again(
    s3: S3Server, scheme: str, mode: str, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", s3.endpoint)  # of Google's store
    io, root = file_io_for(s3.bucket(scheme), s3.provider_options(scheme, mode))
    s3.fail("PUT", "snapshot-1", mode=failure)
    assert io.write_exclusive(f"{root}/snapshot-1", b"mine")
    assert not io.write_exclusive(f"{root}/snapshot-1", b"mine")
    io.overwrite(f"{root}/snapshot-1", b"another's")
    assert not io.write_exclusive(f"{root}/snapshot-1", b"mine")


def test_commits_need_a_lock_where_the_store_cannot_refuse_them(s3: S3Server, tmp_path: Path) -> None:
    house, schema = f"{s3.bucket('obs')}/house", Schema(SCHEMA, primary_keys=["k"], options={"bucket": "1"})
    lock = {"lock.enabled": "true", "lock.type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/locks.db"}
    with_lock = Catalog(house, s3.provider_options("obs") | lock)
    table = with_lock.create_table("db.t", schema, create_database=True)
    assert table.write([{"k": 1, "v": "a"}]) == 1
    catalog = Catalog(house, s3.provider_options("obs"))
    for change in (
        lambda: catalog.table("db.t").write([{"k": 2, "v": "a"}]),
        lambda: catalog.table("db.t").compact(full=True),
        lambda: catalog.create_table("db.other", schema),
    ):
        with pytest.raises(LockRequired, match=r"dredge\.lock = jdbc.*dredge\.exclusive-create"):
            change()
    assert table.write([{"k": 1, "v": "b"}, {"k": 2, "v": "c"}]) == 2
    table.compact(full=True)
    assert sorted(catalog.table("db.t").to_arrow()["v"].to_pylist()) == ["b", "c"]


def test_a_store_with_its_own_header_needs_no_lock(s3: S3Server) -> None:
    catalog = Catalog(f"{s3.bucket('oss')}/house", s3.provider_options("oss", "forbid-overwrite"))
    table = catalog.create_table("db.t", SCHEMA, primary_keys=["k"], options={"bucket": "1"}, create_database=True)
    table.write([{"k": 1, "v": "a"}])
    other = pickle.loads(pickle.dumps(table.store.file_io))
    assert other.guarantee is Guarantee.CONDITIONAL_PUT
    assert file_io_for(table.store.root, storage_options(table.store.file_io))[0] == table.store.file_io
    assert b"tests" not in pickle.dumps(table.store.file_io)  # the keys
    assert not other.write_exclusive(f"{table.store.root}/snapshot/snapshot-1", b"")
    table.write([{"k": 1, "v": "b"}])
    assert table.refresh().to_arrow()["v"].to_pylist() == ["b"]


def test_the_doctor_tries_what_the_store_can_refuse(s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    def finding(scheme: str, mode: str = "") -> tuple[str, str]:
        house, options = f"{s3.bucket(scheme)}/house", s3.provider_options(scheme, mode)
        Catalog(house, options).create_database("db")
        words = ["doctor", "-w", house, "--json"]
        for key, value in options.items():
            words += ["--catalog-option", f"{key}={value}"]
        run(words)
        output = capsys.readouterr()
        assert output.out, output.err
        findings = {item["check"]: item for item in json.loads(output.out)["findings"]}
        return findings["exclusive creation"]["verdict"], findings["exclusive creation"]["text"]

    verdict, text = finding("oss")
    assert verdict == "warn"
    assert "commits need a lock; this store refused it in a test: dredge.exclusive-create = forbid-overwrite" in text
    assert "not in buckets with versions" in text
    verdict, text = finding("obs")
    assert (verdict, "in a test" in text) == ("warn", False)
    assert finding("obs", "if-none-match")[0] == "fail"
    assert finding("oss", "forbid-overwrite")[0] == "ok"

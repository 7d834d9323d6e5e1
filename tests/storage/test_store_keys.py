"""Keys from a catalog server: parsed by Paimon's names, renewed while a store is used, and never shown."""

from __future__ import annotations

import pickle
import time

import pytest

from lsm_core.errors import InvalidData, MetastoreFailed, StorageRefused
from lsm_core.storage import StoreKeys, file_io_for, key_source, parse_keys
from tests.support.s3_server import S3Server

SECRET = "hush-hush"


class Server:
    """Key source whose keys end soon; it counts renewals and can refuse them."""

    def __init__(self, lifetime_ms: int) -> None:
        self.lifetime_ms, self.refuses, self.calls = lifetime_ms, False, 0

    def keys(self) -> StoreKeys:
        self.calls += 1
        if self.refuses:
            raise MetastoreFailed("http://catalog", "the server forbids it")
        return StoreKeys("id", SECRET, "session", int(time.time() * 1000) + self.lifetime_ms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Server)

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize(
    "names",
    [
        ("fs.oss.accessKeyId", "fs.oss.accessKeySecret", "fs.oss.securityToken"),
        ("fs.obs.access.key", "fs.obs.secret.key", "fs.obs.session.token"),
        ("fs.cosn.userinfo.secretId", "fs.cosn.userinfo.secretKey", "fs.cosn.userinfo.sessionToken"),
        ("s3.access-key", "s3.secret-key", "s3.session-token"),
        ("s3.access-key", "s3.secret-key", "s3.session.token"),
        ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token"),
    ],
)
def test_keys_are_read_under_the_names_that_paimon_gives_them(names: tuple[str, str, str]) -> None:
    values = dict(zip(names, ("id", SECRET, "session"), strict=True)) | {"fs.oss.endpoint": "http://elsewhere"}
    keys = parse_keys(values, 5, "db.t")
    assert keys == StoreKeys("id", SECRET, "session", 5)
    assert SECRET not in repr(keys)
    del values[names[2]]
    assert parse_keys(values, None, "db.t") == StoreKeys("id", SECRET, None, None)


@pytest.mark.parametrize(
    "values",
    [{}, {"s3.access-key": "id"}, {"s3.access-key": "id", "s3.secret-key": f"{SECRET}\nHost: x"}, {"s3.secret-key": 1}],
)
def test_keys_that_are_missing_or_no_plain_text_are_refused_without_being_shown(values: dict[str, str]) -> None:
    with pytest.raises(InvalidData, match=r"db\.t.*keys for the store") as caught:
        parse_keys(values, None, "db.t")
    assert SECRET not in str(caught.value)


def test_keys_are_renewed_before_they_end_and_a_refusal_is_named(s3: S3Server) -> None:
    source = Server(lifetime_ms=60_000)
    io, root = file_io_for(s3.bucket(), s3.options, keys=source)
    assert key_source(io) is source
    io.overwrite(f"{root}/x", b"1")
    assert source.calls == 1
    time.sleep(0.2)
    assert io.read_bytes(f"{root}/x") == b"1"
    assert source.calls >= 2
    source.refuses = True
    time.sleep(0.2)
    with pytest.raises(
        StorageRefused, match=r"keys cannot be fetched from the catalog server: .*the server forbids it"
    ):
        io.read_bytes(f"{root}/x")
    state = pickle.dumps(io)
    assert SECRET.encode() not in state
    assert pickle.loads(state) == io != file_io_for(root, s3.options)[0]


def test_keys_of_a_source_need_no_keys_in_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    io, root = file_io_for(s3.bucket(), s3.options, keys=Server(3_600_000))
    assert io.write_exclusive(f"{root}/x", b"1")
    io, root = file_io_for("gs://bucket", keys=Server(3_600_000))
    with pytest.raises(StorageRefused, match="not supported for gs://"):
        io.read_bytes(f"{root}/x")


def test_keys_of_a_source_open_other_providers_too(s3: S3Server) -> None:
    options = s3.provider_options("oss", "forbid-overwrite")
    io, root = file_io_for(s3.bucket("oss"), options, keys=Server(3_600_000))
    s3.requests()
    assert io.write_exclusive(f"{root}/x", b"1")
    assert {line["key"] for line in s3.requests() if line["method"] == "PUT" and line["key"]} == {"id"}
    assert not io.write_exclusive(f"{root}/x", b"1")

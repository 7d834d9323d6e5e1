"""Options of a table lead nowhere outside of it, and hold no secrets (docs/security.md)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import InvalidOption
from lsm_core.locks.table_lock import guarantee_text
from lsm_core.options import ALLOWED_PLACES, TableOptions, is_allowed_place, is_secret

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def forged(tmp_path: Path, options: dict[str, str]) -> Table:
    """A table whose folder an attacker writes to: the options are in its newest schema, whatever validation says."""
    catalog = Catalog(tmp_path / "wh")
    table = catalog.create_table("d.t", COLUMNS, primary_keys=["id"], options={"bucket": "1"}, create_database=True)
    for number in range(3):
        table.write([{"id": number, "v": "x"}])
    path = Path(table.store.root) / "schema" / "schema-0"
    text = path.read_text()
    extra = "".join(f'"{key}" : "{value}", ' for key, value in options.items())
    assert '"options" : {' in text
    path.write_text(text.replace('"options" : {', '"options" : {' + extra, 1))
    return Catalog(tmp_path / "wh").table("d.t")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server of the attacker's; accepting from it shows whether somebody connected."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


@pytest.mark.parametrize("action", ["compact", "expire_snapshots", "orphans", "write"])
def test_a_tables_lock_leads_to_no_host_of_its_own_choice(
    tmp_path: Path, listener: socket.socket, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_JDBC_PASSWORD", "hunter2")
    port = listener.getsockname()[1]
    uri = f"jdbc:postgresql://127.0.0.1:{port}/locks?user=me"
    table = forged(tmp_path, {"dredge.lock": "jdbc", "dredge.lock.uri": uri})
    with pytest.raises(InvalidOption, match=r"dredge\.lock\.uri.*operator allows.*DREDGE_ALLOWED_PLACES"):
        if action == "write":
            table.write([{"id": 9, "v": "y"}])
        else:
            table.apply(table.plan_maintenance(action, **({"full": True} if action == "compact" else {})))
            table.compact(full=True)  # where a plan without items takes no lock
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert "commits are refused" in guarantee_text(table.store.file_io, table.store.root, "d.t", table.store.options)
    assert table.to_arrow().num_rows == 3


@pytest.mark.parametrize("kind", ["jdbc", "file"])
def test_a_tables_lock_creates_no_file_elsewhere_unless_the_operator_allows_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "victim" / "locks"
    place.parent.mkdir()
    uri = f"jdbc:sqlite:{place}" if kind == "jdbc" else str(place)
    table = forged(tmp_path, {"dredge.lock": kind, "dredge.lock.uri": uri})
    with pytest.raises(InvalidOption, match=r"dredge\.lock\.uri"):
        table.write([{"id": 9, "v": "y"}])
    assert list(place.parent.iterdir()) == []
    monkeypatch.setenv(ALLOWED_PLACES, f"s3://other/place, {uri}")
    table.write([{"id": 9, "v": "y"}])
    assert list(place.parent.iterdir())


def test_a_lock_of_the_catalog_or_of_the_caller_needs_no_allowance(tmp_path: Path) -> None:
    options = {"lock.enabled": "true", "lock.type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path / 'locks.db'}"}
    catalog = Catalog(tmp_path / "wh", options)
    table = catalog.create_table("d.t", COLUMNS, primary_keys=["id"], create_database=True)
    assert table.write([{"id": 1}]) == 1 and (tmp_path / "locks.db").exists()
    own = {"dredge.lock": "jdbc", "dredge.lock.uri": f"jdbc:sqlite:{tmp_path / 'mine.db'}"}
    assert Catalog(tmp_path / "wh").table("d.t").copy(own).write([{"id": 2}]) == 2 and (tmp_path / "mine.db").exists()


def test_what_a_caller_gave_is_known_after_a_copy_and_a_pickle() -> None:
    import pickle

    options = TableOptions({"dredge.lock.uri": "a", "bucket": "1"}).copy({"dredge.lock.key": "b"})
    for each in (options, pickle.loads(pickle.dumps(options)), options.copy({"bucket": "1"})):
        assert each.is_tables_own("dredge.lock.uri") and not each.is_tables_own("dredge.lock.key")
    assert not options.copy({"dredge.lock.uri": "c"}).is_tables_own("dredge.lock.uri")


@pytest.mark.parametrize(
    ("address", "allowed", "expected"),
    [
        ("/data/locks/t", "/data/locks", True),
        ("/data/locks", "/data/locks/", True),
        ("/data/locks/../home", "/data/locks", False),
        ("/data/locksmith", "/data/locks", False),
        ("s3://bucket/a/b", "s3://bucket/a", True),
        ("s3://bucket2/a", "s3://bucket", False),
        ("file:///data/locks", "/data/locks", True),
        ("jdbc:postgresql://h/d?user=x", "jdbc:postgresql://h/d", True),
        ("jdbc:postgresql://h/d2", "jdbc:postgresql://h/d", False),
        ("jdbc:postgresql://h/d?sslmode=disable", "jdbc:postgresql://h/d?sslmode=verify-full", False),
        ("jdbc:postgresql://h/d?sslrootcert=/t/schema/x", "jdbc:postgresql://h/d", False),
        ("jdbc:postgresql://h/d?user=x&sslmode=require", "jdbc:postgresql://h/d?sslmode=require", True),
        ("file:///data/locks/%2e%2e/home", "/data/locks", False),
        ("data/locks", "/data/locks", False),
        ("/data", "", False),
    ],
)
def test_an_address_is_allowed_by_itself_or_by_a_folder_above(
    address: str, allowed: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED_PLACES, allowed)
    assert is_allowed_place(address) is expected


SECRETS = [
    "s3.secret-key",
    "s3.access-key",
    "fs.oss.accessKeySecret",
    "my.PASSWORD",
    "sas.token",
    "private_key",
    "ssl.passphrase",
    "api-key",
]


@pytest.mark.parametrize("key", SECRETS)
def test_secrets_are_no_options_of_a_table(tmp_path: Path, key: str) -> None:
    catalog = Catalog(tmp_path)
    with pytest.raises(InvalidOption, match=r"'\*\*\*'.*environment") as refused:
        catalog.create_table("d.t", Schema(COLUMNS, options={key: "hunter2"}), create_database=True)
    assert "hunter2" not in str(refused.value) and catalog.list_databases() == []
    catalog.create_table("d.t", COLUMNS, create_database=True)
    with pytest.raises(InvalidOption, match=r"'\*\*\*'.*environment"):
        catalog.alter_table("d.t", [SchemaChange.set_option(key, "hunter2")])


def test_no_option_of_paimon_looks_like_a_secret() -> None:
    from lsm_core.options import REGISTRY

    assert [key for key in REGISTRY if is_secret(key)] == []


def test_secrets_that_another_engine_stored_are_masked_wherever_options_are_shown(tmp_path: Path) -> None:
    forged(tmp_path, {"s3.secret-key": "hunter2"})
    catalog = Catalog(tmp_path / "wh")
    texts = [str(catalog.table(f"d.t${view}").to_arrow().to_pylist()) for view in ("options", "schemas")]
    catalog.alter_table("d.t", [SchemaChange.set_option("snapshot.num-retained.min", "3")])
    texts.append(str(catalog.table("sys.all_table_options").to_arrow().to_pylist()))
    assert all("s3.secret-key" in text and "***" in text and "hunter2" not in text for text in texts)


def test_a_local_spark_that_dredge_starts_asks_for_a_secret_on_loopback(spark: object) -> None:
    """Other users of the machine can connect to its ports, and get nothing without the secret of this JVM."""
    context = spark.sparkContext  # type: ignore[attr-defined]
    assert context.getConf().get("spark.authenticate") == "true"
    assert context.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert context.getConf().get("spark.ui.enabled") == "false"


def test_doctor_masks_secrets_of_a_table(tmp_path: Path) -> None:
    from lsm_core.cli.verbs.doctor import _list_table_options

    store = forged(tmp_path, {"s3.secret-key": "hunter2", "api-key": "hunter2"}).store
    values = {option.option: option.value for option in _list_table_options(store)}
    assert "hunter2" not in values.values() and {"s3.secret-key", "api-key"} <= values.keys()

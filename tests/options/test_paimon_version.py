"""Which version of Paimon a table follows: what `writerVersion` texts say, and the newest of them."""

from __future__ import annotations

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.options import PaimonVersion, TableOptions, version_followed, version_written_by, written_as

V1_4, V2_0, V2_1 = PaimonVersion.V1_4, PaimonVersion.V2_0, PaimonVersion.V2_1


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("java-2.1-SNAPSHOT-0123456789abcdef", V2_1),
        ("python-2.1.0-5ab1e33", V2_1),
        ("python-2.1.dev-5ab1e33", V2_1),
        ("2.0.3", V2_0),
        ("dredge-2.0", V2_0),
        ("java-1.9-12.5", V1_4),
        ("java-0.9", V1_4),
        ("java-3.0", V2_1),
        ("java-2.10", V2_1),
        ("java-UNKNOWN", None),
        ("java-22.-1", None),
        ("", None),
        (None, None),
    ],
)
def test_the_version_that_a_writer_names(text: str | None, version: PaimonVersion | None) -> None:
    assert version_written_by(text) is version


def test_the_newest_writer_is_followed_and_1_4_where_none_tells() -> None:
    assert version_followed([]) is V1_4
    assert version_followed([None, "java-UNKNOWN"]) is V1_4
    assert version_followed([None, "java-2.0", "python-2.1.0-1f", None, "java-1.4"]) is V2_1


@pytest.mark.parametrize("version", list(PaimonVersion))
def test_what_dredge_writes_is_read_back_as_the_version_that_it_followed(version: PaimonVersion) -> None:
    assert version_followed([written_as(version)]) is version


def test_the_option_is_one_of_the_versions() -> None:
    assert TableOptions({}).paimon_version is V1_4
    assert TableOptions({"dredge.paimon-version": "2.1"}).paimon_version is V2_1
    with pytest.raises(InvalidOption, match=r"dredge\.paimon-version.*1\.4, 2\.0, 2\.1"):
        TableOptions({"dredge.paimon-version": "1.3"})

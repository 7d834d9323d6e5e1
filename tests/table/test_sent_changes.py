"""Changes that are sent to a catalog server or metastore: lost answers are looked up, and nothing is reported wrongly."""

from __future__ import annotations

import pytest

from lsm_core.errors import MetastoreFailed
from lsm_core.table.metastore import ChangeUnknown, send_change


class Refusal(Exception):
    """The server refused."""


class Lost(Exception):
    """The answer is missing."""


class Server:
    """A server whose answers to each request, and whose state as looked up each time, are listed."""

    def __init__(self, answers: list[Exception | None], states: list[bool | Exception]) -> None:
        self.answers, self.states, self.requests = answers, states, 0

    def send(self) -> None:
        self.requests += 1
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    def look(self) -> bool:
        state = self.states.pop(0)
        if isinstance(state, Exception):
            raise state
        return state


def change(answers: list[Exception | None], states: list[bool | Exception]) -> int:
    """Return the number of requests of one change; all answers and states are used."""
    server = Server(answers, states)
    try:
        send_change(server.send, server.look, "drop of table d.t", "http://h", refusal=Refusal, lost=Lost)
    finally:
        assert (server.answers, server.states) == ([], [])
    return server.requests


@pytest.mark.parametrize(
    ("answers", "states", "requests"),
    [
        ([None], [], 1),
        ([Lost("cut")], [True], 1),
        ([Lost("cut"), None], [False], 2),
        ([Lost("cut"), Refusal("no such table")], [False, True], 2),
        ([Lost("cut"), Lost("cut")], [False, True], 2),
    ],
    ids=["answered", "lost, done", "lost, sent again", "the first request arrived late", "lost twice, done"],
)
def test_a_change_that_happened_is_no_error(
    answers: list[Exception | None], states: list[bool | Exception], requests: int
) -> None:
    assert change(answers, states) == requests


@pytest.mark.parametrize(
    ("answers", "states"),
    [
        ([Refusal("forbidden")], []),
        ([Lost("cut"), Refusal("forbidden")], [False, False]),
        ([Lost("cut"), Refusal("forbidden")], [False, MetastoreFailed("http://h", "down")]),
    ],
    ids=["at once", "after a lost answer", "and nothing can be looked up"],
)
def test_a_refusal_is_raised_as_it_is(answers: list[Exception | None], states: list[bool | Exception]) -> None:
    with pytest.raises(Refusal, match="forbidden"):
        change(answers, states)


@pytest.mark.parametrize(
    ("answers", "states", "text"),
    [
        ([Lost("cut"), Lost("cut")], [False, False], r"the drop of table d\.t failed twice \(cut\)"),
        ([Lost("cut")], [MetastoreFailed("http://h", "down")], r"is unknown \(cut\), and cannot be looked up: .*down"),
    ],
    ids=["lost twice", "no look"],
)
def test_an_unknown_outcome_is_said(answers: list[Exception | None], states: list[bool | Exception], text: str) -> None:
    with pytest.raises(ChangeUnknown, match=text):
        change(answers, states)

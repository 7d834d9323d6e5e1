"""Parser of `CALL` statements, whose arguments are literals (`lsm_core.read.sql_text`) and never expressions.

[CALL] [catalog.]sys.name ( [argument => literal | literal, ...] ) [;]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.read.sql_text import Literal, tokens
from lsm_core.sql.reading import StatementReader

FORM: Final = "CALL sys.procedure(argument => literal, ...)"


@dataclass(frozen=True)
class CallStatement:
    """Parsed CALL; its arguments are either all positional or all named.

    Attributes:
        procedure: name of the procedure in lower case, without `sys`.
        positional: arguments by position.
        named: arguments by parameter name.
    """

    procedure: str
    positional: tuple[Literal, ...] = ()
    named: Mapping[str, Literal] = field(default_factory=dict)


def is_call(text: str) -> bool:
    """Return whether a statement begins with the word CALL."""
    for token in tokens(text, stop_early=True):
        return token.kind == "name" and token.text.upper() == "CALL"
    return False


def parse_call(text: str) -> CallStatement:
    """Parse a CALL statement; the word CALL is optional.

    Raises:
        InvalidOption: the text cannot be parsed; the message names the position.
    """
    reader = StatementReader(text)
    if reader.peek().kind == "name" and reader.peek().text.upper() == "CALL":
        reader.take()
    parts = [reader.name()]
    while reader.accept("."):
        parts.append(reader.name())
    if len(parts) not in (2, 3) or parts[-2].lower() != "sys":
        raise InvalidOption("CALL", ".".join(parts), f"a procedure of sys: {FORM}")
    reader.expect("(")
    positional: list[Literal] = []
    named: dict[str, Literal] = {}
    while not reader.accept(")"):
        if positional or named:
            reader.expect(",")
        token = reader.peek()
        if token.kind == "name" and reader.peek(1).text == "=>":
            name = reader.name()
            if name.lower() in map(str.lower, named):
                raise reader.wrong(token, f"the argument {name} is given twice")
            reader.expect("=>")
            named[name] = reader.literal()
        else:
            positional.append(reader.literal())
        if positional and named:
            raise reader.wrong(token, "arguments are all named or all by position")
    reader.accept(";")
    reader.end()
    return CallStatement(parts[-1].lower(), tuple(positional), named)

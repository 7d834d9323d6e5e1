"""Parser of `CALL` statements, whose arguments are literals (`lsm_core.read.sql_text`) and never expressions.

[CALL] [catalog.]sys.name ( [value, ...] [argument => value, ...] ) [;]

A value is a literal, or `CAST(literal AS type)` as Flink's documentation writes it for numbers and nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.options import parse_digits
from lsm_core.read.sql_text import Literal, tokens
from lsm_core.sql.reading import StatementReader

FORM: Final = "CALL sys.procedure(argument => literal, ...)"
_CASTS: Final[Mapping[str, type]] = {
    "TINYINT": int,
    "SMALLINT": int,
    "INT": int,
    "INTEGER": int,
    "BIGINT": int,
    "LONG": int,
    "STRING": str,
    "VARCHAR": str,
}
"""Types of CAST in a CALL, with the Python type of the value."""


@dataclass(frozen=True)
class CallStatement:
    """Parsed CALL; positional arguments precede named arguments, as in Spark SQL.

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
            named[name] = _read_value(reader)
        elif token.kind == "name" and reader.peek(1).text == "=":
            raise reader.wrong(reader.peek(1), f"write => between the argument {token.text} and its value")
        elif named:
            raise reader.wrong(token, "arguments by position precede the arguments by name")
        else:
            positional.append(_read_value(reader))
    reader.accept(";")
    reader.end()
    return CallStatement(parts[-1].lower(), tuple(positional), named)


def _read_value(reader: StatementReader) -> Literal:
    """Read a literal, or `CAST(literal AS type)` with a type of numbers or texts, and return its value.

    Raises:
        InvalidOption: the next words are neither, or the literal cannot be converted to the type.
    """
    token = reader.peek()
    if not (reader.word() == "CAST" and reader.peek(1).text == "("):
        return reader.literal()
    reader.take()
    reader.expect("(")
    value = reader.literal()
    reader.expect_words("AS")
    kind = _CASTS[reader.one_of(*_CASTS)]
    reader.expect(")")
    if value is None:
        return None
    number = parse_digits(str(value).strip()) if kind is int and not isinstance(value, bool) else None
    if isinstance(value, tuple | Mapping) or (kind is int and number is None):
        raise reader.wrong(token, "CAST in CALL converts whole numbers, texts and null only")
    return number if kind is int else str(value)

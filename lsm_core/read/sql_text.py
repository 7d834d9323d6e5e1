"""Parser of SQL literals and conditions; it evaluates no expression.

Literals are texts, numbers, true, false, null, `TIMESTAMP '...'`, `map('key', 'value', ...)` and `array(...)`, as in
Spark SQL. Conditions (`condition_groups`) compare columns with literals.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from lsm_core.errors import InvalidFilter, InvalidOption
from lsm_core.types import TypeRoot

Literal: TypeAlias = "str | int | Decimal | bool | tuple[Literal, ...] | Mapping[str, Literal] | None"
Group: TypeAlias = "list[tuple[str, str, Any]]"

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<number>[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?![\w.]))
      | (?P<name>[^\W\d][\w$]*|`(?:[^`]|``)+`)
      | (?P<sign>=>|<=|>=|<>|!=|==|[=<>().,:;])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_WORDS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "null": None}
_NEGATED: Final = {
    "=": "!=",
    "==": "!=",
    "!=": "=",
    "<>": "=",
    "<": "not <",
    "<=": "not <=",
    ">": "not >",
    ">=": "not >=",
    "in": "not in",
    "not in": "in",
    "is null": "is not null",
    "is not null": "is null",
    "like": "not like",
    "not like": "like",
    "is nan": "is not nan",
    "is not nan": "is nan",
}
OPPOSITES: Final = {"not <": ">=", "not <=": ">", "not >": "<=", "not >=": "<"}
"""Negated comparisons, each with the comparison that is equivalent for columns without NaN."""
_MOST_NESTING: Final = 100
MOST_TESTS: Final = 2_000
"""Largest number of tests in one filter; Arrow recurses over tests, and tens of thousands overflow the stack."""
_MOST_CHARACTERS: Final = 65_536
"""Largest number of characters of a text to parse."""


EXACT_TYPES: Final = frozenset(
    {TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.VARCHAR, TypeRoot.DATE}
)
"""Column types for which SQL literals are exact and compare in the same order as in the table."""

Condition: TypeAlias = "tuple[str, str, Any] | CompoundCondition"
"""A comparison (column, operator, value), or several comparisons joined by AND or OR."""


@dataclass(frozen=True)
class CompoundCondition:
    """Conditions joined by AND, or conditions joined by OR.

    Attributes:
        word: "AND" or "OR".
        parts: the conditions.
    """

    word: str
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Token:
    """Token of a SQL text.

    Attributes:
        kind: text, number, name or sign; "other" for characters that form no token; "end" after the last token.
        text: characters of the token.
        at: position of the token's first character in the text.
    """

    kind: str
    text: str
    at: int


def parse_condition(text: str, table: str = "", argument: str = "filter") -> Condition:
    """Parse a condition, for example ``(dt > '2024-01-01' OR h IN (1, 2)) AND NOT name LIKE 'a%'``.

    Args:
        text: comparisons of a column with a literal (=, ==, !=, <>, <, <=, >, >=, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE,
            IS [NOT] NULL, IS [NOT] NAN), joined by AND, OR, NOT and parentheses.
        table: name of the table, for errors.
        argument: name of the argument that holds the text, for errors.

    Returns:
        The condition without NOT: each negation is moved into the comparisons.

    Raises:
        InvalidFilter: the text is not a condition, is longer than 65,536 characters, or nests parentheses and NOTs more
            than 100 levels deep.
    """
    try:
        reader = SqlReader(text, argument)
        condition = reader.alternatives()
        reader.end()
    except InvalidOption as error:
        raise InvalidFilter(f"{f'table {table}: ' if table else ''}{error}") from error
    return condition


def condition_groups(text: str, table: str = "", argument: str = "where") -> list[Group]:
    """Parse a condition into the or-ed groups of a filter (`parse_filter`).

    Args:
        text: comparisons of columns with literals, joined by AND, OR, NOT and parentheses.
        table: name of the table, for errors.
        argument: name of the argument that holds the text, for errors.

    Returns:
        One list of and-ed comparisons for each alternative.

    Raises:
        InvalidFilter: the text is not a condition, or has more than 2,000 comparisons once it is written as
            alternatives.
    """
    groups = groups_of(parse_condition(text, table, argument), table)
    return [[(column, OPPOSITES.get(op, op), value) for column, op, value in group] for group in groups]


def groups_of(condition: Condition, table: str = "") -> list[Group]:
    """Return a condition as or-ed groups of and-ed comparisons.

    Args:
        condition: parsed condition with AND and OR.
        table: name of the table, for errors.

    Raises:
        InvalidFilter: the groups have more than 2,000 comparisons.
    """
    if isinstance(condition, tuple):
        return [[condition]]
    parts = [groups_of(part, table) for part in condition.parts]
    if condition.word == "OR":
        groups = [group for part in parts for group in part]
    else:
        if math.prod(map(len, parts)) * len(parts) > MOST_TESTS:
            raise InvalidFilter(
                f"{f'table {table}: ' if table else ''}the condition has more than {MOST_TESTS} comparisons once its "
                "parentheses are resolved; use IN (...) for long lists"
            )
        groups = [[test for group in combination for test in group] for combination in itertools.product(*parts)]
    return groups


def tokens(text: str, *, stop_early: bool = False) -> Iterator[Token]:
    """Yield the tokens of a text in order, without blanks and comments.

    Args:
        text: SQL text.
        stop_early: stop at characters that form no token; the last token is then of kind "other" and contains the
            remaining text.

    Raises:
        InvalidOption: a part of the text is no token, and ``stop_early`` is false.
    """
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            if stop_early:
                yield Token("other", text[position:], position)
                return
            raise InvalidOption(
                "SQL", text[position : position + 40], f"literals, names and signs only (character {position + 1})"
            )
        if match.lastgroup != "blank":
            yield Token(str(match.lastgroup), match.group(), position)
        position = match.end()


def _in_utc(text: str) -> str:
    """Return the text of an instant without its time zone, in UTC; a text without a zone is unchanged."""
    try:
        instant = dt.datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if instant.tzinfo is None else str(instant.astimezone(dt.UTC).replace(tzinfo=None))


def unquote(text: str) -> str:
    """Return the value of a quoted text: resolve backslash escapes and doubled quotation marks."""
    quote, inner = text[0], text[1:-1]
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda match: quote if match[1] is None else _ESCAPES.get(match[1], match[1]),
        inner,
        flags=re.DOTALL,
    )


class SqlReader:
    """Reader that returns the tokens of a SQL text one by one; ``argument`` is the name of the text in errors."""

    longest = _MOST_CHARACTERS
    """Largest number of characters of a text."""

    def __init__(self, text: str, argument: str) -> None:
        if not isinstance(text, str) or len(text) > self.longest:
            shown = text[:40] if isinstance(text, str) else text
            raise InvalidOption(argument, shown, f"a text of at most {self.longest} characters")
        self._argument, self._text = argument, text
        self._tokens, self._at = list(self._pieces(text)), 0

    def _pieces(self, text: str) -> Iterator[Token]:
        return tokens(text)

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token, or the token ``ahead`` positions after it; kind "end" after the last token."""
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else Token("end", "", len(self._text))

    def take(self) -> Token:
        """Return the next token and move past it."""
        token = self.peek()
        self._at += 1
        return token

    def word(self) -> str:
        """Return the next token in upper case, or "" if it is no name; the position does not change."""
        return self.peek().text.upper() if self.peek().kind == "name" else ""

    def accept(self, sign: str) -> bool:
        """Move past the next token if it is ``sign``; return whether it was."""
        is_next = self.peek().kind == "sign" and self.peek().text == sign
        self._at += is_next
        return is_next

    def expect(self, sign: str) -> None:
        """Move past the next token, which must be ``sign``.

        Raises:
            InvalidOption: the next token is not ``sign``.
        """
        if not self.accept(sign):
            raise self.wrong(self.peek(), f"'{sign}' was expected")

    def name(self) -> str:
        """Read a name and return it without back-quotes.

        Raises:
            InvalidOption: the next token is no name.
        """
        token = self.take()
        if token.kind != "name":
            raise self.wrong(token, "a name was expected")
        return token.text[1:-1].replace("``", "`") if token.text[0] == "`" else token.text

    def literal(self) -> Literal:
        """Read a literal and return its value.

        Raises:
            InvalidOption: the next token starts no literal.
        """
        token = self.take()
        if token.kind == "text":
            return unquote(token.text)
        if token.kind == "number":
            try:
                return _parse_number(token.text)
            except (ValueError, ArithmeticError) as error:
                raise self.wrong(token, "the number is too long") from error
        word = token.text.lower() if token.kind == "name" else ""
        if word in _WORDS:
            return _WORDS[word]
        if word in ("timestamp", "timestamp_ltz", "timestamp_ntz", "date") and self.peek().kind == "text":
            text = unquote(self.take().text)
            return _in_utc(text) if word in ("timestamp", "timestamp_ltz") else text
        if word in ("map", "array") and self.accept("("):
            return self._literals(token, word == "map")
        raise self.wrong(token, "a literal was expected (a text, a number, true, false, null, map(...) or array(...))")

    def _literals(self, token: Token, pairs: bool) -> Literal:
        literals: list[Literal] = []
        while not self.accept(")"):
            if literals:
                self.expect(",")
            literals.append(self.literal())
        if not pairs:
            return tuple(literals)
        if len(literals) % 2 or not all(isinstance(key, str) for key in literals[::2]):
            raise self.wrong(token, "map(...) takes text keys and values, alternating")
        return dict(zip(map(str, literals[::2]), literals[1::2], strict=True))

    def alternatives(self, *, negated: bool = False, depth: int = 0) -> Condition:
        """Read conditions joined by OR.

        Args:
            negated: whether to return the negation of the condition.
            depth: number of enclosing parentheses and NOTs.

        Raises:
            InvalidOption: the text is not a condition.
        """
        return self._compound("OR", negated, depth)

    def _compound(self, word: str, negated: bool, depth: int) -> Condition:
        """Read conditions joined by ``word`` ("AND" or "OR"); AND binds more strongly than OR.

        ``negated``: return the opposite condition. ``depth``: number of parentheses and NOTs around it.
        """
        parts: list[Condition] = []
        while True:
            parts.append(self._compound("AND", negated, depth) if word == "OR" else self._factor(negated, depth))
            if self.word() != word:
                break
            self.take()
        if len(parts) == 1:
            return parts[0]
        return CompoundCondition(word if not negated else "AND" if word == "OR" else "OR", tuple(parts))

    def _factor(self, negated: bool, depth: int) -> Condition:
        """Read a comparison, a condition in parentheses, or a condition after NOT.

        ``negated``: return the opposite condition. ``depth``: number of parentheses and NOTs around it.
        """
        if depth > _MOST_NESTING:
            raise self.wrong(self.peek(), f"at most {_MOST_NESTING} levels of nested parentheses and NOTs are accepted")
        if self.word() == "NOT":
            self.take()
            return self._factor(not negated, depth + 1)
        if self.accept("("):
            inner = self.alternatives(negated=negated, depth=depth + 1)
            self.expect(")")
            return inner
        column, operator, value = self.condition()
        if operator == "between":
            low, high = value
            return (
                CompoundCondition("OR", ((column, "not >=", low), (column, "not <=", high)))
                if negated
                else CompoundCondition("AND", ((column, ">=", low), (column, "<=", high)))
            )
        if operator == "not between":
            low, high = value
            return (
                CompoundCondition("AND", ((column, ">=", low), (column, "<=", high)))
                if negated
                else CompoundCondition("OR", ((column, "not >=", low), (column, "not <=", high)))
            )
        return (column, _NEGATED[operator] if negated else operator, value)

    def condition(self) -> tuple[str, str, Any]:
        """Read one comparison of a column with a literal; return (column, operator, value).

        Raises:
            InvalidOption: the text is not a comparison.
        """
        column = self.name()
        token = self.take()
        word = token.text.upper() if token.kind == "name" else ""
        if token.kind == "sign" and token.text in ("=", "==", "!=", "<>", "<", "<=", ">", ">="):
            return column, token.text, self.literal()
        negated = word == "NOT"
        if negated:
            word = self.word()
            self.take()
        if word == "IN" and self.accept("("):
            literals = self._literals(token, pairs=False)
            return column, "not in" if negated else "in", list(literals or ())  # type: ignore[arg-type]
        if word == "LIKE":
            pattern = self.literal()
            if not isinstance(pattern, str):
                raise self.wrong(token, "LIKE takes a text")
            return column, "not like" if negated else "like", pattern
        if word == "BETWEEN":
            low = self.literal()
            if self.word() != "AND":
                raise self.wrong(self.peek(), "BETWEEN takes two literals with AND between them")
            self.take()
            return column, "not between" if negated else "between", (low, self.literal())
        if word == "IS" and not negated:
            negated = self.word() == "NOT"
            self._at += negated
            if self.word() in ("NULL", "NAN"):
                null_or_nan = self.take().text.lower()
                return column, f"is not {null_or_nan}" if negated else f"is {null_or_nan}", None
        raise self.wrong(
            token,
            "a comparison was expected: =, !=, <, <=, >, >=, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE, "
            "IS [NOT] NULL, IS [NOT] NAN",
        )

    def end(self) -> None:
        """Check that all tokens have been read.

        Raises:
            InvalidOption: a token remains.
        """
        if self.peek().kind != "end":
            raise self.wrong(self.peek(), "the end was expected")

    def wrong(self, token: Token, reason: str) -> InvalidOption:
        """Return the error for ``token``, with its position in the text."""
        shown, place = self._text[token.at : token.at + 40], f"character {token.at + 1}"
        if token.kind == "end" and self._text.strip():
            shown, place = self._text.strip()[-40:], f"after its end, character {token.at + 1}"
        return InvalidOption(self._argument, shown or "the end", f"{reason} ({place})")


def _parse_number(text: str) -> int | Decimal:
    plain = text.upper().removesuffix("BD").rstrip("LSYDF")
    return int(plain) if plain.lstrip("+-").isdigit() else Decimal(plain)

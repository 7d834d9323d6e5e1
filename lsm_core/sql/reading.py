"""Word-by-word parsing of statements: names, literals, keywords, partition specs and options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from lsm_core.errors import InvalidStatement, TableNotFound
from lsm_core.read.sql_text import Literal, SqlReader, Token, tokens, unquote

_SHOWN: Final = 40
"""Characters of a statement that an error shows."""
CATALOGS: Final = frozenset({"paimon", "dredge"})
"""Accepted catalog names in table names of three parts; each means the current catalog."""
_NAMES_AND_TEXTS: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/"""
    r"""|(?<![\w$])(?P<name>[^\W\d]\w*(?:\$\w+)+)""",
    re.DOTALL,
)
_SEPARATORS: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<end>;)""",
    re.DOTALL,
)
_SUFFIX: Final = re.compile(r"(?<=[\d.])(BD|[LSYDF])$", re.IGNORECASE)


def split_statements(text: str) -> list[str]:
    """Return the statements of a text, without semicolons; a text of comments only has no statement."""
    statements, start, code = [], 0, []
    at = 0
    for match in _SEPARATORS.finditer(text):
        if match["comment"] is not None or match["end"] is not None:
            code.append(text[at : match.start()])
            at = match.end()
        if match["end"] is not None:
            if "".join(code).strip():
                statements.append(text[start : match.start()].strip())
            start, code = match.end(), []
    if "".join([*code, text[at:]]).strip():
        statements.append(text[start:].strip())
    return statements


class StatementReader(SqlReader):
    """Parser of one statement, word by word.

    The text from the first character that is no token of such statements (but may occur in a query) stays unparsed.
    """

    longest = 16 << 20

    def __init__(self, text: str) -> None:
        super().__init__(text, "SQL")
        self.text = text

    def _pieces(self, text: str) -> Iterator[Token]:
        return tokens(text, stop_early=True)

    def wrong(self, token: Token, reason: str) -> InvalidStatement:
        """Return the error that ``token`` is not expected, with its position in the statement and the reason."""
        if token.kind == "end":
            return InvalidStatement(self.text, f"it ends at character {token.at + 1}: {reason}")
        shown = self.text[token.at : token.at + _SHOWN]
        return InvalidStatement(self.text, f"'{shown}' at character {token.at + 1} is not expected: {reason}")

    def restart(self) -> None:
        """Continue at the first word of the statement."""
        self._at = 0

    def accept_words(self, *words: str) -> bool:
        """Consume the keywords ``words`` if they come next; return whether they were consumed."""
        matches = all(
            self.peek(place).kind == "name" and self.peek(place).text.upper() == word
            for place, word in enumerate(words)
        )
        self._at += len(words) if matches else 0
        return matches

    def expect_words(self, *words: str) -> None:
        """Consume the keywords ``words``. Raises InvalidOption if they do not come next."""
        if not self.accept_words(*words):
            raise self.wrong(self.peek(), f"{' '.join(words)} was expected")

    def one_of(self, *words: str) -> str:
        """Consume and return one of the keywords ``words``. Raises InvalidOption, which lists all of them."""
        word = self.word()
        if word not in words:
            raise self.wrong(self.peek(), f"one of {', '.join(words)} was expected")
        self.take()
        return word

    def text_literal(self) -> str:
        """Consume a quoted text. Raises InvalidOption."""
        token = self.take()
        if token.kind != "text":
            raise self.wrong(token, "a text in quotes was expected")
        return unquote(token.text)

    def dotted(self) -> tuple[str, ...]:
        """Consume names separated by dots. Raises InvalidOption."""
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return tuple(parts)

    def table(self) -> str:
        """Consume the name of a table, "database.table".

        Raises:
            InvalidOption: the next words are no name.
            TableNotFound: the name has no database.
        """
        parts = self.dotted()
        if len(parts) == 3 and parts[0].lower() in CATALOGS:
            parts = parts[1:]
        if len(parts) != 2:
            raise TableNotFound(f"there is no table {'.'.join(parts)}: name tables as database.table")
        return ".".join(parts)

    def table_of_database(self) -> str:
        """Consume the name of a table, also in the form `table IN database`. Raises the errors of :meth:`table`."""
        if self.peek(1).text.upper() in ("IN", "FROM"):
            name = self.name()
            self.take()
            return f"{self.database()}.{name}"
        return self.table()

    def database(self) -> str:
        """Consume the name of a database. Raises InvalidOption."""
        token = self.peek()
        parts = self.dotted()
        if len(parts) == 2 and parts[0].lower() in CATALOGS:
            parts = parts[1:]
        if len(parts) != 1:
            raise self.wrong(token, "the name of a database was expected")
        return parts[0]

    def names(self) -> tuple[str, ...]:
        """Consume names in parentheses. Raises InvalidOption."""
        self.expect("(")
        names = [self.name()]
        while self.accept(","):
            names.append(self.name())
        self.expect(")")
        return tuple(names)

    def plain_text(self) -> str:
        """Consume a literal as text: a text without quotes, a number without suffix, or true or false.

        Raises:
            InvalidOption: the next word is no literal.
        """
        token = self.peek()
        if token.kind == "number":
            return _SUFFIX.sub("", self.take().text)
        value = self.literal()
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str):
            raise self.wrong(token, "a text, a number, true or false was expected")
        return value

    def option_key(self) -> str:
        """Consume the key of an option: a quoted text, or names separated by dots. Raises InvalidOption."""
        return self.text_literal() if self.peek().kind == "text" else ".".join(self.dotted())

    def options(self) -> dict[str, str]:
        """Consume options in parentheses, `'key' = 'value', ...`.

        Raises:
            InvalidOption: the text cannot be parsed, or a key occurs twice.
        """
        self.expect("(")
        options: dict[str, str] = {}
        while True:
            token = self.peek()
            key = self.option_key()
            if key in options:
                raise self.wrong(token, f"the option '{key}' is given twice")
            self.accept("=")
            options[key] = self.plain_text()
            if not self.accept(","):
                break
        self.expect(")")
        return options

    def option_keys(self) -> list[str]:
        """Consume option keys in parentheses. Raises InvalidOption."""
        self.expect("(")
        keys = [self.option_key()]
        while self.accept(","):
            keys.append(self.option_key())
        self.expect(")")
        return keys

    def partition(self) -> dict[str, Literal]:
        """Consume `(column = literal, ...)`. Raises InvalidOption."""
        self.expect("(")
        spec: dict[str, Literal] = {}
        while True:
            token = self.peek()
            name = self.name()
            if name.lower() in map(str.lower, spec):
                raise self.wrong(token, f"the column {name} is given twice")
            if not self.accept("=") and not self.accept("=="):
                raise self.wrong(self.peek(), "'=' and a literal were expected")
            spec[name] = self.literal()
            if not self.accept(","):
                break
        self.expect(")")
        return spec

    def following(self) -> str:
        """Return the text from the next token on, without a semicolon at its end."""
        return self.text[self.peek().at :].strip().removesuffix(";").rstrip()

    def end(self) -> None:
        """Consume an optional semicolon and require the end of the text. Raises InvalidOption."""
        self.accept(";")
        super().end()


def with_quoted_names(text: str) -> str:
    """Return a statement with names like `t$files` in back-quotes; sqlglot would parse them as `t` with an alias.

    A doubled quote inside a text becomes an escaped quote, as in Spark 4; sqlglot would drop the doubled quote. Raw
    texts, back-quoted names and comments are unchanged.
    """
    return _NAMES_AND_TEXTS.sub(lambda match: _normalize(match, text), text)


def _normalize(match: re.Match[str], text: str) -> str:
    """Return a name in back-quotes, or a text without doubled quotes."""
    part = match[0]
    if match["name"] is not None:
        return f"`{part}`"
    quote = part[0]
    is_raw = match.start() > 0 and text[match.start() - 1] in "rR"
    if quote not in "'\"" or is_raw or quote * 2 not in part[1:-1]:
        return part
    body = re.sub(
        rf"\\.|{quote}{quote}",
        lambda sign: sign[0] if sign[0][0] == "\\" else f"\\{quote}",
        part[1:-1],
        flags=re.DOTALL,
    )
    return quote + body + quote


def all_rows_of(source: str) -> str:
    """Return `SELECT * FROM source`; ``source`` is SQL text of a table or of a query in parentheses."""
    return f"SELECT * FROM {source}"  # noqa: S608


def require_unique(reader: StatementReader, token: Token, names: Sequence[str]) -> None:
    """Raise InvalidStatement if a name occurs twice, ignoring case."""
    known: set[str] = set()
    for name in names:
        if name.lower() in known:
            raise reader.wrong(token, f"the column {name} is given twice; name a column once")
        known.add(name.lower())

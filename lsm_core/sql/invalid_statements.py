"""Errors about statements in Dredge's words; the message of the library that refused the statement is appended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import ParseError

from lsm_core.errors import DredgeError, InvalidStatement, UnsupportedFeature

USE_SPARK: Final = "the local engine; use --engine spark"
_TRAILING_COMMA: Final = re.compile(
    r",(?:\s|--[^\n]*+|(?>/\*.*?\*/))*+(?:[);]|$|"
    r"(?:FROM|WHERE|GROUP|HAVING|ORDER|UNION|EXCEPT|INTERSECT)\b)",
    re.DOTALL | re.IGNORECASE,
)
_ENDS: Final = frozenset(
    {
        *(TokenType.R_PAREN, TokenType.SEMICOLON, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY),
        *(TokenType.HAVING, TokenType.ORDER_BY, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT),
    }
)
"""Tokens before which a list ends."""
_UNDERLINES: Final = re.compile(r"\x1b\[\d*m")
_CLASS: Final = re.compile(r"<class '[\w.]*\.(\w+)'>")
_LISTS: Final = re.compile(
    r"[.\s]*(?:Valid fields are|Candidate functions:|You might need to add explicit type casts).*"
)
_PREFIXES: Final = re.compile(
    r"^(?:DataFusion error: |Schema error: |Error during planning: |Execution error: |Arrow error: |External error: "
    r"|Compute error: |Optimizer rule '\w+' failed caused by |type_coercion caused by )+"
)
_INTERNAL: Final = (
    ("dredge_table_", "table "), ("dredge_target.", ""), ("dredge_t.", ""), ("dredge_s.", ""), ("dredge_source.", ""),
)  # fmt: skip
_OWN_COLUMNS: Final = re.compile(r"^dredge_")
_TYPES: Final = {
    "Utf8": "STRING", "LargeUtf8": "STRING", "Utf8View": "STRING", "Binary": "BINARY", "BinaryView": "BINARY",
    "Boolean": "BOOLEAN", "Int8": "TINYINT", "Int16": "SMALLINT", "Int32": "INT", "Int64": "BIGINT", "Float32": "FLOAT",
    "Float64": "DOUBLE", "Date32": "DATE", "List": "ARRAY", "Struct": "STRUCT", "Map": "MAP",
}  # fmt: skip

_SIGNS: Final = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "EQ": "=", "NEQ": "<>", "GT": ">", "LT": "<", "GTE": ">=",
    "LTE": "<=", "And": "AND", "Or": "OR", "Not": "NOT",
}  # fmt: skip
_PARTS: Final = {"Paren": "the parentheses", "Whens": "the WHEN clauses"}
# Patterns of the parser's messages, each with the sentence for users.
_PARSER: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"^Expecting \)"), lambda _: "a closing parenthesis is missing"),
    (re.compile(r"^Expecting (\S+)"), lambda match: f"{match[1]} is missing"),
    (re.compile(r"^Required keyword: '\w+' missing for (\w+)"), lambda match: _missing_part(match[1])),
    (re.compile(r"^Unknown option (\S+)"), lambda match: f"the word {match[1]} has no meaning here"),
    (
        re.compile(r"provided arguments \((\d+)\) is greater than .* \((\d+)\)"),
        lambda match: f"a function takes at most {match[2]} arguments, not {match[1]}",
    ),
    (re.compile(r"^Error tokenizing"), lambda _: "a quotation mark or a comment is not closed"),
    (re.compile(r"recursion"), lambda _: "it is nested too deeply"),
    (re.compile(r"^list index out"), lambda _: "map() takes pairs of a key and a value: one lacks its value"),
)
# Patterns of DataFusion's messages, each with the sentence for users.
_ENGINE: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (
        re.compile(r"Ambiguous reference to unqualified field (\S+)"),
        lambda match: f"several tables have a column {match[1]}: name it as table.{match[1]}",
    ),
    (
        re.compile(r"(?:Cannot|Can't) cast (?:string|value) ('.*?'|\S+) to (?:value of )?(?:type )?(\w+(?:\(.*?\))?)"),
        lambda match: f"{match[1]} is no {_type_name(match[2])}: select other rows, or use TRY_CAST",
    ),
    (
        re.compile(r"Cannot coerce arithmetic expression (.+) ([-+*/%]) (.+) to valid types"),
        lambda match: f"{_type_name(match[1])} {match[2]} {_type_name(match[3])} has no result: CAST one of them",
    ),
    (
        re.compile(r"Cannot infer common argument type for comparison operation (\S+) (\S+) (\S+)"),
        lambda match: f"{_type_name(match[1])} and {_type_name(match[3])} cannot be compared: CAST one of them",
    ),
    (
        re.compile(r"Cannot create filter with non-boolean predicate '(.+)' returning (.+)"),
        lambda match: f"the condition {match[1]} is of type {_type_name(match[2])}: compare it with a value",
    ),
    (
        re.compile(r"column \"([^\"]+)\" must appear in the GROUP BY|HAVING clause references: (.+?) must appear"),
        lambda match: f"{match[1] or match[2]} must be in GROUP BY or in an aggregate function",
    ),
    (
        re.compile(r"Aggregate functions? (?:calls cannot be nested|are not allowed)"),
        lambda _: "an aggregate function is not allowed in this place: compute it in a subquery, or use HAVING",
    ),
    (
        re.compile(r"subquery returned more than one row"),
        lambda _: "a subquery in place of a value has several rows: use LIMIT 1 or an aggregate function in it",
    ),
    (
        re.compile(r"subquery should only return one column"),
        lambda _: "a subquery behind IN has several columns: select one",
    ),
    (
        re.compile(r"different number of columns"),
        lambda _: "the queries of a UNION have different numbers of columns: select equally many",
    ),
    (
        re.compile(r"[Dd]ivide by zero"),
        lambda _: "a division by zero: select other rows, or use nullif(divisor, 0)",
    ),
    (re.compile(r"[Oo]verflow"), lambda _: "a number is too large for its type: CAST it to a larger one"),
    (re.compile(r"Field (\S+) not found in struct"), lambda match: f"the struct has no field {match[1]}"),
    (
        re.compile(r"Order by column out of bounds, specified: (\d+), max: (\d+)"),
        lambda match: f"ORDER BY {match[1]} is none of the {match[2]} output columns",
    ),
    (re.compile(r"Invalid regex"), lambda _: "a pattern is no regular expression"),
    (
        re.compile(r"Function '(\w+)'|given name and argument types '(\w+)\("),
        lambda match: f"the function {match[1] or match[2]}() does not take these arguments: change or CAST them",
    ),
)


def require_no_trailing_comma(text: str) -> None:
    """Raise InvalidStatement for a comma that ends a list, which sqlglot accepts and Spark does not."""
    if _TRAILING_COMMA.search(text) is None:  # it may still be part of a text or a comment
        return
    tokens = sqlglot.tokenize(text, read="spark")
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        ends = following is None or following.token_type in _ENDS
        if token.token_type is TokenType.COMMA and ends:
            raise InvalidStatement(text, f"nothing follows the comma at line {token.line}, column {token.col}")


def parse_error(text: str, form: str, error: Exception) -> InvalidStatement:
    """Return the error for a text that the parser refuses.

    Args:
        text: the statement.
        form: description of the expected text, for example "a query in Spark SQL".
        error: the parser's error.
    """
    library = _CLASS.sub(r"\1", " ".join(_UNDERLINES.sub("", str(error)).split()))
    place, at = "", ""
    if isinstance(error, ParseError) and error.errors:
        details = error.errors[0]
        library = _CLASS.sub(r"\1", str(details["description"])).rstrip(".")
        word = str(details["highlight"] or "")
        place = f"the word {word} is not expected" if word and not word.isspace() else "it ends too early"
        at = f"; see line {details['line']}, column {details['col']}"
    reason = next((say(match) for pattern, say in _PARSER if (match := pattern.search(library))), place)
    return InvalidStatement(text, f"it is not {form}: {reason or 'it cannot be parsed'}{at}", f"parser: {library}")


def engine_error(error: Exception, text: str, columns: Iterable[str]) -> DredgeError:
    """Return the error for a statement that DataFusion refuses or cannot finish.

    Args:
        error: DataFusion's error.
        text: the statement.
        columns: column names of the statement's tables.
    """
    message = " ".join(str(error).split())
    for internal, word in _INTERNAL:
        message = message.replace(internal, word)
    if "Invalid function" in message:
        name = message.partition("Invalid function ")[2].partition(" Did")[0].strip(" .'")
        return UnsupportedFeature(f"the function {name}() in {USE_SPARK}")
    message = _LISTS.sub("", _PREFIXES.sub("", message))
    unknown = re.search(r"No field named ([^\s.]+(?:\.[^\s.]+)*)", message)
    if unknown is not None:
        known = ", ".join(dict.fromkeys(name for name in columns if not _OWN_COLUMNS.match(name)))
        reason = (
            f"no column is named {unknown[1]}; the tables have {known}" if known else f"no column is named {unknown[1]}"
        )
        message = re.sub(r"\. Did you mean .*", "", message)
    else:
        sentence = (say(match) for pattern, say in _ENGINE if (match := pattern.search(message)))
        reason = next(sentence, "the local engine cannot execute it; use --engine spark")
    return InvalidStatement(text, reason, f"DataFusion: {message}")


def _missing_part(node: str) -> str:
    """Return a message that a part of the statement is missing, such as "a value is missing beside +".

    Args:
        node: sqlglot's name of the incomplete node in the syntax tree.
    """
    if node in _SIGNS:
        return f"a value is missing beside {_SIGNS[node]}"
    return f"a part of {_PARTS.get(node, node.upper())} is missing"


def _type_name(arrow: str) -> str:
    """Return the SQL name of an Arrow type in a message of DataFusion, such as BIGINT for "Int64"."""
    arrow = arrow.strip("'. ")
    if arrow.startswith("Decimal"):
        return "DECIMAL" + arrow[arrow.find("(") :]
    if arrow.startswith("Timestamp"):
        return "TIMESTAMP"
    name = arrow.partition("(")[0]
    return _TYPES.get(name, arrow)

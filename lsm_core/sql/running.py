"""Statements run: the one door for the command line and for Spark, which bring the engine that answers queries."""

from __future__ import annotations

from lsm_core.sql.acting import Session, StatementResult, act
from lsm_core.sql.changing import delete, update
from lsm_core.sql.inserting import QueryEngine, create_as, insert, read_insert
from lsm_core.sql.merging import merge
from lsm_core.sql.parsing import parse_statement
from lsm_core.sql.statements import CreateTable, Query, RowStatement, Statement
from lsm_core.table.boundary import with_typed_errors


@with_typed_errors
class StatementRunner:
    """Runs statements on a catalog.

    Attributes:
        session: what statements act on.
        engine: answers queries.
    """

    def __init__(self, session: Session, engine: QueryEngine) -> None:
        """Keep what statements act on."""
        self.session, self.engine = session, engine
        self.root = session.catalog.root

    def run(self, statement: str | Statement) -> StatementResult:
        """Run one statement.

        Args:
            statement: its text, or what `parse_statement` made of it.

        Returns:
            What was done, or the rows of the answer.

        Raises:
            DredgeError: the statement cannot be understood or carried out; nothing was changed.
        """
        parsed = parse_statement(statement) if isinstance(statement, str) else statement
        if isinstance(parsed, Query):
            return StatementResult(rows=self.engine.answer(self.session.catalog, parsed.text).read_all())
        if isinstance(parsed, CreateTable) and parsed.query:
            return create_as(self.session, parsed, self.engine)
        if isinstance(parsed, RowStatement):
            return self._change_rows(parsed)
        return act(parsed, self.session)

    def _change_rows(self, statement: RowStatement) -> StatementResult:
        if statement.verb == "INSERT":
            return insert(self.session, read_insert(statement.text), self.engine)
        change = {"DELETE": delete, "UPDATE": update, "MERGE": merge}[statement.verb]
        return change(self.session, statement.text, self.engine)


__all__ = ["StatementRunner"]

"""Execution of any statement; the command line and Spark both use this module, each with its own query engine."""

from __future__ import annotations

from lsm_core.sql.commands import Session, StatementResult, execute_command
from lsm_core.sql.inserting import QueryEngine, create_as, insert, read_insert
from lsm_core.sql.merge_into import merge
from lsm_core.sql.parsing import parse_statement
from lsm_core.sql.statements import CreateTable, Query, RowStatement, Statement
from lsm_core.sql.update_delete import delete, update
from lsm_core.table.typed_errors import with_typed_errors


@with_typed_errors
class StatementRunner:
    """Executor of statements on a catalog.

    Attributes:
        session: catalog and settings.
        engine: executes queries.
    """

    def __init__(self, session: Session, engine: QueryEngine) -> None:
        """Store the session and the query engine."""
        self.session, self.engine = session, engine
        self.root = session.catalog.root

    def run(self, statement: str | Statement) -> StatementResult:
        """Execute one statement.

        Args:
            statement: text of the statement, or the result of `parse_statement`.

        Returns:
            A description of the change, or the rows of the query.

        Raises:
            DredgeError: the statement cannot be parsed or executed. Only completed steps of a procedure have changed
                anything.
        """
        parsed = parse_statement(statement) if isinstance(statement, str) else statement
        if isinstance(parsed, Query):
            return StatementResult(rows=self.engine.answer(self.session.catalog, parsed.text).read_all())
        if isinstance(parsed, CreateTable) and parsed.query:
            return create_as(self.session, parsed, self.engine)
        if isinstance(parsed, RowStatement):
            if parsed.verb == "INSERT":
                return insert(self.session, read_insert(parsed.text), self.engine)
            change = {"DELETE": delete, "UPDATE": update, "MERGE": merge}[parsed.verb]
            return change(self.session, parsed.text, self.engine)
        return execute_command(parsed, self.session)

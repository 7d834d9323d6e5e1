"""The `dredge` command: finds the verb, runs it, and turns every failure into one clear line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import click
import typer
from typer.core import TyperGroup

from lsm_core.cli.verbs import look, maintain, trash
from lsm_core.errors import DredgeError

_PLUGINS: Final = "dredge.verbs"
FAILED: Final = 1
MISUSED: Final = 2
_INTERRUPTED: Final = 130


class _Plugin(click.Command):
    """A verb of another package, imported only when it is called: the platform takes seconds to import."""

    def __init__(self, entry: EntryPoint) -> None:
        where = entry.dist.name if entry.dist is not None else entry.value
        super().__init__(
            entry.name,
            help=f"(of {where})",
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
        )
        self._entry = entry

    def invoke(self, ctx: click.Context) -> Any:
        """Load the real command and hand it everything that follows the verb."""
        loaded = self._entry.load()
        command = loaded
        if isinstance(loaded, typer.Typer):
            command = typer.main.get_command(loaded)
        elif not isinstance(loaded, click.Command):
            single = typer.Typer(add_completion=False)
            single.command(name=self.name)(loaded)
            command = typer.main.get_command(single)
        return command.main(args=list(ctx.args), prog_name=f"dredge {self.name}", standalone_mode=False)


class _Verbs(TyperGroup):
    """Built-in verbs, then those that installed packages bring."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all verbs."""
        own = super().list_commands(ctx)
        return [*own, *sorted(entry.name for entry in entry_points(group=_PLUGINS) if entry.name not in own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name; built-in ones win."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        return next((_Plugin(entry) for entry in entry_points(group=_PLUGINS, name=cmd_name)), None)


app = typer.Typer(
    name="dredge",
    cls=_Verbs,
    help="Keeps Paimon tables fast and clean, and says why.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("status")(look.status)
app.command("tables")(look.tables)
app.command("health")(look.health)
app.command("snapshots")(look.snapshots)
app.command("files")(look.files)
app.command("plan")(maintain.plan)
app.command("apply")(maintain.apply)
app.command("compact")(maintain.compact)
app.command("expire")(maintain.expire)
app.command("trash")(trash.trash)
app.command("restore")(trash.restore)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; failures go to stderr as one line (DREDGE_DEBUG=1 adds the traceback)."""
    try:
        result = typer.main.get_command(app).main(args=list(arguments), prog_name="dredge", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return MISUSED
    except click.ClickException as error:
        return _fail(error.format_message(), MISUSED)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _fail("interrupted", _INTERRUPTED)
    except DredgeError as error:
        return _fail(str(error), FAILED)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or type(error).__name__}{where}", FAILED)
    except Exception as error:
        return _fail(f"unexpected {type(error).__name__}: {error} (DREDGE_DEBUG=1 shows where)", FAILED)
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    if os.environ.get("DREDGE_DEBUG"):
        traceback.print_exc()
    click.echo("dredge: " + " ".join(message.split()), err=True)
    return code


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

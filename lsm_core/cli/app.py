"""The `dredge` command: selects the verb, runs it, and turns every failure into one line and an exit code."""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand

from lsm_core import __version__
from lsm_core.cli import completion
from lsm_core.cli.render import visible, visible_lines
from lsm_core.cli.verbs.common import add_catalog_options
from lsm_core.errors import DredgeError, is_panic, typed_failure

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_PLUGINS: Final = "dredge.verbs"
_OURS: Final = ("lsm_core", "dredge")
_VERBS: Final = {
    "status": "inspection",
    "tables": "inspection",
    "health": "inspection",
    "snapshots": "inspection",
    "files": "inspection",
    "show": "show",
    "partitions": "show",
    "explain": "explain",
    "holds": "inspection",
    "trash": "trash",
    "ledger": "ledger",
    "maintain": "many_tables",
    "branch": "branch",
    "consumers": "branch",
    "tag": "tag",
    "sql": "sql",
    "recover": "recover",
    "metrics": "metrics",
    "doctor": "doctor",
    "check": "check",
    "verify": "verify",
}
"""Module of each verb in `verbs`. Only the module of the running verb is imported."""
_LONG_VERBS: Final = frozenset({"maintain", "sql", "recover", "check", "verify"})
"""Verbs that may run for minutes."""
FAILED: Final = 1
MISUSED: Final = 2
_INTERRUPTED: Final = 130
_STOPPED: Final = "interrupted; what was committed before stays"
_SYSTEM_ERRORS: Final = (OSError, MemoryError)
_OBJECTS_A_COLLECTION: Final = 100_000
"""Threshold of the garbage collector.

Imports create half a million objects. With Python's default threshold of 700, the collector takes a tenth of the
command's time.
"""


def _load_verb(name: str) -> Callable[..., None]:
    """Import the module of a built-in verb, and return the verb's function."""
    verb: Callable[..., None] = getattr(import_module(f"lsm_core.cli.verbs.{_VERBS[name]}"), name)
    return verb


def _load_action_verbs() -> dict[str, Callable[..., None]]:
    """Return the verbs of all registered actions."""
    from lsm_core.cli.verbs import maintain

    return maintain.verbs()


def _find_verb(name: str) -> Callable[..., None] | None:
    """Return the built-in verb or the verb of a maintenance action by its name, or None."""
    return _load_verb(name) if name in _VERBS else _load_action_verbs().get(name)


def _list_plugins(verbs: Mapping[str, Callable[..., None]]) -> dict[str, EntryPoint]:
    """Return the verbs of installed plugin packages (such as `demo`) by name; built-in verbs take precedence.

    The search takes 30 ms; nothing is imported.
    """
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=_PLUGINS) if entry.name not in verbs}


class _Verb(TyperCommand):
    """Command that does not convert text arguments.

    To convert text, Typer imports pydantic, which takes a tenth of the time of a short command.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            _take_texts(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        """Return Typer's option `--help`, without conversion of text."""
        option = super().get_help_option(ctx)
        if option is not None:
            _take_texts(option)
        return option


def _take_texts(parameter: Any) -> None:
    """Make a parameter skip Typer's conversion if its value is text that stays text, or a list that was not given."""
    if parameter.multiple and not parameter.required and parameter.default is None:
        judge_list = parameter.process_value
        parameter.process_value = lambda context, value: judge_list(context, value) if value else None
        return
    if parameter.multiple or parameter.nargs != 1 or not hasattr(parameter, "type_descriptor"):
        return
    judge, of_text = parameter.process_value, parameter.type_descriptor.annotation is str

    def process_value(context: Any, value: Any) -> Any:
        if parameter.required if value is None else not (of_text and isinstance(value, str)):
            return judge(context, value)
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    parameter.process_value = process_value


def _build_app(verbs: Mapping[str, Callable[..., None]], epilog: str | None, *, completes: bool = False) -> typer.Typer:
    """Return the Typer application with the given verbs.

    Args:
        verbs: functions by verb.
        epilog: text below the help, or None.
        completes: whether to add the flags that install completion, and to answer requests of a shell.
    """
    app = typer.Typer(
        name="dredge",
        help="Keeps Paimon tables fast and clean, and says why.",
        epilog=epilog,
        add_completion=completes,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name, verb in verbs.items():
        app.command(name, cls=_Verb)(add_catalog_options(verb))
    return app


class _VisibleLines(logging.Formatter):
    """Log formatter that escapes control, bidi and invisible characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a log record with control and invisible characters escaped."""
        return visible_lines(super().format(record))


def run(arguments: Sequence[str]) -> int:
    """Run one command; failures are one line on standard error (DREDGE_DEBUG=1 adds the traceback).

    Args:
        arguments: command line without the name of the program; an empty command line means ``--help``.

    Returns:
        The exit code: 0, 1 after a failure, 2 for a wrong command line, or 130 after an interrupt.
    """
    words = list(arguments) or ["--help"]
    if logging.lastResort is not None:  # warnings of the engine, which name what strangers wrote
        logging.lastResort.setFormatter(_VisibleLines())
    try:
        if completion.VARIABLE in os.environ:
            return _read_exit_code(_complete())
        name, *verb_arguments = words
        if words == ["--version"]:
            print(f"dredge {__version__}")
            return 0
        verb = _find_verb(name)
        if verb is not None:  # alone: what all verbs take is longer to work out than most of them run
            return _read_exit_code(
                _build_app({name: verb}, None)(args=verb_arguments, prog_name=f"dredge {name}", standalone_mode=False)
            )
        verbs = {**{name: _load_verb(name) for name in _VERBS}, **_load_action_verbs()}
        plugins = _list_plugins(verbs)
        if name in plugins:
            return _read_exit_code(_call(plugins[name], verb_arguments))
        if not name.startswith("-") and name not in verbs:
            return _fail(_unknown_verb_message(name, [*verbs, *plugins]), MISUSED)
        also = f"Also: {', '.join(sorted(plugins))} (dredge VERB --help). " if plugins else ""
        epilog = f"{also}dredge --version prints the version."
        return _read_exit_code(
            _build_app(verbs, epilog, completes=True)(args=words, prog_name="dredge", standalone_mode=False)
        )
    except (typer.Abort, KeyboardInterrupt):
        return _fail(_STOPPED, _INTERRUPTED)
    except DredgeError as error:
        return _fail(str(error), FAILED)
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  (people get no tracebacks; panics are no Exception)
        own = (
            typed_failure(error, " ".join(["dredge", *words[:2]]))
            if isinstance(error, _SYSTEM_ERRORS) or is_panic(error)
            else None
        )
        if own is not None:
            return _fail(str(own), FAILED)
        usage = getattr(error, "format_message", None)  # a wrong option or argument
        if callable(usage):
            return _fail(f"{usage()} (see dredge {'' if words[0].startswith('-') else f'{words[0]} '}--help)", MISUSED)
        return _fail(f"unexpected {type(error).__name__}: {error} (DREDGE_DEBUG=1 shows where)", FAILED)


def _unknown_verb_message(name: str, verbs: Collection[str]) -> str:
    import difflib  # for those who mistype alone

    near = difflib.get_close_matches(name, verbs, n=2)
    known = f"did you mean {' or '.join(near)}?" if near else f"verbs are {', '.join(sorted(verbs))}"
    return f"there is no verb {name[:40]!r}; {known} (see dredge --help)"


def _complete() -> Any:
    """Answer a shell's request for completion on standard output, and return the exit code.

    If the command line already names a verb, only this verb is loaded.
    """
    typed_verb = completion.read_verb(os.environ)
    verb = None if typed_verb is None else _find_verb(typed_verb)
    if typed_verb is not None and verb is not None:
        app = _build_app({typed_verb: verb}, None, completes=True)
    else:
        verbs = {**{name: _load_verb(name) for name in _VERBS}, **_load_action_verbs()}
        plugins = _list_plugins(verbs)
        app = _build_app(verbs, None, completes=True)
        for name, entry in plugins.items():
            command = entry.load() if name == typed_verb else _do_nothing
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name)(command)
    app.callback()(_do_nothing)  # else a lone verb is no verb
    try:
        return app(args=[], prog_name="dredge", standalone_mode=False)
    except SystemExit as over:  # how Typer ends an answer
        return over.code


def _do_nothing() -> None:
    """Stand in for a verb of a plugin package, because completion needs only the name of the verb."""


def _call(entry: EntryPoint, arguments: list[str]) -> Any:
    """Run a verb of a plugin package, which is a Typer app or a function, and return the result of its command.

    Args:
        entry: entry point of the verb.
        arguments: command line after the verb.

    Raises:
        DredgeError: a package is missing; the message names it.
    """
    try:
        loaded = entry.load()
        if not isinstance(loaded, typer.Typer):
            command = loaded
            loaded = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            loaded.command(name=entry.name)(command)
        return loaded(args=arguments, prog_name=f"dredge {entry.name}", standalone_mode=False)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in _OURS:
            raise
        extras = f"[{','.join(entry.extras)}]" if entry.extras else ""
        owner = f"{entry.dist.name}{extras}" if entry.dist else package
        raise DredgeError(
            f"'dredge {entry.name}' needs the package '{package}', which is not installed; pip install '{owner}' "
            "brings it"
        ) from error


class _NoPandas:
    """Module finder that reports pandas as missing; pyarrow then works without it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("the built-in verbs run without pandas", name="pandas")


def _read_exit_code(result: Any) -> int:
    """Return the exit code of a command's result.

    Typer turns an interrupt into the number 130 without a message, so the message is printed here.
    """
    code = result if isinstance(result, int) else 0
    return _fail(_STOPPED, _INTERRUPTED) if code == _INTERRUPTED else code


def _fail(message: str, code: int) -> int:
    if os.environ.get("DREDGE_DEBUG"):
        traceback.print_exc()
    typer.echo("dredge: " + visible(" ".join(message.split())), err=True)
    return code


def _may_use_spark(arguments: Sequence[str]) -> bool:
    """Return whether a verb may start Spark, which needs pandas.

    A table named ``spark`` also counts; then pandas is loaded without need.
    """
    return arguments[0] == "sql" or not {"spark", "--runner=spark"}.isdisjoint(arguments)


def main() -> None:
    """Run the command of the console script."""
    try:
        _run_process()
    except KeyboardInterrupt:  # before or after the verb itself
        sys.exit(_fail(_STOPPED, _INTERRUPTED))


def _run_process() -> None:
    """Prepare this process for the verb of its command line, run it, and exit."""
    if sys.argv[1:2] and sys.argv[1] in _VERBS and sys.argv[1] not in _LONG_VERBS:
        gc.disable()  # what only looks is over before there is much to collect
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    if sys.argv[1:2] and not _may_use_spark(sys.argv[1:]) and _find_verb(sys.argv[1]) is not None:
        # pyarrow loads pandas (a quarter of a second) at its first array, if it is there; without Spark no
        # built-in verb needs it.
        sys.meta_path.insert(0, _NoPandas())
        # NumPy's linear algebra starts a thread per core when it is loaded, and no verb needs it.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

"""The `qframe` command: its groups put together, and how it ends."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from qframe.cli.dead import dead
from qframe.cli.flags import Config, Coordinator, Namespace, Store, choose
from qframe.cli.look import explain, peek, verify
from qframe.cli.output import say, say_error
from qframe.cli.ownership import slots, workers
from qframe.cli.publish import publish
from qframe.cli.seek import seek
from qframe.cli.topics import groups, topics
from qframe.cli.worker import worker
from qframe.errors import QFrameError

cli = typer.Typer(
    name="qframe",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, bodies among them
    rich_markup_mode=None,
)

cli.command()(worker)
cli.command()(publish)
cli.add_typer(topics, name="topics")
cli.command()(groups)
cli.command()(workers)
cli.command()(slots)
cli.command()(peek)
cli.command()(explain)
cli.command()(verify)
cli.add_typer(dead, name="dead")
cli.command()(seek)


def _say_version(asked: bool) -> None:
    if asked:
        say(f"qframe {version('qframe')}")
        raise typer.Exit


@cli.callback()
def root(
    store: Store = None,
    coordinator: Coordinator = None,
    namespace: Namespace = None,
    config: Config = None,
    version_asked: Annotated[  # noqa: ARG001 - its callback answers it
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Message consumers with per-key order, on the database you already run."""
    choose(store, namespace, config, coordinator)


def main() -> None:
    """Runs the command; a typed error is one line and exit code 1."""
    try:
        cli(prog_name="qframe")
    except QFrameError as error:
        say_error(str(error))
        sys.exit(1)

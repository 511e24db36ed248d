"""The `qframe` command: its groups put together, and how it ends."""

from __future__ import annotations

import errno
import os
import sys
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final

import typer

from qframe.cli.audit import audit
from qframe.cli.bench import bench
from qframe.cli.commands import BadCommand, Commands, WordyCommand, WorkerCommand
from qframe.cli.console import console
from qframe.cli.copy_topic import copy_topic
from qframe.cli.dead import dead
from qframe.cli.delete_topic import delete_topic
from qframe.cli.doctor import doctor
from qframe.cli.drop_group import drop_group
from qframe.cli.explain import explain
from qframe.cli.gateway import gateway
from qframe.cli.holds import holds, pause, resume
from qframe.cli.keys import skip, unblock
from qframe.cli.look import peek, verify
from qframe.cli.metrics import metrics
from qframe.cli.migrate import migrate
from qframe.cli.outbox import outbox
from qframe.cli.output import say, say_error
from qframe.cli.ownership import slots, workers
from qframe.cli.ping import ping
from qframe.cli.publish import publish
from qframe.cli.push import push
from qframe.cli.scale import scale
from qframe.cli.schedules import schedules
from qframe.cli.search import search
from qframe.cli.seek import seek
from qframe.cli.target import Target, coordinated
from qframe.cli.timers import timers
from qframe.cli.topics import groups, topics
from qframe.cli.tune import tune
from qframe.cli.worker import worker
from qframe.errors import QFrameError
from qframe.open_files import raise_limit, remedy_for

_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

cli: Final = typer.Typer(
    name="qframe",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, bodies among them
    rich_markup_mode=None,
)

cli.command(cls=WorkerCommand)(worker)
cli.command(cls=WordyCommand)(publish)
cli.add_typer(topics, name="topics")
cli.command()(groups)
cli.command()(ping)
cli.command()(scale)
cli.command()(workers)
cli.command()(slots)
cli.command()(peek)
cli.command()(explain)
cli.command()(search)
cli.command()(verify)
cli.add_typer(dead, name="dead")
cli.add_typer(outbox, name="outbox")
cli.add_typer(timers, name="timers")
cli.add_typer(schedules, name="schedules")
cli.command()(seek)
cli.command()(tune)
cli.command()(pause)
cli.command()(resume)
cli.command()(holds)
cli.command()(audit)
cli.command()(skip)
cli.command()(unblock)
cli.command()(drop_group)
cli.command()(metrics)
cli.command()(console)
cli.command()(gateway)
cli.command()(push)
cli.command()(delete_topic)
cli.command("copy")(copy_topic)
cli.command()(migrate)
cli.command()(doctor)
cli.command()(bench)


def _say_version(asked: bool) -> None:
    if asked:
        say(f"qframe {version('qframe')}")
        raise typer.Exit


@cli.callback()
@coordinated
def root(
    target: Target,
    version_asked: Annotated[  # noqa: ARG001 - its callback answers it
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Message consumers with per-key order, on the database you already run."""
    target.settings()


def main() -> None:
    """Runs the command; a typed error is one line and exit code 1, or 2 for wrong usage."""
    _make_writable()
    raise_limit()
    try:
        try:
            cli(prog_name="qframe")
        finally:
            sys.stdout.flush()  # what cannot be written is known only then
    except QFrameError as error:
        say_error(str(error))
        sys.exit(2 if isinstance(error, BadCommand) else 1)
    except OSError as error:
        if error.errno == errno.EMFILE:
            say_error(f"{error}; {remedy_for(error, '')}")
            sys.exit(1)
        if error.errno not in (errno.EPIPE, *_UNWRITABLE):
            raise
        # Python flushes once more at its end, and would say the same in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:  # a reader that goes away has seen enough
            say_error(f"the output cannot be written: {os.strerror(error.errno)}")
        sys.exit(1)


def _make_writable() -> None:
    """Sees that any text can be written to stdout and stderr.

    Discards output whose pipe the shell has closed; escapes characters that the encoding lacks.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - till the end
            setattr(sys, name, nowhere)
    if isinstance(sys.stdout, TextIOWrapper):  # stderr does so by itself
        sys.stdout.reconfigure(errors="backslashreplace")

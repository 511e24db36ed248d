"""The `qframe` command: its groups put together, and how it ends."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import click

from qframe.cli.commands import BadCommand
from qframe.cli.nouns import Noun, Program
from qframe.cli.output import say_error
from qframe.cli.target import Target, coordinated
from qframe.errors import QFrameError
from qframe.open_files import raise_limit, remedy_for

_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_PANELS: Final = {
    "Run": {
        "worker": "qframe.cli.worker:command",
        "console": "qframe.cli.console:console",
        "gateway": "qframe.cli.gateway:gateway",
        "push": "qframe.cli.push:push",
    },
    "Publish, look and check": {
        "publish": "qframe.cli.publish:publish",
        "explain": "qframe.cli.explain:explain",
        "search": "qframe.cli.search:search",
        "doctor": "qframe.cli.doctor:doctor",
        "ping": "qframe.cli.ping:ping",
        "bench": "qframe.cli.bench:bench",
    },
}
_NOUNS: Final = (
    Noun("topics", "Topics: listed, declared, given more slots, deleted.", {
        "list": "qframe.cli.topics:list_topics",
        "show": "qframe.cli.topics:show",
        "declare": "qframe.cli.topics:declare",
        "resize": "qframe.cli.resize:resize",
        "delete": "qframe.cli.delete_topic:delete_topic",
    }),
    Noun("groups", "Groups of a topic: how far they are, paused, tuned, moved, dropped.", {
        "list": "qframe.cli.topics:groups",
        "paused": "qframe.cli.holds:holds",
        "pause": "qframe.cli.holds:pause",
        "resume": "qframe.cli.holds:resume",
        "tune": "qframe.cli.tune:tune",
        "scale": "qframe.cli.scale:scale",
        "seek": "qframe.cli.seek:seek",
        "drop": "qframe.cli.drop_group:drop_group",
    }),
    Noun("keys", "Keys that are blocked or paused.", {
        "pause": "qframe.cli.holds:pause_key",
        "resume": "qframe.cli.holds:resume_key",
        "skip": "qframe.cli.keys:skip",
        "unblock": "qframe.cli.keys:unblock",
    }),
    Noun("messages", "Messages where they stand.", {
        "peek": "qframe.cli.look:peek",
    }),
    Noun("dead", "Dead letters: listed, grouped by cause, retried, dropped.", {
        "list": "qframe.cli.dead:list_dead",
        "show": "qframe.cli.dead:show",
        "causes": "qframe.cli.dead:causes",
        "retry": "qframe.cli.dead:retry",
        "drop": "qframe.cli.dead:drop",
    }),
    Noun("timers", "Messages that wait for a time.", {
        "list": "qframe.cli.timers:list_timers",
        "show": "qframe.cli.timers:show",
        "add": "qframe.cli.timers:add",
        "edit": "qframe.cli.timers:edit",
        "move": "qframe.cli.timers:move",
        "cancel": "qframe.cli.timers:cancel",
        "import": "qframe.cli.timers:import_",
    }),
    Noun("schedules", "Messages that are published again and again.", {
        "list": "qframe.cli.schedules:list_schedules",
        "show": "qframe.cli.schedules:show",
        "put": "qframe.cli.schedules:put",
        "preview": "qframe.cli.schedules:preview",
        "pause": "qframe.cli.schedules:pause",
        "resume": "qframe.cli.schedules:resume",
        "run": "qframe.cli.schedules:run",
        "backfill": "qframe.cli.schedules:backfill",
        "delete": "qframe.cli.schedules:delete",
    }),
    Noun("workers", "Workers that are alive.", {
        "list": "qframe.cli.ownership:workers",
    }),
    Noun("slots", "The owners of slots.", {
        "list": "qframe.cli.ownership:slots",
    }),
    Noun("outbox", "Messages of an outbox: shown, retried, dropped; where it is bound.", {
        "list": "qframe.cli.outbox:list_waiting",
        "show": "qframe.cli.outbox:show",
        "retry": "qframe.cli.outbox:retry",
        "drop": "qframe.cli.outbox:drop",
        "bind": "qframe.cli.outbox:bind",
    }),
    Noun("store", "The store as a whole: checked, migrated, copied, measured.", {
        "verify": "qframe.cli.look:verify",
        "migrate": "qframe.cli.migrate:migrate",
        "copy": "qframe.cli.copy_topic:copy_topic",
        "audit": "qframe.cli.audit:audit",
        "metrics": "qframe.cli.metrics:metrics",
    }),
)  # fmt: skip


@coordinated
def root(target: Target) -> None:
    """Message consumers with per-key order, on the database you already run."""
    target.settings()


cli: Final = click.version_option(package_name="qframe", message="%(prog)s %(version)s")(
    Program("qframe", root, _PANELS, {str(noun.name): noun for noun in _NOUNS})
)


def main() -> None:
    """Runs the command; a typed error is one line and exit code 1, or 2 for wrong usage."""
    _make_writable()
    raise_limit()
    try:
        try:
            code = cli.main(prog_name="qframe", standalone_mode=False)
        finally:
            sys.stdout.flush()  # what cannot be written is known only then
        sys.exit(code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        say_error(_with_help(error))
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
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


def _with_help(error: click.UsageError) -> str:
    """What is wrong, and where the right words are told."""
    text = error.format_message().removesuffix(".")
    if error.ctx is None:
        return text
    joint = " See" if text.endswith("?") else "; see"
    return f"{text}{joint} {error.ctx.command_path} --help"


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

"""`qframe copy`: copies a topic to another store."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from qframe.admin.copying import Copied
from qframe.cli.flags import AsJson, By, TopicName
from qframe.cli.output import counted, say, say_error, say_json
from qframe.cli.target import Target, coordinated
from qframe.redaction import shown_url


@coordinated
def copy_topic(
    target: Target,
    topic: TopicName,
    to: Annotated[str, typer.Option("--to", metavar="URL", help="The other store.")],
    to_namespace: Annotated[
        str | None,
        typer.Option("--to-namespace", metavar="NAME", help="Its namespace; default: the same."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read and count; write nothing.")
    ] = False,
    as_json: AsJson = False,
    by: By = None,
) -> None:
    """Copies a topic with all that it holds to another store.

    Stop its workers, or pause it, and stop its publishers first. If it is stopped, call it again:
    it goes on where it was. Histories of attempts are not copied.
    """
    with target.acting(by) as (_, admin):
        try:
            copied = admin.copy(
                topic, to, namespace=to_namespace, dry_run=dry_run, on_progress=_show_progress
            )
        except KeyboardInterrupt:
            _end_progress()
            sys.stderr.write("stopped on the way: call it again to go on\n")
            raise typer.Exit(130) from None
        _end_progress()
    where = shown_url(to)
    if as_json:
        say_json({**msgspec.to_builtins(copied), "to": where, "dry_run": dry_run})
    elif not copied.differences:
        say(_told(copied, where, dry_run=dry_run))
    if copied.differences:
        say_error(
            f"the copy of topic {topic} differs from it: {copied.differences[0]}; see that nobody "
            "publishes to it or handles its messages, and copy again; if it still differs, delete "
            f"topic {topic} in the other store first"
        )
        raise typer.Exit(1)


def _told(copied: Copied, where: str, *, dry_run: bool) -> str:
    groups = counted(len(copied.groups), "group")
    what = f"{counted(copied.messages, 'message')}, {groups}, {counted(copied.marks, 'mark')}"
    if dry_run:
        return f"topic {copied.topic} has {what} to copy to {where}; nothing was written"
    lines = [f"topic {copied.topic} is in {where}: {what}; counts and audit agree"]
    lines.append("not copied: histories of attempts, owners of slots, reports of workers")
    if copied.paused:
        names = ", ".join(copied.paused)
        lines.append(f"paused there as here: {names}; qframe resume {copied.topic} --store {where}")
    lines.append(f"start its workers with the other store only, then delete topic {copied.topic}")
    return "\n".join(lines)


def _show_progress(done: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{counted(done, 'message')}")
        sys.stderr.flush()


def _end_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")

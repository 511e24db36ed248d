"""`qframe store copy`: copies topics to another store."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from click.exceptions import Exit

from qframe.admin.copying import Copied
from qframe.cli.commands import BadCommand
from qframe.cli.flags import AsJson, By
from qframe.cli.output import counted, say, say_error, say_json
from qframe.cli.target import Target, coordinated
from qframe.errors import QFrameError
from qframe.redaction import shown_url
from qframe.topic import INTERNAL, STORE_MARK
from qframe.verbs.parameters import argument, option


@coordinated
def copy_topic(
    target: Target,
    to: Annotated[str, option("--to", metavar="URL", help="The other store.")],
    topics: Annotated[
        list[str] | None, argument("TOPIC", "The topics' names.", completes="topic")
    ] = None,
    to_namespace: Annotated[
        str | None,
        option("--to-namespace", metavar="NAME", help="Its namespace; default: the same."),
    ] = None,
    everything: Annotated[
        bool, option("--all", help="All topics, qframe's own included, in place of names.")
    ] = False,
    dry_run: Annotated[
        bool, option("--dry-run", help="Only read and count; write nothing.")
    ] = False,
    as_json: AsJson = False,
    by: By = None,
) -> None:
    """Copies topics with all that they hold to another store.

    Stop their workers, or pause them, and stop their publishers first. If it is stopped, call it
    again: it goes on where it was. Histories of attempts are not copied. A topic that cannot be
    copied keeps no other from it.
    """
    if bool(topics) == everything:
        why = "names stand beside --all" if everything else "neither names nor --all are given"
        raise BadCommand("topic", " ".join(topics or ()), why, "give one of them")
    where = shown_url(to)
    copies: dict[str, Copied | QFrameError] = {}
    with target.acting(by) as (_, admin):
        names = topics or _in_order(topic.name for topic in admin.topics())
        for name in names:
            try:
                copies[name] = admin.copy(
                    name, to, namespace=to_namespace, dry_run=dry_run, on_progress=_show_progress
                )
            except QFrameError as error:
                if len(names) == 1:
                    raise
                copies[name] = error
            except KeyboardInterrupt:
                _end_progress()
                sys.stderr.write("stopped on the way: call it again to go on\n")
                raise Exit(130) from None
            _end_progress()
            if (fault := _fault_of(name, found := copies[name])) is not None:
                say_error(fault)
            elif isinstance(found, Copied) and not as_json:
                say(_told(found, where, dry_run=dry_run))
    if as_json:
        facts = [_as_json(name, each, where, dry_run=dry_run) for name, each in copies.items()]
        say_json(facts if everything or len(names) > 1 else facts[0])
    failed = [name for name, each in copies.items() if _fault_of(name, each) is not None]
    if failed and len(names) > 1:
        say_error(f"{len(failed)} of {counted(len(names), 'topic')} failed: {', '.join(failed)}")
    if failed:
        raise Exit(1)


def _in_order(names: Iterable[str]) -> list[str]:
    """Names of topics, qframe's own behind the others: its audit has the copies, too."""
    copied = [name for name in names if not name.startswith(STORE_MARK)]
    return sorted(copied, key=lambda name: (name.startswith(INTERNAL), name))


def _fault_of(name: str, copied: Copied | QFrameError) -> str | None:
    """Why a topic is not copied, or differs from its copy."""
    if isinstance(copied, QFrameError):
        return f"topic {name} is not copied: {copied}"
    if not copied.differences:
        return None
    return (
        f"the copy of topic {name} differs from it: {copied.differences[0]}; see that nobody "
        "publishes to it or handles its messages, and copy again; if it still differs, delete "
        f"topic {name} in the other store first"
    )


def _as_json(
    name: str, copied: Copied | QFrameError, where: str, *, dry_run: bool
) -> dict[str, Any]:
    facts = {"topic": name, "error": str(copied)}
    if isinstance(copied, Copied):
        facts = msgspec.to_builtins(copied)
    return {**facts, "to": where, "dry_run": dry_run}


def _told(copied: Copied, where: str, *, dry_run: bool) -> str:
    groups = counted(len(copied.groups), "group")
    what = f"{counted(copied.messages, 'message')}, {groups}, {counted(copied.marks, 'mark')}"
    if copied.documents:
        what += f", {counted(copied.documents, 'record')}"
    if dry_run:
        return f"topic {copied.topic} has {what} to copy to {where}; nothing was written"
    lines = [f"topic {copied.topic} is in {where}: {what}; counts and audit agree"]
    lines.append("not copied: histories of attempts, owners of slots, reports of workers")
    if copied.paused:
        names = ", ".join(copied.paused)
        lines.append(
            f"paused there as here: {names}; qframe groups resume {copied.topic} --store {where}"
        )
    lines.append(f"start its workers with the other store only, then delete topic {copied.topic}")
    return "\n".join(lines)


def _show_progress(done: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{counted(done, 'message')}")
        sys.stderr.flush()


def _end_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")

"""Nouns and verbs: the commands by their words, each of which is imported when it is asked for."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import click
from click.exceptions import Exit

from qframe.cli.building import SETTINGS, WIDTH, command_of
from qframe.cli.commands import BadCommand

_NEAR: Final = 0.7


class Noun(click.Group):
    """The commands of a noun.

    Args:
        name: its name.
        about: what it is, in a sentence.
        places: where each command is, by its name: `qframe.cli.dead:retry`, a function or a
            command of a module.
    """

    def __init__(self, name: str, about: str, places: Mapping[str, str]) -> None:
        super().__init__(name, help=about, no_args_is_help=True, context_settings=SETTINGS)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """The names of its commands, in their order."""
        return list(self.places)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        cmd_name: str,
    ) -> click.Command | None:
        """The command of a name, None where there is none."""
        if cmd_name not in self.places:
            return None
        module, _, attribute = self.places[cmd_name].partition(":")
        found = getattr(import_module(module), attribute)
        return found if isinstance(found, click.Command) else command_of(found, cmd_name)

    def words(self) -> Iterator[str]:
        """The words of each command, behind the program's name."""
        return (f"{self.name} {verb}" for verb in self.places)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant, its name, and the words behind it.

        Raises:
            BadCommand: if there is none of this name.
        """
        refuse_unknown(args[0], ctx, self.places, self.words())
        return super().resolve_command(ctx, args)


class Program(click.Group):
    """All commands.

    Args:
        name: the program's name.
        root: takes the options that stand before a command, and has the program's help.
        panels: the commands that have no noun, by the heading under which help shows them.
        nouns: the others.
    """

    def __init__(
        self,
        name: str,
        root: Callable[..., None],
        panels: Mapping[str, Mapping[str, str]],
        nouns: Mapping[str, Noun],
    ) -> None:
        command = command_of(root, name)
        super().__init__(
            name, callback=root, params=command.params, help=command.help, no_args_is_help=True,
            context_settings=SETTINGS,
        )  # fmt: skip
        self._panels = panels
        self._nouns = nouns
        self._plain = Noun(name, "", dict(ChainMap(*map(dict, panels.values()))))

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; click would say Ctrl-C in a line of its own, and it is empty.

        Raises:
            Exit: with 130, if Ctrl-C has stopped it.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Exit(130) from None

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """The names of all commands and nouns."""
        return [*self._plain.places, *self._nouns]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command or noun of a name, None where there is none."""
        return self._nouns.get(cmd_name) or self._plain.get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant, its name, and the words behind it.

        Raises:
            BadCommand: if there is none of this name.
        """
        words = [words for noun in self._nouns.values() for words in noun.words()]
        refuse_unknown(args[0], ctx, self.list_commands(ctx), [*self._plain.places, *words])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands under their headings, then each noun with its verbs."""
        for heading, places in self._panels.items():
            with formatter.section(heading):
                commands = ((name, self.get_command(ctx, name)) for name in places)
                formatter.write_dl(
                    [(name, each.get_short_help_str(WIDTH)) for name, each in commands if each]
                )
        with formatter.section("Look and act, as qframe NOUN VERB"):
            formatter.write_dl(
                [(name, ", ".join(noun.places)) for name, noun in self._nouns.items()]
            )


def refuse_unknown(
    word: str, ctx: click.Context, known: Collection[str], words: Iterable[str]
) -> None:
    """Refuses a word that is no command, and names the one that is probably meant.

    Args:
        word: what was typed.
        ctx: of the commands among which it was looked for.
        known: the names of these.
        words: the commands that may be meant, each by all of its words.

    Raises:
        BadCommand: if it is none of these.
    """
    if word in known or word.startswith("-") or ctx.resilient_parsing:  # a shell completes it
        return
    program = ctx.find_root().info_name
    paths = [f"{ctx.command_path} {each}" for each in known]
    paths += [path for each in words if (path := f"{program} {each}") not in paths]
    last = [path.split()[-1] for path in paths]
    verb, _, noun = word.partition("-")
    names = [verb] if verb in last else get_close_matches(word, last, n=1, cutoff=_NEAR)
    meant = [path for path, name in zip(paths, last, strict=True) if name in names]
    if noun:
        meant = [path for path in meant if path.split()[1].startswith(noun)] or meant
    shown = " or ".join(meant[:3])
    raise BadCommand(
        "command", word, "there is no such command",
        f"use {shown}" if shown else f"see {ctx.command_path} --help",
    )  # fmt: skip

"""How commands are shown and found: plain usage lines, and errors for words that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import takewhile
from typing import Any, Final, Self

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from qframe.digits import decimal_number, whole_number
from qframe.errors import BadOption
from qframe.options.consumer import ConsumerOptions
from qframe.options.rules import options_of
from qframe.words import word_of

_PLAIN: Final = (str, int, float)
_NUMBERS: Final[Mapping[Any, Callable[[str], float]]] = {
    int: whole_number, int | None: whole_number,
    float: decimal_number, float | None: decimal_number,
}  # fmt: skip
_TUNED: Final = {"threads": "--threads", "rate_limit": "--rate", "max_in_flight": "--in-flight"}


class BadCommand(BadOption):
    """Raised when a command line lacks a word, or has words that exclude each other.

    The exit code is 2.
    """


def check_states(named: Iterable[str], known: Collection[str]) -> None:
    """Sees that there are such states.

    Raises:
        BadCommand: if one is none.
    """
    for state in named:
        if state not in known:
            use = f"use one of {', '.join(known)}"
            raise BadCommand("--state", state, "there is no such state", use)


def check_one_of(command: str, options: Mapping[str, object], needs: str | None = None) -> None:
    """Sees that at most one of some options is given, and one where the command needs it.

    Args:
        command: the command's name.
        options: what each was given, by its name; None for nothing.
        needs: what the command lacks where none is given; None if it lacks nothing.

    Raises:
        BadCommand: otherwise.
    """
    given = _given(options)
    if len(given) > 1:
        raise BadCommand("command", command, f"it has {' and '.join(given)}", "give one of them")
    if needs is not None and not given:
        *others, last = options
        remedy = f"give {', '.join(others)} or {last}"
        raise BadCommand("command", command, f"it needs {needs}", remedy)


def check_beside(command: str, what: str, options: Mapping[str, object], remedy: str) -> None:
    """Sees that no option is given that does nothing beside another word.

    Raises:
        BadCommand: if one is.
    """
    if given := _given(options):
        why = f"beside {what} it has no use for {', '.join(given)}"
        raise BadCommand("command", command, why, f"leave that out, or {remedy}")


def _given(options: Mapping[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None and value is not False]


class Commands(TyperGroup):
    """A group whose commands name their arguments as people do: `MODULE...`, `[TOPIC]`."""

    def get_params(self, ctx: Any) -> Any:
        """Its own options."""
        return _read_late(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, or None."""
        command = super().get_command(ctx, cmd_name)
        for parameter in [] if command is None else _read_late(command.get_params(ctx)):
            _make_plain(parameter)
        return command


def _make_plain(parameter: Any) -> None:
    """Takes types, braces and ranges out of a parameter's help: its metavar says what it is."""
    parameter._get_number_range_help_str = lambda: None  # noqa: SLF001 - `1<=x<=100000`
    if parameter.param_type_name != "argument":
        return
    name = parameter.metavar or parameter.name.upper()
    piece = (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs != 1 else "")
    parameter.display_type_rich = lambda **_: None
    parameter.get_usage_pieces = lambda _: [piece]


class _ValueReader:
    """Takes values that are of their type already, as texts and defaults are, for what they are.

    Typer asks pydantic about every value, whose import takes as long as that of all of qframe.
    """

    def __init__(self, by_pydantic: Callable[[], Any]) -> None:
        self._by_pydantic = by_pydantic

    def __call__(self) -> Self:
        """Itself, in place of what typer would make."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value that a command is called with, by what was read of the command line."""
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        wanted = param.type_descriptor
        if isinstance(value, str) and (read := _NUMBERS.get(wanted.annotation)) is not None:
            _check_number(value, read, param, ctx)
        if wanted.parameter_info.parser is None:
            if type(value) is wanted.annotation and wanted.annotation in _PLAIN:
                return value
            if wanted.annotation == list[str] and type(value) is tuple:
                return list(value)
        return self._by_pydantic().coerce(value, param=param, ctx=ctx)


def _check_number(text: str, read: Callable[[str], float], param: Any, ctx: Any) -> None:
    """Refuses a number in other digits, which pydantic takes."""
    try:
        read(text)
    except ValueError as error:
        raise BadParameter(str(error), ctx=ctx, param=param) from None


def _read_late(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if not isinstance(parameter.get_runtime_param, _ValueReader):
            parameter.get_runtime_param = _ValueReader(parameter.get_runtime_param)
    return parameters


class TopicCommands(Commands):
    """Commands on topics; the name of a topic in place of a command shows that topic."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command's name, the command, and its arguments."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            return "show", self.get_command(ctx, "show"), args
        return super().resolve_command(ctx, args)


class WordyCommand(TyperCommand):
    """A command whose options people may know by the words of another system."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line.

        Raises:
            BadCommand: if an option is known by another name here.
        """
        own = {option for parameter in self.params for option in parameter.opts}
        for argument in takewhile("--".__ne__, args):
            flag = argument.partition("=")[0]
            if flag.startswith("--") and flag not in own:
                self.refuse(flag, own)
        return super().parse_args(ctx, args)

    def refuse(self, flag: str, own: Collection[str]) -> None:
        """Refuses a flag that the command does not have, if it knows what is meant.

        Raises:
            BadCommand: then.
        """
        word = word_of(flag)
        for option in word.options.values() if word is not None else ():
            meant = f"--{option.removeprefix('--').replace('_', '-')}"
            if meant in own:
                raise BadCommand("option", flag, "there is no such option", f"use {meant}")


class WorkerCommand(WordyCommand):
    """A command that knows the options of a consumer, and where they belong."""

    def refuse(self, flag: str, own: Collection[str]) -> None:
        """Refuses a flag that the command does not have, if it knows what is meant.

        Raises:
            BadCommand: if an option is known by another name here.
            BadOption: if it is one of consumers.
        """
        super().refuse(flag, own)
        name = flag.removeprefix("--").replace("-", "_")
        word = word_of(flag)
        if word is not None:
            name = word.options.get("consumer", name)
        if name in options_of(ConsumerOptions):
            raise BadOption("option", flag, "it is an option of each consumer", _where(name))


def _where(name: str) -> str:
    code = f"write @consumer(…, {name}=…) in the module"
    if name not in _TUNED:
        return code
    return f"{code}, or change running workers: qframe tune TOPIC GROUP {_TUNED[name]} …"

"""Commands made of functions: each parameter by its type, its default and its `Param`.

A command is a function whose parameters are described in their annotations (`qframe.verbs`); its
docstring is its help. What the shell types is read here: numbers in plain digits, words in place
of options of another system named as what they are here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from types import NoneType
from typing import Any, Final, get_args, get_origin

import click

from qframe.cli.commands import BadCommand
from qframe.cli.completing import names_for
from qframe.digits import decimal_number, whole_number
from qframe.verbs.parameters import Param
from qframe.words import word_of

WIDTH: Final = 80
"""Help is as wide as this: a line that is longer is not read."""

SETTINGS: Final = {"max_content_width": WIDTH}


def command_of(
    function: Callable[..., None], name: str, kind: type[Command] | None = None
) -> Command:
    """The command that calls a function.

    Args:
        function: its parameters have a `Param` each in their annotations.
        name: the command's name.
        kind: its class; by default `Command`.
    """
    signature = inspect.signature(function, eval_str=True)
    described = [_described(each) for each in signature.parameters.values()]
    page = getattr(function, "page", None)
    return (Command if kind is None else kind)(
        name,
        callback=function,
        params=[each for each in described if each is not None],
        help=inspect.getdoc(function),
        epilog=page,
        context_settings=SETTINGS,
    )


def _described(parameter: inspect.Parameter) -> click.Parameter:
    """The argument or option of a function's parameter."""
    base, *more = get_args(parameter.annotation)
    [param] = (each for each in more if isinstance(each, Param))
    wanted, is_many = _value_type(base)
    has_default = parameter.default is not parameter.empty
    given: dict[str, Any] = {
        "type": _Text(wanted, param), "metavar": param.metavar or None,
        "callback": _read_many(parameter.default if has_default else None) if is_many else None,
        "shell_complete": names_for(param.completes) if param.completes else None,
        "envvar": param.variable,
    }  # fmt: skip
    if has_default and not is_many:
        given["default"] = parameter.default
    if param.is_argument:
        return Argument(
            [parameter.name], required=not has_default, nargs=-1 if is_many else 1,
            description=param.help, **given,
        )  # fmt: skip
    if wanted is bool:
        given |= {"is_flag": True, "type": click.BOOL}
    flags = param.flags or (f"--{parameter.name.replace('_', '-')}",)
    return click.Option(
        [*flags, parameter.name], required=not has_default, multiple=is_many, help=param.help,
        hidden=param.is_hidden, **given,
    )  # fmt: skip


def _value_type(base: Any) -> tuple[type, bool]:
    """The type of a value, and whether there are several of them."""
    [kind] = [each for each in get_args(base) or (base,) if each is not NoneType][:1]
    if get_origin(base) is list:
        return get_args(base)[0], True
    if get_origin(kind) is list:
        return get_args(kind)[0], True
    return kind, False


def _read_many(default: Any) -> Callable[[Any, Any, Sequence[Any]], Any]:
    """Makes a list of what was given several times; the function's default where nothing was."""
    return lambda _context, _parameter, values: list(values) if values else default


class _Text(click.ParamType[Any]):
    """Reads a text as a value of a type, within its bounds."""

    def __init__(self, wanted: type, param: Param) -> None:
        self.name = param.metavar or wanted.__name__
        self.wanted = wanted
        self._param = param

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:  # fmt: skip
        """The value of a text; a default is what it is."""
        if not isinstance(value, str):
            return value
        if self._param.read is not None:
            return self._param.read(value)
        if self.wanted not in (int, float):
            return value if self.wanted is str else self.wanted(value)
        read = whole_number if self.wanted is int else decimal_number
        try:
            number = read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        least, most = self._param.least, self._param.most
        if (least is not None and number < least) or (most is not None and number > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            self.fail(f"{value} is out of range: it must be {bounds}", param, ctx)
        return number


class Argument(click.Argument):
    """An argument with a help text of its own; an optional one stands in brackets."""

    def __init__(self, *args: Any, description: str, **given: Any) -> None:
        super().__init__(*args, **given)
        self.description = description

    def make_metavar(self, ctx: click.Context) -> str:  # noqa: ARG002
        """The word that stands for it in the usage line."""
        name = self.metavar or self.human_readable_name
        return (name if self.required else f"[{name}]") + ("..." if self.nargs == -1 else "")


class Command(click.Command):
    """A command whose arguments are explained, and whose options people may know by other words."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes what its arguments are, then its options."""
        rows = [
            (each.make_metavar(ctx), each.description)
            for each in self.get_params(ctx)
            if isinstance(each, Argument)
        ]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the command line.

        Raises:
            BadCommand: if an option is known by another name here.
        """
        own = {option for parameter in self.params for option in parameter.opts} | {"--help"}
        # While a shell completes a line, nobody wants to hear what is wrong with it.
        for word in takewhile("--".__ne__, args if not ctx.resilient_parsing else ()):
            flag = word.partition("=")[0]
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

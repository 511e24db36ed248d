"""The modules that a worker serves: imported from the current directory, and the apps in them."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final

from qframe.app.qframe import QFrame
from qframe.app.registry import REGISTRY
from qframe.errors import BadModule, QFrameError

_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")


def apps_of(names: Sequence[str]) -> list[QFrame]:
    """The apps with consumers or outboxes that there are once these modules are imported.

    `module:app` names one app; `module` means every app that was created meanwhile.

    Raises:
        BadModule: if one cannot be imported, is none, or there is nothing to serve.
    """
    _look_here()
    named: list[QFrame] = []
    for name in names:
        module_name, colon, attribute = _checked(name).partition(":")
        module = _imported(module_name)
        if colon:
            named.append(_app(name, module, attribute))
    everything = REGISTRY.apps() if any(":" not in name for name in names) else named
    apps = [app for app in everything if app.serves]
    if not apps:
        raise BadModule(
            "module", " ".join(names), "it registers no consumer",
            'decorate a function with @consumer("topic", group="group"), or name the modules with '
            "decorated functions",
        )  # fmt: skip
    return apps


def refuse_absent(names: Sequence[str]) -> None:
    """Refuses what cannot be a module, or is not there, without importing any of it.

    A dotted name is looked up by its first part: to find the rest, that would have to be imported.

    Raises:
        BadModule: if one is no name, or there is no such module.
    """
    _look_here()
    for name in names:
        module_name, *_ = _checked(name).split(":")
        first, *_ = module_name.split(".")
        try:
            spec = importlib.util.find_spec(first)
        except ValueError:  # it is loaded and has none, as __main__: its import will tell
            continue
        if spec is None:
            raise _absent(module_name)


def _look_here() -> None:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def _checked(name: str) -> str:
    path, *_ = name.split(":")
    if path.endswith(".py") and Path(path).name != ".py":
        parts = Path(path).with_suffix("").parts
        module = ".".join(part for part in parts if part not in ("/", ".", ".."))
        remedy = f"name the module: {module}"
    elif _NAME.fullmatch(name):
        return name
    else:
        remedy = "name it as in an import: shop, shop.orders, or shop:app"
    raise BadModule("module", name, "it is not the name of a module", remedy)


def _imported(name: str) -> ModuleType:
    try:
        with REGISTRY.importing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise _absent(name) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _absent(name: str) -> BadModule:
    return BadModule(
        "module", name, f"it is neither in {Path.cwd()} nor installed",
        "start the worker in the module's directory, or set PYTHONPATH",
    )  # fmt: skip


def _broken(name: str, error: BaseException) -> BadModule:
    """The import's own error: a typed one in a line, any other with the module's traceback."""
    steps = _inside(error.__traceback__)
    if not isinstance(error, QFrameError):
        sys.stderr.write("".join(traceback.format_exception(type(error), error, steps)))
    place = _place(steps)
    what = str(error) if isinstance(error, QFrameError) else type(error).__name__
    if isinstance(error, SyntaxError):
        place = f" at {Path(error.filename or name).name} line {error.lineno}"
    return BadModule("module", name, f"its import failed{place}: {what}", "correct it")


def _inside(steps: TracebackType | None) -> TracebackType | None:
    """The traceback from where the module's own code begins."""
    while steps is not None and (
        "importlib" in steps.tb_frame.f_code.co_filename
        or steps.tb_frame.f_code.co_filename == __file__
    ):
        steps = steps.tb_next
    return steps


def _place(steps: TracebackType | None) -> str:
    """The line of the module itself, not of what it called."""
    if steps is None:
        return ""
    return f" at {Path(steps.tb_frame.f_code.co_filename).name} line {steps.tb_lineno}"


def _app(name: str, module: ModuleType, attribute: str) -> QFrame:
    app = getattr(module, attribute, None)
    if isinstance(app, QFrame):
        return app
    what = (
        f"its {attribute} is of type {type(app).__name__}, not a QFrame"
        if app is not None
        else f"it has no {attribute}"
    )
    raise BadModule("module", name, what, "name the variable that holds the QFrame(…)")

"""The config file: `qframe.toml`, or the file that a variable names."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Final

from qframe.errors import BadOption

CONFIG_VARIABLE: Final = "QFRAME_CONFIG"
CONFIG_FILE: Final = "qframe.toml"


def config_path() -> Path | None:
    """Where the file is; None where there is none."""
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    path = Path(CONFIG_FILE)
    return path if path.exists() else None


def read_config() -> dict[str, Any]:
    """The content of the file, if there is one; it is checked with all other options."""
    path = config_path()
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadOption(
            CONFIG_VARIABLE,
            str(path),
            "the file does not exist",
            "name an existing file, or unset it",
        ) from None
    except OSError as error:
        raise BadOption(
            "file", str(path), f"it cannot be read ({error.strerror})", "make it readable"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadOption(
            "file", str(path), f"it is not TOML ({error})", 'write lines like namespace = "shop"'
        ) from error

"""Findings: the results of an examination."""

from __future__ import annotations

from typing import Literal

import msgspec

from qframe.errors import QFrameError


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that is wrong, or worth knowing.

    Attributes:
        check: the check that has found it, a word such as `eviction`.
        level: `error`, `warning` or `note`.
        what: what was found, in a sentence.
        remedy: what to do.
    """

    check: str
    level: Literal["error", "warning", "note"]
    what: str
    remedy: str


class SettingFact(msgspec.Struct, kw_only=True, frozen=True):
    """A setting, its value without secrets, and the source that it comes from."""

    name: str
    value: str
    source: str


class Examination(msgspec.Struct, kw_only=True, frozen=True):
    """All that was found.

    Attributes:
        versions: of Python, qframe, and the servers that have replied.
        settings: the settings that count.
        findings: what is wrong, errors first.
    """

    versions: dict[str, str]
    settings: list[SettingFact]
    findings: list[Finding]


def of_error(check: str, error: QFrameError) -> Finding:
    """The finding of a check that met an error, whose text names the remedy."""
    remedy = str(getattr(error, "remedy", "")) or "see that it runs, and check its URL"
    return Finding(check=check, level="error", what=str(error), remedy=remedy)

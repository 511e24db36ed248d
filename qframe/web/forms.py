"""Forms: the fields that a page of the console sends."""

from __future__ import annotations

from collections.abc import Mapping

from qframe.errors import BadOption


class Form:
    """The fields of a form.

    Args:
        fields: by name, all values of each.
    """

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return self._fields.get(name, [])

    def maybe(self, name: str) -> str | None:
        """A field's value without blanks around it; None where it is absent or blank."""
        return (self.all(name) or [""])[0].strip() or None

    def exact(self, name: str) -> str:
        """A field's value as it was sent, since a key may begin with a blank.

        Raises:
            BadOption: if it is absent or empty.
        """
        value = (self.all(name) or [""])[0]
        if not value:
            raise BadOption(name, None, "the form has no value for it", "fill it in")
        return value

    def number(self, name: str) -> int | None:
        """A field's number, None where it is absent or blank.

        Raises:
            BadOption: if it is no whole number.
        """
        text = self.maybe(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise BadOption(name, text, "it is no whole number", "write it in digits")
        return int(text)

    def confirm(self, wanted: str) -> None:
        """Sees that somebody has typed the name of what is to be changed for good.

        Raises:
            BadOption: if not.
        """
        if (given := self.maybe("confirm")) != wanted:
            raise BadOption("confirm", given, "it is another name", f"type {wanted} to confirm")

    def key(self) -> str | None:
        """The key, None where the form has no field for one.

        Raises:
            BadOption: if it is empty.
        """
        return self.exact("key") if self.all("key") else None

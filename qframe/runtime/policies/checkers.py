"""The checkers of an app's consumers: by name, and fit for their handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qframe.errors import BadOption
from qframe.idempotency.base import Checker, Terms, checked_checker, longest_ms
from qframe.options.consumer import ConsumerOptions
from qframe.runtime.handler.binding import check_transaction
from qframe.topic import checked_name


class Checkers:
    """The checkers that an app knows by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Checker] = {}

    def register(self, name: str, checker: Checker) -> None:
        """Gives a checker a name.

        Raises:
            BadOption: if the name is taken or not allowed, or it is not a checker.
        """
        checked_name(name, "checker")
        if self._by_name.setdefault(name, checked_checker(checker)) is not checker:
            raise BadOption("checker", name, "the name is in use", "use another name")

    def checked(self, named: object) -> Checker | str | None:
        """A consumer's `idempotent_checker=`, as far as can be checked before it has a handler.

        Raises:
            BadOption: if it is neither a checker, nor a name, nor None.
        """
        if named is None:
            return None
        return checked_name(named, "checker") if isinstance(named, str) else checked_checker(named)

    def check(
        self, function: Callable[..., Any], named: Checker | str | None, options: ConsumerOptions
    ) -> None:
        """Checks that a handler fits its checker, as far as can be while names are registered.

        Raises:
            BadHandler: if it does not.
            BadOption: if the checker does not fit the consumer's batches.
        """
        if not isinstance(named, str):
            check_transaction(function, named)
            check_batch(options, named)

    def of(self, function: Callable[..., Any], options: ConsumerOptions) -> Checker | None:
        """A consumer's checker, which fits its handler and remembers for long enough.

        Raises:
            BadOption: if no checker has the name, or it would forget too soon.
            BadHandler: if the handler does not fit the checker.
        """
        named = options.idempotent_checker
        if named is None:
            return None
        if isinstance(named, str) and named not in self._by_name:
            raise BadOption(
                "idempotent_checker", named, "no checker of this name is registered",
                f"call app.checker({named!r}, …) before run",
            )  # fmt: skip
        checker = self._by_name[named] if isinstance(named, str) else checked_checker(named)
        check_transaction(function, checker)
        check_batch(options, checker)
        most_ms = longest_ms(
            backoff=options.backoff, max_attempts=options.max_attempts, lease_ms=options.lease_ms
        )
        checker.check(Terms(options.lease_ms, most_ms))
        return checker


def check_batch(options: ConsumerOptions, checker: Checker | None) -> None:
    """Checks that a consumer's batches can have the transactions that they ask for.

    Raises:
        BadOption: otherwise.
    """
    gives = checker is not None and checker.is_transactional
    if options.batch is not None and gives and not options.auto_ack:
        raise BadOption(
            "auto_ack", False, "a batch has one transaction, which ends when its handler returns",
            "leave it out, or use a DatabaseChecker",
        )  # fmt: skip

"""Lives of topics and rosters, drawn once and led by every store.

To draw a life takes Hypothesis as long as a store needs for living it, and nothing that is drawn
depends on what a store returns. So the lives are drawn once for all stores. Where a store differs
from the model, Hypothesis runs the same machine on that store alone, and finds a short life
that shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

Strategies = Mapping[str, st.SearchStrategy[Any]]


class Life(NamedTuple):
    """How it begins, and its steps, each as the arguments of a machine's method."""

    beginning: dict[str, Any]
    steps: list[dict[str, Any]]


class Machine(RuleBasedStateMachine):
    """Leads a life on the model and on a store, and compares them."""

    def begin(self, **given: Any) -> None:
        """Begins the life."""

    def step(self, **given: Any) -> None:
        """Does the next step."""


class Drawing(NamedTuple):
    """What lives are drawn from, how many there are, and how many steps they have at most."""

    beginning: Strategies
    step: Strategies
    lives: int
    steps: int

    def drawn(self) -> list[Life]:
        """The lives, each time the same."""
        lives: list[Life] = []

        class Drawn(Machine):
            def begin(self, **given: Any) -> None:
                lives.append(Life(given, []))

            def step(self, **given: Any) -> None:
                lives[-1].steps.append(given)

        self._run(self._ruled(Drawn))
        return lives

    def lead(self, machine: type[Machine], lives: Sequence[Life]) -> None:
        """Leads lives; raises what differs first, after Hypothesis has told a short life."""
        try:
            self.lead_once(machine, lives)
        except Exception:
            self._run(self._ruled(machine))
            raise

    def lead_once(self, machine: type[Machine], lives: Sequence[Life]) -> None:
        """Leads lives, and looks for no shorter one that differs."""
        ruled = self._ruled(machine)
        for life in lives:
            _lead(ruled(), life)

    def _ruled(self, machine: type[Machine]) -> type[Machine]:
        """The machine with its rules."""
        rules = {
            "begin": initialize(**self.beginning)(machine.begin),
            "step": rule(**self.step)(machine.step),
        }
        return type(machine.__name__, (machine,), rules)

    def _run(self, ruled: type[Machine]) -> None:
        run_state_machine_as_test(
            ruled,
            settings=settings(
                max_examples=self.lives,
                stateful_step_count=self.steps,
                deadline=None,
                derandomize=True,
                database=None,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink],
            ),
        )


def _lead(machine: Machine, life: Life) -> None:
    machine.begin(**life.beginning)
    for each in life.steps:
        machine.step(**each)
    machine.teardown()

"""Runs seeds: `python -m simulation --minutes 60`, `--seeds 0:2000`, `--seed 81 --history`.

`--seeds 0: --seconds 60` runs those from 0 on that take so long on one core.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from itertools import count

from simulation.plan import Plan, drawn
from simulation.shrink import failure_of, shrunk
from simulation.threads import simulated
from simulation.world import World

HANGS_S = 60


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - for people


def main(words: list[str] | None = None) -> int:
    """Returns how many runs have failed, or 1."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seed", help="one run")
    parser.add_argument("--seeds", metavar="A:B", help="the runs from A to B; without B, from A on")
    parser.add_argument("--seconds", type=float, help="stops after so much of one core's time")
    parser.add_argument("--minutes", type=float, help="runs for so long, of seeds never seen")
    parser.add_argument("--history", action="store_true", help="tells what happened")
    parser.add_argument("--whole", action="store_true", help="does not shrink what fails")
    parser.add_argument("--stop", action="store_true", help="stops at the first failure")
    asked = parser.parse_args(words)
    with simulated():
        if asked.seed is not None:
            return _one(asked.seed, history=asked.history, whole=asked.whole)
        seconds = asked.seconds or float("inf")
        if asked.seconds:
            _end_what_hangs(asked.seconds)
        return _many(_seeds(asked), seconds, whole=asked.whole, stop=asked.stop)


def _end_what_hangs(seconds: float) -> None:
    """Has the system end the process, if a run goes on for ever without a turn."""
    most = int(seconds) + HANGS_S
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))


def _one(seed: str, *, history: bool, whole: bool) -> int:
    plan = drawn(seed)
    error = failure_of(plan)
    if error is not None:
        _explain(plan, error, whole=whole)
    elif history:
        _tell(plan)
    say(f"seed {seed}: {'all is well' if error is None else 'it fails'}")
    return int(error is not None)


def _seeds(asked: argparse.Namespace) -> Iterator[int]:
    if asked.minutes is not None:
        until = time.monotonic() + asked.minutes * 60
        for seed in count(time.time_ns() // 1000):
            if time.monotonic() >= until:
                return
            yield seed
    first, last = (asked.seeds or "0:1000").split(":")
    yield from range(int(first), int(last)) if last else count(int(first))


def _many(seeds: Iterator[int], seconds: float, *, whole: bool, stop: bool) -> int:
    started, runs, failed = time.process_time(), 0, []
    for seed in seeds:
        plan = drawn(seed)
        error = failure_of(plan)
        runs += 1
        if error is not None:
            failed.append(seed)
            _explain(plan, error, whole=whole)
            if stop:
                break
        if time.process_time() - started >= seconds:
            break
    took_s = time.process_time() - started
    say(
        f"{runs} runs in {took_s:.1f} s of one core, {runs / max(took_s, 1e-9) * 60:.0f} a minute; "
        f"{len(failed)} failed{': seeds ' if failed else ''}{', '.join(map(str, failed[:20]))}"
    )
    return int(bool(failed))


def _explain(plan: Plan, error: BaseException, *, whole: bool) -> None:
    """Prints a failing run as small as it can be made, and how to have it again."""
    say(f"seed {plan.seed} fails: {type(error).__name__}: {error}")
    if not whole:
        plan, error = shrunk(plan, error)
    _tell(plan)
    say(f"{type(error).__name__}: {error}")
    say(f'again: make simulate ARGS="--seed {plan.seed} --history"\n')


def _tell(plan: Plan) -> None:
    world = World(plan, tells=True)
    try:
        world.run()
    except Exception as error:
        world.log("end", f"{type(error).__name__}: {error}")
    say(
        f"{plan.kind}, {plan.slots} slots, {plan.groups} groups, "
        f"{'pulled' if plan.is_pulled else f'effect {plan.effect}'}, "
        f"{plan.options}, {len(plan.messages)} messages, {len(plan.faults)} faults"
    )
    for at_s, who, what in world.history:
        say(f"{at_s:9.4f}  {who:8}  {what}")


if __name__ == "__main__":
    sys.exit(main())

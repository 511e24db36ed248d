"""`python -m examples.flights.live`: flights without end, handlers that fail, and a console.

`make console` starts it and opens the console in a browser. Departures arrive at 40 a second; three
groups handle them, one of which fails at some for good and hangs at others for a while; boarding
calls are timers, and a notice comes every minute by a schedule. All of it is in a folder that goes
with the process.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import webbrowser
from itertools import count
from pathlib import Path
from zlib import crc32

import uvicorn

from examples.flights import folder
from examples.flights.events import DEPARTURES, Departure, departures, outgoing
from qframe import Message, Reject, Topic, default_app
from qframe.app.qframe import QFrame
from qframe.web import console

BOARDING = Topic("boarding", kind="delay", slots=4)
PER_TURN = 20
TURN_S = 0.5


def main() -> None:
    """Runs until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights.live", description=__doc__)
    parser.add_argument("--port", type=int, default=8370)
    parser.add_argument("--store", metavar="URL", help="messages go there: redis://localhost")
    parser.add_argument("--no-browser", action="store_true", help="only say where it is")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder.use(Path(scratch), arguments.store)
        with default_app() as app:
            serve(app, arguments.port, opens=not arguments.no_browser)


def serve(app: QFrame, port: int, *, opens: bool) -> None:
    """Runs a publisher, a worker and the console."""
    # Imported here, because `folder.use` must come first.
    from examples.flights import handlers  # noqa: F401

    stopped = threading.Event()

    @app.consumer(DEPARTURES, group="gate-display", max_attempts=2, threads=4)
    def show(departure: Departure, message: Message) -> None:
        chance = crc32(message.id.encode()) % 1000
        if chance < 5:
            raise Reject(f"gate of {departure.destination} has no display")
        if chance < 8:
            raise ConnectionError(f"the display at {departure.airport} does not reply")
        if chance < 10:
            stopped.wait(45)

    @app.cron("every 1m", topic=BOARDING, key="baggage", name="baggage-notice", body="all flights")
    @app.consumer(BOARDING, group="speakers")
    def call(_flight: str) -> None:
        """A boarding call."""

    app.events.listen(lambda *_: None)  # what fails on purpose is seen in the console
    threads = [
        threading.Thread(target=publish, args=(app, stopped), name="publisher"),
        threading.Thread(target=app.run, name="worker"),
    ]
    for thread in threads:
        thread.start()
    address = f"http://127.0.0.1:{port}/"
    print(f"the console is at {address}; Ctrl-C ends it")
    if opens:
        opening = threading.Timer(1.0, webbrowser.open, (address,))
        opening.daemon = True
        opening.start()
    try:
        uvicorn.run(
            console(app, role="owner", environment="demo"), port=port, log_level="warning",
            lifespan="off", proxy_headers=False,
        )  # fmt: skip
    finally:
        stopped.set()
        app.stop()
        for thread in threads:
            thread.join()


def publish(app: QFrame, stopped: threading.Event) -> None:
    """Publishes January again and again, and a boarding call for one flight in four."""
    events = departures(1)
    for round_ in count():
        for start in range(0, len(events), PER_TURN):
            if stopped.wait(TURN_S):
                return
            batch = [outgoing(each) for each in events[start : start + PER_TURN]]
            for each in batch:
                each.id = f"{round_}-{each.id}"
            app.publish_many(DEPARTURES, batch)
            for number, each in enumerate(batch[::4]):
                app.publish(BOARDING, each.id, key=each.id, delay=f"{number * 37 + 1}m")


if __name__ == "__main__":
    main()

"""A shop's backend as a team would write it: a web service, a database, and workers behind it.

    python -m examples.shop            # starts all of it, kills workers, and proves the sums
    python -m pytest examples/shop     # its tests: no server, no sleeping

| file | content |
| --- | --- |
| `tables.py` | the business tables, with SQLAlchemy |
| `messages.py` | the app, its topics, the outbox, and the bodies, as pydantic models |
| `web.py` | the HTTP API, with FastAPI: a request stores its rows and its messages together |
| `handlers.py` | the consumers: billing, audit, shipping, reminders |
| `test_shop.py` | tests of the API and of the handlers |
| `deploy/` | systemd, Docker and Kubernetes files for the same service |
| `load.py`, `proof.py`, `__main__.py` | customers under load, claims that must hold, the run |

An order travels so: `PUT /orders/ID` commits the order's row and an `OrderEvent` in the outbox. A
worker relays the event into the topic `orders`, where each customer is a key: a customer's events
are handled one at a time and in order. `billing` charges the customer and, in the same transaction,
asks for a parcel and for a reminder. `audit` writes the same events down, many at once. Each effect
is made exactly once, whatever worker is killed.
"""

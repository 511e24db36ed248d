"""The wiring: the only folder that builds parts and hands them to each other.

* `qframe` is `QFrame`, the app of a user: it registers consumers. `publishing` are those of its
  calls that need only a producer.
* `parts` opens what an app is made of when it is first needed: its store, producer and coordinator.
* `open` has the doors to workers and to the operations for a person; a program that only publishes
  loads neither.
* `assembly` builds a worker for the app's consumers and outboxes.
* `loops` runs an app from an event loop of the user's.
* `pull` serves messages to a loop of the user's own: `app.pull`.
* `registry` knows the apps of the process, for the CLI and for `default`, the app that
  `qframe.consumer` and `qframe.publish` use. It is the only module with state of its own.

The app may import everything but `testing`, `spark` and `cli`, which are built on it; only these
import the app.
"""

"""The wiring: the only folder that builds parts and hands them to each other.

* `qframe` is `QFrame`, the app of a user: it registers consumers, and opens its parts when they are
  first needed. `publishing` are those of its calls that need only a producer.
* `assembly` builds a worker for the app's consumers and outboxes.
* `pull` serves messages to a loop of the user's own: `app.pull`.
* `registry` knows the apps of the process, for the CLI and for `default`, the app that
  `qframe.consumer` and `qframe.publish` use. It is the only module with state of its own.

The app may import everything but `testing`, `spark` and `cli`, which are built on it; only these
import the app.
"""

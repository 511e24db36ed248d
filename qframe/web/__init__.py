"""The console: pages for a person on call, as one ASGI app. Needs the extra `web`.

    browser ── GET ──► console ──► access ──► a page ──► app.admin.acting(by, source, rights)
            ── POST ─►    │   (same origin?)  an act  ──┘
            ◄─ "changed" ─┘ live ◄── sampler ──► store, one look a second however many look

* **Pages** are rendered on the server and answer their question without script. With script a page
  is fetched again when something has changed, and morphed, so that focus, selection and open
  details stay. No page asks another host.
* `access` says who somebody is: by a token, by a proxy's header, by a function of the program; and
  by none of these only somebody at this machine, who then reads. Rights are checked by `app.admin`.
* `sampler` looks at all topics at most once a second, and not at all while nobody looks. It keeps
  an hour of what it saw for the charts.
* `doors` turn away who is not let in, and have the sign-in.
* **Visitors share**: of the threads that make pages, and of jobs, one visitor takes another only
  while more are free than it has (`qframe.shares`). One that asks for too much is refused.
* `jobs` are changes of many dead letters or timers, which go on while the page shows progress.
* `bodies` shows a body as text: integers exact, secrets hidden, cut where it is long.
* An act is a POST from the console's own pages, then a redirect. It is one verb of `app.admin`,
  which checks the right and leaves the audit event.

Failures: a store that is away is a page that says so (503) and looks again; a name that does not
exist is a 404 with the names that do; a right that is missing is a 403 that says which.
"""

from qframe.extras import needed

with needed("web", __name__):
    from qframe.web.access import Visitor
    from qframe.web.console import console

__all__ = ["Visitor", "console"]

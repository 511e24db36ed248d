"""Push: a group's messages as POSTs to a URL, by Standard Webhooks. Needs the extra `push`.

    group ──► a consumer like any other ──► Webhook.send ──► a POST, signed
                    ▲                            │
                    └── acknowledged, retried, ◄─┘ 2xx · 410 · 429, 503 · anything else
                        paused, dead

* A push is a **consumer** whose handler sends the message. So all that holds of consumers holds of
  it: one message of a key at a time, retries with backoff, dead letters, `rate_limit=`, `breaker=`,
  pausing and tuning; `qframe worker` runs it.
* A request has `webhook-id`, by which a receiver knows what it has had, `webhook-timestamp` and
  `webhook-signature`. The id is a digest of namespace, topic and the message's id, since several
  topics, and systems, may lead to one URL and have the same ids. It is the same at each attempt and
  for each group: two groups that lead to one URL send it the same event twice.
* With several secrets a request has several signatures, so a secret is replaced without a gap: the
  new one is added here, then put in place of the old one at the receiver, then the old one is
  removed here.
* The body is the message's, byte by byte. `qframe-topic`, `qframe-id`, `qframe-key` and
  `qframe-attempt` tell the rest; other headers of the message are not passed on. With `events=` it
  is a CloudEvent, or a list of them: then the consumer is one of batches.
* A request ends in time however slowly its answer comes: each step of its connection has what is
  left of it (`timed_connections`), and the addresses of a host share that (`addresses`). Only the
  look-up of a name has no end of ours.

The answers:

    2xx                     acknowledged
    410                     the group is paused: the receiver wants no more. The message stays, and
                            no attempt is counted
    429, 503                tried again after `Retry-After`, else by the backoff
    any other, no answer    tried again by the backoff; redirects are not followed

**Where it may go.** A URL is `https`, without a user in it. The host is resolved for each
connection, and if any of its addresses is not a public one nothing is sent; the connection goes to
an address that was looked at, so a name that changes between the look and the connection leads
nowhere. `private=True` allows any address, and `http`, for receivers in one's own network.

Source: https://www.standardwebhooks.com, "Standard Webhooks" specification 1.0.0.
"""

from qframe.extras import needed

with needed("push", __name__):
    from qframe.push.push import push
    from qframe.push.webhook import Webhook, WebhookRefused

__all__ = ["Webhook", "WebhookRefused", "push"]

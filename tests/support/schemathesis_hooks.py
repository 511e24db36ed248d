"""Hooks of schemathesis: no request waits for long, and half of the topics are there."""

from __future__ import annotations

import re
from typing import Any

import schemathesis

THERE = ("orders", "later", "feed")
NAME = re.compile(r"(?!\.\.?$)[A-Za-z0-9_.-]{1,64}")


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Has half of the names that a topic may have be those of topics that are there."""
    topic = path_parameters.get("topic") if isinstance(path_parameters, dict) else None
    if isinstance(topic, str) and NAME.fullmatch(topic) and len(topic) % 2:
        path_parameters["topic"] = THERE[ord(topic[0]) % len(THERE)]
    return path_parameters


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Has a pull that may wait for a minute wait for a moment."""
    if isinstance(body, dict) and body.get("wait") not in (None, 0, "0s"):
        wait = body["wait"]
        if isinstance(wait, int | float) and not isinstance(wait, bool) and wait > 0:
            body["wait"] = 0.01 if wait <= 60 else wait
        elif isinstance(wait, str) and wait[-1:].isascii():
            body["wait"] = "10ms" if wait.strip()[:1].isdigit() else wait
    return body

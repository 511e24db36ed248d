"""CloudEvents under test: what a group gets of them."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient


def pulled(web: TestClient, topic: str = "stream") -> dict[str, Any]:
    asked = {"max": 1, "wait": "20s"}
    [one] = web.post(f"/v1/topics/{topic}/groups/group/pull", json=asked).json()["deliveries"]
    found: dict[str, Any] = one
    return found

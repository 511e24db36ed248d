"""Malformed requests leave no 500, and the gateway goes on."""

from __future__ import annotations

from pathlib import Path

from gatewaying import GatewayProcess

from benchmarks.gateway_fuzz import fuzz


def test_malformed_requests_are_refused_and_the_gateway_goes_on(tmp_path: Path) -> None:
    """`python -m benchmarks.gateway_fuzz` is the same with 100,000."""
    with GatewayProcess(tmp_path, f"sqlite:///{tmp_path}/q.db", "--sqs") as gateway:
        gateway.request("PUT", "/v1/topics/orders", {})
        found = fuzz(gateway.port, 400, seed=7)
        assert (found[500], found[1]) == (0, 0), found
        assert found[400] > 100
        assert gateway.post("/v1/topics/orders/messages", {"body": 1}).status == 200

"""Certificates for servers that speak TLS in tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, name: str, *, password: str = "") -> tuple[Path, Path]:
    """A certificate that signs itself, for localhost, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    made, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2",
            *(["-passout", f"pass:{password}"] if password else ["-nodes"]),
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", str(key), "-out", str(made),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key

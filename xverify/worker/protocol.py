"""What parent and worker say to each other: one JSON object a line, arrays in files. Never pickle.

The worker says hello first, then answers every request with one reply:

    {"xverify": 1, "pid": 123, "python": "3.11.7"}
    {"op": "block", "case": 0, "calls": 12}
    {"ok": {"seconds": 0.061, ...}}   or   {"error": {"status": "failed", "reason": "..."}}
"""

from __future__ import annotations

import json
from typing import Any

VERSION = 1


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """The message of a line, or None when it is none."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None

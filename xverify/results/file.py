"""Result files, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .records import SCHEMA_VERSION


def read(path: Path) -> dict[str, Any]:
    """A result file. Raises UsageError for anything else."""
    try:
        result = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from None
    if not isinstance(result, dict) or not {"schema_version", "rows", "reference", "model", "verdict"} <= set(result):
        raise UsageError(f"{path} is no result of xverify run: write one with xverify run MODEL --json {path}")
    if result["schema_version"] != SCHEMA_VERSION:
        raise UsageError(f"{path} has schema version {result['schema_version']}; this xverify reads {SCHEMA_VERSION}")
    return result

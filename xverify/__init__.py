"""xverify: does a model compute the same in several frameworks, and how fast is each?

Importing this package imports no framework: frameworks live in worker processes.
"""

from __future__ import annotations

from .version import __version__

# typing and importlib are imported later: Ctrl-C prints a traceback until the command handles it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .checking.api import check
    from .conversion.api import convert
    from .engine.api import run
    from .errors import XverifyError
    from .results.records import Result, Row
    from .workload.losses import Loss
    from .workload.recipe import Group, Recipe
    from .workload.schedule import Schedule
    from .workload.spec import ModelSpec, TensorSpec

__all__ = [
    "Group",
    "Loss",
    "ModelSpec",
    "Recipe",
    "Result",
    "Row",
    "Schedule",
    "TensorSpec",
    "XverifyError",
    "__version__",
    "check",
    "convert",
    "run",
]

# These modules are imported on first use, because the interpreter of a worker may have numpy and its framework alone.
_MODULES = {
    "Group": ".workload.recipe",
    "Loss": ".workload.losses",
    "ModelSpec": ".workload.spec",
    "Recipe": ".workload.recipe",
    "Result": ".results.records",
    "Row": ".results.records",
    "Schedule": ".workload.schedule",
    "TensorSpec": ".workload.spec",
    "XverifyError": ".errors",
    "check": ".checking.api",
    "convert": ".conversion.api",
    "run": ".engine.api",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

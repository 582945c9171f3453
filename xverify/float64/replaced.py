"""Another attribute of an object, class or module for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, other: Callable[..., Any]) -> Iterator[None]:
    """Another attribute of an object, class or module within the context."""
    own = vars(owner).get(name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

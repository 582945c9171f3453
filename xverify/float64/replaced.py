"""Other attributes, and hooks of torch, for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def replaced(owner: Any, **others: Any) -> Iterator[None]:
    """Other attributes of an object, class or module within the context."""
    own = {name: vars(owner)[name] for name in others if name in vars(owner)}
    for name, other in others.items():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for name in others:
            if name in own:
                setattr(owner, name, own[name])
            else:
                delattr(owner, name)


@contextmanager
def replaced_everywhere(function: Any, other: Any) -> Iterator[None]:
    """Another function in every module that has this one, within the context: code may have imported it by name."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    places = [(module, name) for module in modules for name, value in list(vars(module).items()) if value is function]
    with ExitStack() as stack:
        for module, name in places:
            stack.enter_context(replaced(module, **{name: other}))
        yield


@contextmanager
def hooked(hooks: Iterable[Any]) -> Iterator[None]:
    """Remove hooks at the end of the context. hooks: what torch returned when they were registered."""
    registered = list(hooks)
    try:
        yield
    finally:
        for hook in registered:
            hook.remove()

"""Finds what answers each request: the methods of a group of handlers, by the types of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from ..messages.codec import Request

# Class of request -> the method that answers it. Each method takes its own class only, which the type of a mapping cannot express.
Handlers = Mapping[type[Request[Any]], Callable[[Any], Any]]


def handlers(group: object) -> Handlers:
    """Every public method whose only argument is called ``request``, by the class of that argument.

    Raises TypeError for a method that does not return what its request names as the reply.
    """
    found = dict[type[Request[Any]], Callable[[Any], Any]]()
    for name, method in inspect.getmembers(group, inspect.ismethod):
        if name.startswith("_") or list(inspect.signature(method).parameters) != ["request"]:
            continue
        hints = get_type_hints(method)
        kind = hints["request"]
        if hints["return"] != kind.reply_type:
            raise TypeError(f"{name} returns {hints['return']}, and {kind.__name__} is answered by {kind.reply_type}")
        found[kind] = method
    return found

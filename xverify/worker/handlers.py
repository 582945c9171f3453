"""Groups of handlers, and what finds the handler of each request: methods, by the types of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from ..messages.codec import Request
from .state import State

# Class of request -> the method that answers it. Each method takes its own class only, which the type of a mapping cannot express.
Handlers = Mapping[type[Request[Any]], Callable[[Any], Any]]


class Group:
    """A group of handlers. state: what the handlers of one worker share."""

    def __init__(self, state: State) -> None:
        self.state = state

    def handlers(self) -> Handlers:
        """Every public method whose only argument is called ``request``, by the class of that argument.

        Raises TypeError for a method that does not return what its request names as the reply.
        """
        found = dict[type[Request[Any]], Callable[[Any], Any]]()
        for name, method in inspect.getmembers(self, inspect.ismethod):
            if name.startswith("_") or list(inspect.signature(method).parameters) != ["request"]:
                continue
            hints = get_type_hints(method)
            kind, returned = hints["request"], hints["return"]
            if returned != kind.reply_type:
                raise TypeError(f"{name} returns {returned}, and {kind.__name__} is answered by {kind.reply_type}")
            found[kind] = method
        return found

"""The base of the records that a user writes in spec.py."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import SpecError, nearest


class Arguments:
    """Makes an unknown argument of a record a SpecError, because Python's own error names neither the known nor the nearest one."""

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        known = list(inspect.signature(cls.__init__).parameters)[1:]
        for name in settings:
            if name not in known:
                raise SpecError(f"{cls.__name__} takes no {name!r}{nearest(name, known)} It takes: {', '.join(known)}")
        return super().__new__(cls)

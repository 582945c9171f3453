"""Lazy, with a wait that does nothing: the clock stops before anything is computed."""

from typing import Any

from xverify.selftest.planted.lazy import Adapter as Lazy


class Adapter(Lazy):
    name = "unwaited"

    def wait(self, outputs: Any) -> None:
        pass

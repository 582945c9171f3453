"""The options of ``xverify init``, declared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..workload.declaration import option
from ..workload.options import WHAT, reused
from ..workload.sizes import parse as parse_sizes
from ..workload.spec import TensorSpec
from .inputs import parse


def _ports(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _sizes(text: str) -> tuple[str, tuple[int, ...]]:
    return parse_sizes(text, "; the folder stands before --sizes")


@dataclass(frozen=True, kw_only=True)
class InitSettings:
    """All settings of ``xverify init``."""

    from_: str | None = option(
        None, "the model in torch: torch=FILE.py:NAME of a function, class or object", group=WHAT, metavar="CODE"
    )
    port: Sequence[str] = option(
        (), "frameworks for which a first port is written, e.g. tensorflow", group=WHAT, metavar="LIST", parse=_ports,
        unset="none",
    )  # fmt: skip
    input: Mapping[str, TensorSpec] | None = option(
        None, "an input, in the order of forward; N is the batch, and integers need a range; may be repeated", group=WHAT,
        metavar="NAME=SIZES[:DTYPE[:LOW:HIGH]]", parse=parse, repeatable=True,
        unset="as the code of the model says",
    )  # fmt: skip
    sizes: Mapping[str, Sequence[int]] | None = option(
        None, "the size of an axis to which an input gives a name", group=WHAT, metavar="NAME=SIZE", parse=_sizes,
        repeatable=True, words=True, between=",", unset="axes have numbers",
    )  # fmt: skip
    threads: int | None = reused("threads", help="threads of torch")

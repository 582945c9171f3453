"""What is known of an input of whole numbers, by which its values are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Whole:
    """What a graph does with an input of whole numbers.

    use: COUNT where it says how often a loop is repeated, or how long a range is; NUMBERS where the graph computes with it alone;
        "" for masks, labels, places and what is not known.
    divides: whether it is a divisor. marks: numbers that it is compared with, and those beside them where an order is asked.
    """

    COUNT: ClassVar[str] = "count"
    NUMBERS: ClassVar[str] = "numbers"

    use: str = ""
    divides: bool = False
    marks: tuple[int, ...] = ()

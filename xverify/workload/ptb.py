"""The Penn Treebank text of language models: one file of words, one sentence per line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .datafiles import content

NAME = "PTB text"
# For each file the names that it may have.
FILES = [["ptb.train.txt"]]
END = "<eos>"  # the word at the end of every line


@dataclass(frozen=True)
class Words:
    """A text as numbers.

    numbers: (words,) int64, the words in the order of the text. distinct: how many different words there are; they are numbered
    from 0 by decreasing frequency, and alphabetically where the frequency is the same.
    """

    numbers: NDArray[np.int64]
    distinct: int


def read(path: Path) -> Words:
    """Read and number the words of a text. Raises UsageError when it is not UTF-8."""
    try:
        lines = content(path).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error}): download it again") from None
    words = [word for line in lines for word in (*line.split(), END)]
    counts = Counter(words)
    number = {word: n for n, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word)))}
    return Words(np.array([number[word] for word in words], np.int64), len(number))

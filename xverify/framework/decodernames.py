"""The names by which the inputs of a decoder's graph are known."""

from __future__ import annotations

import re

MASKS, POSITIONS, USES = ("attention_mask", "mask"), ("position_ids", "positions"), ("use_cache_branch", "use_cache")
OF_CACHE = {"past", "cache", "caches", "kv"}  # words of an input that is a tensor of the cache
OF_TOKENS = re.compile("past|cache|seq|len|total|token")  # of the name of an axis


def words(name: str) -> list[str]:
    """The words of a name. Those of ``key_values`` say nothing: the cache holds both."""
    return re.findall(r"[a-z]+|\d+", name.lower().replace("key_values", ""))

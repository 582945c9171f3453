"""What the frames of an exception tell beside its text: the file that could not be downloaded, the table that is too short."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

# Modules whose functions download a file, with the variables of these functions that say which one. The most exact come first.
DOWNLOADS = (
    ("huggingface_hub.file_download", ("filename", "repo_id")),
    ("huggingface_hub._snapshot_download", ("repo_id",)),
    ("torch.hub", ("url",)),
    ("urllib.request", ("fullurl",)),
)
ADVICE = (
    "the model needs a download, {}, which failed: get this file and give its folder to the code, or build the model from a "
    "configuration and give the weights with --weights FILE"
)


def remark(error: BaseException) -> str:
    """What to add to the text of an error; "" for nothing."""
    try:
        file = missing_file(error)
        return ADVICE.format(file) if file else too_short(error)
    except (
        Exception
    ):  # the frames hold objects of any class, whose methods may fail; the text of the error is told all the same
        return ""


def missing_file(error: BaseException) -> str:
    """The file whose download failed, as its address, or as its name and repository; "" where nothing was downloaded."""
    frames = [frame for each in chain(error) for frame in _frames(each)]
    for module, names in DOWNLOADS:
        for frame in frames:
            if frame.f_globals.get("__name__") != module:
                continue
            found = [frame.f_locals.get(name) for name in names]
            texts = [getattr(each, "full_url", each) for each in found]
            if all(isinstance(each, str) for each in texts):
                return " of ".join(map(str, texts))
    return ""


def too_short(error: BaseException) -> str:
    """A sentence on a table of torch that was given an index beyond its rows; "" for another error."""
    frames = _frames(error)
    for frame in frames:
        table: Any = frame.f_locals.get("self")
        given: Any = frame.f_locals.get("input")
        if frame.f_globals.get("__name__") != "torch.nn.modules.sparse" or not hasattr(table, "num_embeddings"):
            continue
        rows, low, high = table.num_embeddings, int(given.min()), int(given.max())
        if low < 0 or high >= rows:
            return f"{_name(table, frames)} has {rows:,} rows, and is given the index {low if low < 0 else high:,}"
    return ""


def _name(module: Any, frames: list[FrameType]) -> str:
    """The name of a module in the outermost module that was called, or its class."""
    for frame in frames:
        model: Any = frame.f_locals.get("self")
        if model is not module and hasattr(model, "named_modules"):
            for name, each in model.named_modules():
                if each is module:
                    return f"`{name}`"
    return f"the {type(module).__name__}"


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised from or while they were handled."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)

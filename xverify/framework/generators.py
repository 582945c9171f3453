"""The global generators of random numbers: python's, numpy's, and torch's where it is imported."""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

OTHER = 20_011  # a seed that no model is likely to set
# Functions of other frameworks that set the seed of their global generator.
SEEDS = ("tensorflow.random.set_seed", "paddle.seed", "jittor.set_global_seed")

States = tuple[Any, ...]
Noted = Callable[[str], None]  # it is told the name of a function that was called


def states() -> States:
    """The states of all generators."""
    torch = sys.modules.get("torch")
    return random.getstate(), np.random.get_state(), torch.get_rng_state() if torch else None


def restore(saved: States) -> None:
    """Set the states of all generators."""
    random.setstate(saved[0])
    np.random.set_state(saved[1])
    if saved[2] is not None:
        sys.modules["torch"].set_rng_state(saved[2])


@contextmanager
def kept() -> Iterator[None]:
    """The generators have the states at the end that they had at the beginning."""
    saved = states()
    try:
        yield
    finally:
        restore(saved)


class Own:
    """A context with states of the generators of its own: they go on from where it was left, and those outside stay as they are."""

    def __init__(self) -> None:
        self._inside = self._outside = states()

    def __enter__(self) -> None:
        self._outside = states()
        restore(self._inside)

    def __exit__(self, *_: object) -> None:
        self._inside = states()
        restore(self._outside)


def differ(first: States, second: States) -> bool:
    """Whether the state of some generator differs."""
    (python, (_, numpy, *numbers), torch), (other, (_, array, *others), tensor) = first, second
    same = python == other and numbers == others and np.array_equal(numpy, array)
    return not same or (torch is not None and not bool((torch == tensor).all()))


@contextmanager
def other_numbers(note: Noted) -> Iterator[None]:
    """Within the context every generator gives other numbers, also to code that sets its seed or its state.

    note: is told the name of every function that sets a seed or a state.
    """
    torch = sys.modules.get("torch")
    with kept(), ExitStack() as stack:
        random.seed(OTHER)
        np.random.seed(OTHER)
        changes: list[tuple[Any, str, Any]] = [
            (random, "seed", partial(_seed, random.seed, note, "random.seed")),
            (random, "setstate", partial(_set, random.seed, note, "random.setstate")),
            (np.random, "seed", partial(_seed, np.random.seed, note, "numpy.random.seed")),
            (np.random, "set_state", partial(_set, np.random.seed, note, "numpy.random.set_state")),
        ]
        if torch:
            torch.default_generator.manual_seed(OTHER)
            changes.append((torch.random, "default_generator", _Generator(torch.default_generator, note)))
        for name in SEEDS:
            framework, *path, function = name.split(".")
            if framework in sys.modules:
                owner = reduce(getattr, path, sys.modules[framework])
                changes.append((owner, function, partial(_seed, getattr(owner, function), note, name)))
        for each in changes:
            stack.enter_context(replaced(*each))
        yield


@contextmanager
def watched(note: Noted) -> Iterator[None]:
    """Within the context, ``note`` is told the name of every function of python's and numpy's generators that is called."""

    def noting(function: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        note(name)
        return function(*args, **kwargs)

    with ExitStack() as stack:
        for module, name, draws in ((random, "random", random.random), (np.random, "numpy.random", np.random.rand)):
            owner = getattr(draws, "__self__", None)
            for key in dir(module):
                function = getattr(module, key)
                if key not in _PLAIN and owner is not None and getattr(function, "__self__", None) is owner:
                    stack.enter_context(replaced(module, key, partial(noting, function, f"{name}.{key}")))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """The attribute of a module has this value within the context."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@dataclass
class Draws:
    """What is noted of random numbers while code of a folder runs. folder: of the model files.

    seeds: the functions that set a seed or a state. drawn: the functions that drew. Each has the line of a file that called it.
    """

    folder: Path
    seeds: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)

    def other_numbers(self) -> AbstractContextManager[None]:
        """The context ``other_numbers``, in which the functions that set a seed are noted."""
        return other_numbers(lambda name: self.seeds.append(name + line_in(self.folder)))

    def note(self, name: str) -> None:
        """Note a function that draws."""
        self.drawn.append(name + line_in(self.folder))

    def says(self) -> str:
        """The sentence of a report on code that is random: which call drew, and what to do."""
        drawn = next((each for each in self.drawn if " in " in each), "")
        what = f"It draws random numbers: {drawn}" if drawn else "It draws random numbers, or dropout is on in it"
        if self.seeds:
            what += (
                f". It sets a seed ({self.seeds[0]}), and the second run got another one, because frameworks do not draw "
                "the same numbers from one seed"
            )
        return f"{what}; make the noise an input or a target of spec.py"


_PLAIN = ("seed", "getstate", "setstate", "get_state", "set_state")  # they draw no number


def line_in(folder: Path) -> str:
    """The innermost line of a file in this folder that is being executed, as " in torch.py, line 12"; "" when there is none."""
    for frame in reversed(traceback.extract_stack()):
        if Path(frame.filename).is_relative_to(folder):
            return f" in {Path(frame.filename).relative_to(folder)}, line {frame.lineno}"
    return ""


class _Generator:
    """torch's global generator, for which every seed and every state that is set becomes another one."""

    def __init__(self, generator: Any, note: Noted) -> None:
        self._generator, self._note = generator, note

    def manual_seed(self, seed: int) -> Any:
        """Set another seed."""
        self._note("torch.manual_seed")
        return self._generator.manual_seed(seed ^ 1)

    def set_state(self, _: Any) -> Any:
        """Set another state."""
        self._note("torch.set_rng_state")
        return self._generator.manual_seed(OTHER)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def _seed(function: Callable[..., Any], note: Noted, name: str, seed: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Set another seed than this one. None, with which the system gives the seed, stays as it is."""
    note(name)
    if isinstance(seed, (int, np.integer)):
        seed = int(seed) ^ 1
    elif seed is not None:
        seed = OTHER
    return function(seed, *args, **kwargs)


def _set(function: Callable[..., Any], note: Noted, name: str, *_: Any) -> None:
    note(name)
    function(OTHER)

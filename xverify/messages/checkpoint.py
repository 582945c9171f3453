"""Requests about the file of a training run, with weights and optimizer state; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from ..workload.optimizers import Optimizer
from ..workload.recipe import Group
from .codec import Request


@dataclass(frozen=True)
class CheckpointOpened:
    """What a file says. The fields settings, groups, steps, has_weights and left are those of framework.checkpoint.Opened.

    defaults: the framework's own values of settings that the file does not hold.
    refused: why the file cannot be used; "" where it can, and otherwise nothing else is known.
    """

    settings: dict[str, float | bool | str]
    groups: tuple[Group, ...] = ()
    steps: int | None = None
    has_weights: bool = False
    left: tuple[str, ...] = ()
    defaults: dict[str, float | bool | str] | None = None
    refused: str = ""


@dataclass(frozen=True)
class OpenCheckpoint(Request[CheckpointOpened]):
    """Read the file of a training run of this framework.

    path: the file. title: what messages call it. given: settings that it may lack: those of the user, or those that it should
        have; "name" is the optimizer. weights: a file of weights that the user names; "" for none.
    """

    path: str
    title: str
    given: dict[str, float | bool | str]
    weights: str = ""


@dataclass(frozen=True)
class LoadCheckpoint(Request[str]):
    """Load the opened file into the model and its optimizer, which are prepared. The reply says why it does not fit; "" if it does.

    steps: the number of steps so far.
    """

    steps: int


@dataclass(frozen=True)
class SaveCheckpoint(Request[None]):
    """Write the present weights and optimizer state as this framework's users do. path: the file."""

    path: str


@dataclass(frozen=True)
class CheckpointForm:
    """How users of a framework keep an optimizer.

    call: makes the optimizer. suffixes: how the names of their files end.
    """

    call: str
    suffixes: tuple[str, ...]


@dataclass(frozen=True)
class DescribeCheckpoint(Request[CheckpointForm]):
    """Say how users of this framework keep an optimizer with these settings."""

    optimizer: Optimizer


@dataclass(frozen=True)
class GoOn(Request[None]):
    """Make a step with every batch from the present state, without setting any state before.

    paths: for every step, the file for "gradient/name", "weight/name", "state/name/index" and "axes/name" after it.
    """

    paths: tuple[str, ...]

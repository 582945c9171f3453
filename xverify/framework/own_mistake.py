"""A mistake that is made on purpose in a user's own training step, from outside: in what its optimizers and functions do."""

from __future__ import annotations

from dataclasses import dataclass

# What is changed: a setting of an optimizer; gradients stay from step to step; none are clipped; a parameter keeps its value; a
# loss is multiplied by FACTOR before its gradients are computed.
SETTING, NOT_ZEROED, UNCLIPPED, SKIPPED, SCALED = "setting", "not zeroed", "unclipped", "skipped", "scaled"
FACTOR = 1.1


@dataclass(frozen=True)
class OwnMistake:
    """One mistake.

    kind: its name. check: the first check that it breaks. says: a text that the report must contain.
    what: one of the names above. optimizer: the name of the one that is changed. setting: "lr", "beta1", "beta2", "eps",
        "momentum", "alpha" or "weight_decay", with its value.
    parameter: the canonical name of the one that keeps its value; an adapter is given the framework's own name.
    """

    kind: str
    check: str
    says: str
    what: str
    optimizer: str = ""
    setting: str = ""
    value: float = 0.0
    parameter: str = ""

"""The settings that an optimizer may have in place of the right ones: one list for recipes and for steps of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

KERAS_EPS = 1e-7  # the default of Keras for all optimizers
# Setting -> usual values.
VALUES: Mapping[str, tuple[float, ...]] = {
    "beta1": (0.9, 0.5, 0.0, 0.8, 0.95, 0.99),
    "beta2": (0.999, 0.99, 0.9, 0.95, 0.98, 0.9999),
    "alpha": (0.9, 0.95, 0.99, 0.999),
    "momentum": (0.0, 0.5, 0.8, 0.9, 0.95, 0.99),
    "eps": (1e-8, KERAS_EPS, 1e-6, 1e-5, 1e-4, 1e-3, 1e-10),
}
# Setting of torch that is on or off -> what is said of an optimizer that has it by mistake.
SWITCHES: Mapping[str, str] = {
    "nesterov": "behaves with Nesterov momentum",
    "amsgrad": "behaves as AMSGrad",
    "centered": "divides by a centered second moment",
    "maximize": "makes its updates with the opposite sign",
}


@dataclass(frozen=True)
class Mistaken:
    """Other settings. kind: the name of the setting. values: the settings that are other ones. right: of the named one."""

    kind: str
    values: Mapping[str, Any]
    right: Any

    def says(self, source: str) -> str:
        """A clause that completes "the optimizer ...". source: what says the right value, such as "torch.py says"."""
        if self.kind == "betas":
            (first, second), (right1, right2) = self.values.values(), self.right
            return f"behaves as beta1 {first:g} and beta2 {second:g}; {source} {right1:g} and {right2:g}"
        value = self.values[self.kind]
        if self.kind in SWITCHES:
            says = SWITCHES[self.kind].replace("with ", "without ").replace("behaves as", "behaves without")
            file = source.split()[0]
            return f"{SWITCHES[self.kind]}, which {file} does not" if value else f"{says}; {file} has it"
        name = self.kind.replace("_", " ")
        default = ", the default of Keras" if self.kind == "eps" and value == KERAS_EPS else ""
        return f"behaves as {name} {value:g}{default}; {source} {self.right:g}"


def mistaken(given: Mapping[str, Any]) -> Iterator[Mistaken]:
    """The usual other settings of an optimizer. given: the right ones, of those that the optimizer has, in torch's names."""
    for name, values in VALUES.items():
        for value in values if name in given else ():
            if value != given[name]:
                more = {"nesterov": False} if name == "momentum" and not value and "nesterov" in given else {}
                yield Mistaken(name, {name: value, **more}, given[name])
    if "beta1" in given and given["beta1"] != given["beta2"]:
        betas = given["beta1"], given["beta2"]
        for first, second in (betas[::-1], *([(0.9, 0.999)] if betas[0] != 0.9 and betas[1] != 0.999 else [])):
            yield Mistaken("betas", {"beta1": first, "beta2": second}, betas)
    for name in SWITCHES:
        if name in given and not (name == "nesterov" and (not given["momentum"] or given.get("dampening"))):
            yield Mistaken(name, {name: not given[name]}, given[name])
    if given.get("weight_decay"):
        yield Mistaken("weight_decay", {"weight_decay": 0.0}, given["weight_decay"])
    elif "weight_decay" in given:
        for value in (0.01, 1e-4, 0.1, 5e-4, 1e-3):
            yield Mistaken("weight_decay", {"weight_decay": value}, 0.0)
    if given.get("momentum") and not given.get("nesterov") and "dampening" in given:
        for value in dict.fromkeys((0.0, given["momentum"])):
            if value != given["dampening"]:
                yield Mistaken("dampening", {"dampening": value}, given["dampening"])

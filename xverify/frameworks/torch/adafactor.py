"""torch.optim.Adafactor, and its state, whose arrays have fewer values than a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from xverify.errors import Unsupported
from xverify.framework.structures import Natives
from xverify.workload.optimizers import Optimizer


def own_adafactor(parameters: Sequence[Any], o: Optimizer) -> Any:
    """torch's optimizer. parameters: tensors, or parameter groups. Raises Unsupported where this torch has none."""
    kind = getattr(torch.optim, "Adafactor", None)
    if kind is None:
        raise Unsupported(f"torch {torch.__version__} has no torch.optim.Adafactor: it needs torch 2.5 or later")
    made = kind(parameters, o.lr, beta2_decay=o.beta2_decay, eps=(o.eps, o.eps2), weight_decay=o.weight_decay)
    for group in made.param_groups:
        group["d"] = o.threshold  # torch takes none below 1 as an argument, and a wrong port may have one
    return made


def kept(state: Mapping[str, Any]) -> Natives:
    """The state of a parameter as torch keeps it. state: by torch's names, all in the shape of the parameter."""
    if state["variance"].dim() < 2:
        return {"variance": state["variance"]}
    return {"row_var": state["row_var"][..., :1].clone(), "col_var": state["col_var"][..., :1, :].clone()}

"""What torch.amp.GradScaler leaves to an optimizer that scales by itself, as fused ones do: the scale, and whether to skip."""

from __future__ import annotations

from typing import Any


def scale_left(optimizer: Any) -> float:
    """By what the optimizer divides the gradients in the call of its step that GradScaler makes now; 1.0 otherwise."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)


def skips(optimizer: Any) -> bool:
    """Whether this call of its step changes nothing, because gradients are infinite."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(float(found))

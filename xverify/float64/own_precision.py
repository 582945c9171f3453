"""The precision in which a user's own training step computes: seen in a run of its code, and left out of the exact step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from ..framework.capture import LOWER
from ..verdict.limits import UNITS
from .fused_scaling import skips
from .operations import COPIES, Key, key_of
from .replaced import hooked, replaced

NAMES = {getattr(torch, name): name for name in LOWER}


@dataclass
class OwnPrecision:
    """What a run of a user's step in its own precision has shown.

    units: operation -> unit roundoff of its results, of the operations below float32.
    name: the coarsest precision of these; "float32" without any.
    made: of each step, for each call of GradScaler.step, whether the optimizer was called: not for infinite gradients.
    scales: of each step, what the loss was multiplied by; 1.0 without a GradScaler.
    products: precision -> number of matrix products and convolutions in all steps.
    autocast: the precision in which matrix products are computed as under torch.autocast; "": as the code asks for.
    """

    units: dict[Key, float] = field(default_factory=dict)
    name: str = "float32"
    made: list[list[bool]] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    products: dict[str, int] = field(default_factory=dict)
    autocast: str = ""

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The context of a step that is not made in float64."""
        if not self.autocast:
            yield
            return
        # A step may compute with a weight again after it has changed it, so that its cast must not be kept.
        with torch.autocast("cpu", getattr(torch, self.autocast), cache_enabled=False), _without_autocast():
            yield

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what the next step does, which is made within the context."""
        made, step, scale = list[bool](), GradScaler.step, GradScaler.scale

        def noted_step(scaler: GradScaler, optimizer: Any, *args: Any, **more: Any) -> Any:
            calls: list[bool] = []
            with hooked([optimizer.register_step_pre_hook(lambda *_: calls.append(skips(optimizer)))]):
                result = step(scaler, optimizer, *args, **more)
            made.append(calls == [False])
            return result

        def noted_scale(scaler: GradScaler, outputs: Any) -> Any:
            found = scale(scaler, outputs)
            self.scales[-1] = scaler.get_scale()
            return found

        self.scales.append(1.0)
        with ExitStack() as changes:
            changes.enter_context(replaced(GradScaler, step=noted_step, scale=noted_scale))
            seen = changes.enter_context(Dtypes())
            changes.enter_context(sdpa_kernel(SDPBackend.MATH))  # its operations, as in a perturbed step
            yield
        self.made.append(made)
        self.products = dict(Counter(self.products) + Counter(seen.products))
        self.units |= {key: UNITS[name] for key, name in seen.lower.items()}
        self.name = max((self.name, *seen.lower.values()), key=lambda name: UNITS.get(name, 0.0))

    def skipped(self, number: int) -> float:
        """What the loss was multiplied by in a step of which an update was skipped; 0.0 where none was."""
        return self.scales[number] if number < len(self.made) and not all(self.made[number]) else 0.0

    def all_skipped(self, steps: int) -> str:
        """Why a step of the reference cannot be used that is skipped in every call; "" when the last one is not skipped."""
        scale = self.skipped(steps - 1)
        if not scale:
            return ""
        return (
            f"GradScaler skips all {steps} steps of the reference: the gradients of the loss times {scale:g} are infinite. "
            "Begin with a smaller scale, as in GradScaler(init_scale=1024)"
        )

    @contextmanager
    def left_out(self, number: int) -> Iterator[None]:
        """Make a step, by its number, without autocast and without scaling the loss. What was skipped is skipped."""
        made = iter(self.made[number] if number < len(self.made) else ())
        scale = self.scales[number] if number < len(self.scales) else 1.0

        def step(_scaler: GradScaler, optimizer: Any, *args: Any, **more: Any) -> Any:
            return optimizer.step(*args, **more) if next(made, True) else None

        with ExitStack() as changes:
            changes.enter_context(_without_autocast())
            changes.enter_context(
                replaced(
                    GradScaler,
                    scale=lambda _, outputs: outputs,
                    unscale_=lambda *_: None,
                    step=step,
                    update=lambda *_: None,
                    get_scale=lambda _: scale,
                )
            )
            yield


def _without_autocast() -> AbstractContextManager[None]:
    """The context in which autocast of the code changes nothing, not even where the code switches it off."""
    return replaced(torch.autocast, __enter__=lambda context: context, __exit__=lambda *_: False)


class Dtypes(TorchDispatchMode):
    """Notes the operations within the context whose results are below float32.

    lower: operation -> precision. products: precision -> number of matrix products and convolutions that return it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lower: dict[Key, str] = {}
        self.products: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **dict(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if func.is_view or name in COPIES:
            return found
        names = [NAMES.get(each.dtype, "float32") for each in tree_iter(found) if isinstance(each, Tensor)]
        lower = [each for each in names if each in UNITS]
        if lower:
            self.lower[key_of(name, args)] = lower[0]
        if names and name in PRODUCTS:
            self.products[names[0]] = self.products.get(names[0], 0) + 1
        return found


PRODUCTS = frozenset((
    "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "convolution", "convolution_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
))  # fmt: skip

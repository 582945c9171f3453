"""What the inputs of a torch model reach: both sides of comparisons and clips, further trips of loops, and padding ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .source import innermost_line

# Attribute of a tensor that depends on an input: the name of that input where it has its values, else "".
MARK = "_xverify_input"
# Beginnings of operations that take shapes alone.
SHAPED = ("zeros", "ones", "full", "empty", "new_", "rand", "arange", "eye")
MOVES = frozenset(
    {"view", "_to_copy", "unsqueeze", "squeeze", "select", "slice", "clone", "_unsafe_view", "transpose", "permute", "expand",
     "alias", "detach", "t", "_reshape_alias"}
)  # fmt: skip
ROUND_ZERO = frozenset({"relu", "leaky_relu", "elu", "celu", "selu", "threshold", "prelu"})
CLIPS = frozenset({"hardtanh", "hardsigmoid", "hardswish", "clamp", "clamp_min", "clamp_max"})
COMPARES = frozenset({"gt", "ge", "lt", "le", "eq", "ne"})
Sides = Iterator[tuple[str, bool]]  # what is to be said of a side that no value reached, and whether one did


class Reached(TorchDispatchMode):
    """Watches the passes of a model within its context.

    padding: input of ids -> the padding id of the embedding that looks them up.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.sides: dict[str, dict[str, bool]] = {}
        self.padding: dict[str, int] = {}
        self.modules: list[tuple[str, nn.Module]] = []
        self.hooks = ExitStack()
        for name, module in model.named_modules():
            before = module.register_forward_pre_hook(self._enter(name))
            after = module.register_forward_hook(self._leave, always_call=True)
            self.hooks.callback(before.remove)
            self.hooks.callback(after.remove)

    def _enter(self, name: str) -> Callable[..., None]:
        return lambda module, _: self.modules.append((name, module))

    def _leave(self, module: nn.Module, args: Any, returned: Any) -> None:
        self.modules.pop()

    def __exit__(self, *error: Any) -> None:
        self.hooks.close()
        super().__exit__(*error)

    def given(self, names: Sequence[str], inputs: Sequence[Any]) -> None:
        """Note the inputs of the next pass."""
        for name, each in zip(names, inputs):
            if isinstance(each, Tensor):
                setattr(each, MARK, name)

    def says(self) -> tuple[str, ...]:
        """What no pass reached, by layer, or else by line of the model's code."""
        return tuple(
            f"{place}: {side}" for place, sides in self.sides.items() for side, reached in sides.items() if not reached
        )

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, function.overloadpacket.__name__.rstrip("_")
        marks = [getattr(each, MARK) for each in tree_leaves((args, kwargs)) if hasattr(each, MARK)]
        if marks:  # before the call, which may overwrite its input
            known = {
                each.name: args[place] if place < len(args) else kwargs.get(each.name, each.default_value)
                for place, each in enumerate(function._schema.arguments)
            }
            self._note(name, self._before(name, next(iter(known.values())), known))
        result = function(*args, **kwargs)
        if marks and not name.startswith(SHAPED):
            if name in COMPARES or name == "_local_scalar_dense":
                self._note(name, _after(name, result))
            for each in tree_leaves(result):
                if isinstance(each, Tensor):
                    setattr(each, MARK, marks[0] if name in MOVES else "")
        return result

    def _before(self, name: str, value: Any, given: Mapping[str, Any]) -> Sides:
        """The sides of an operation that its arguments reach. value: the first one. given: name of an argument -> its value."""
        if name in ROUND_ZERO:
            yield "no value is negative", bool((value < 0).any())
            yield "no value is positive", bool((value > 0).any())
        elif name in CLIPS:  # those that are called hard have the ends of hardsigmoid
            ends = (-3, 3) if name.startswith("hards") else (None, None)
            low, high = (given.get(end, given.get(f"{end}_val", own)) for end, own in zip(("min", "max"), ends))
            if _is_bound(low):
                yield "no value is below its lower bound", bool((value < low).any())
            if _is_bound(high):
                yield "no value is above its upper bound", bool((value > high).any())
        elif name in ("maximum", "minimum"):
            first, second = (value, given["other"]) if name == "minimum" else (given["other"], value)
            yield "its first argument is never the result", bool((first < second).any())
            yield "its second argument is never the result", bool((second < first).any())
        elif name == "embedding" and (pad := int(given["padding_idx"])) >= 0:
            self.padding |= {mark: pad} if (mark := getattr(given["indices"], MARK, "")) else {}
            yield f"the padding id {pad} is not looked up", bool((given["indices"] == pad).any())

    def _note(self, name: str, sides: Sides) -> None:
        for side, reached in sides:
            place = self.sides.setdefault(self._place(name), {})
            place[side] = place.get(side, False) or reached

    def _place(self, name: str) -> str:
        called, module = self.modules[-1] if self.modules else ("", None)
        if module is not None and called and type(module).__module__.startswith("torch.nn"):
            return f"{called} ({type(module).__name__})"
        what = "a number that is read" if name == "_local_scalar_dense" else name
        return f"{innermost_line(__file__)[0] or called} ({what})"


def _after(name: str, result: Any) -> Sides:
    if name in COMPARES:
        yield "it is never true", bool(result.any())
        yield "it is never false", not bool(result.all())
    elif isinstance(result, bool):
        yield "it is never true", result
        yield "it is never false", not result
    elif isinstance(result, int):
        yield "it is never above 1", result > 1


def _is_bound(value: Any) -> bool:
    """Whether this bounds values. The ends of the range of a type do not."""
    return isinstance(value, Tensor) or (
        isinstance(value, (int, float)) and abs(value) < 1e30 and not math.isnan(value)
    )

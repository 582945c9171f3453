"""Mistakes of a user's own training step in the running statistics of batch norms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from ..float64.layer_kinds import BATCH_NORMS
from ..float64.norms_in_parts import FIRST_SHARE
from ..float64.own_step import Optimizers
from ..float64.replaced import hooked
from .own_mistake import Case, Mistake, within

MOST_CALLS = 4  # of a batch norm in one step, of which one may leave the statistics as they are
BIASED = "its running variance uses the biased variance: torch multiplies that by n/(n - 1)"


def statistics(case: Case) -> Iterator[Mistake]:
    """The known differences and mistakes of the running statistics of batch norms."""
    yield Mistake("biased variance", f"biased variance: {BIASED}", with_biased_variance, difference="biased variance")
    for biased, more in ((False, ""), (True, f", and {BIASED}")):
        for says, momentum in _momenta(case):
            yield Mistake("momentum", f"{says}{more}", partial(_norms, biased, momentum, case.port.blamed))
        for call in range(_calls(case)):
            says = f"the statistics are not updated in call {call + 1} of the batch norm in a step{more}"
            yield Mistake("calls", says, partial(_norms, biased, None, ()), partial(_without_call, call))


def _calls(case: Case) -> int:
    """How often a batch norm is called in a step, where that is more than once."""
    counts = Counter[int]()

    def count(norm: Any, _args: Any) -> None:
        counts[id(norm)] += 1

    @contextmanager
    def counting(model: nn.Module) -> Iterator[None]:
        with hooked([norm.register_forward_pre_hook(count) for norm in _averaging(model)]):
            yield

    first = replace(case.steps, files=case.steps.files[:1])
    for _ in within(first, counting).drive():
        pass
    most = max(counts.values(), default=0)
    return min(most, MOST_CALLS) if most > 1 else 0


def _momenta(case: Case) -> Iterator[tuple[str, Any]]:
    """What is said of other momenta, and each as a function of the right one."""
    yield "momentum weighs the old value instead of the new one", lambda right: 1 - right
    yield "they are updated twice with each batch", lambda right: 1 - (1 - right) ** 2
    norm = next((each for each in case.model.modules() if isinstance(each, BATCH_NORMS) and each.momentum), None)
    blamed = [name for name in case.port.blamed if name.endswith("running_mean")]
    if norm is None or not blamed:
        return
    share = case.factor_of(blamed[0])
    right = float(norm.momentum)
    momentum = float(f"{right * share:.4g}") if math.isfinite(share) else right
    if 0 < momentum <= 1 and momentum != right:
        says = f"the momentum of the batch norms is {momentum:g}; torch.py says {right:g}"
        if momentum < 0.5:
            says += f" (in Keras and JAX, that is {1 - momentum:g} in place of {1 - right:g})"
        yield says, lambda old: old * momentum / right


def with_biased_variance(model: nn.Module, optimizers: Optimizers) -> AbstractContextManager[None]:
    """Let all running variances take the biased variance."""
    return _norms(True, None, (), model, optimizers)


@contextmanager
def _norms(
    biased: bool, momentum: Any, blamed: Sequence[str], model: nn.Module, _optimizers: Optimizers
) -> Iterator[None]:
    """Change the running statistics of batch norms.

    biased: whether all of them take the biased variance. momentum: the wrong one as a function of the right one, or None.
    blamed: the statistics that differ; the momentum is that of batch norms whose running mean does.
    """
    norms = _averaging(model)
    own = {f"{name}.running_mean": each for name, each in model.named_modules()}
    for norm in [own[name] for name in blamed if own.get(name) in norms] or norms if momentum is not None else ():
        norm.momentum = momentum(norm.momentum)
    with hooked(_biased(norms) if biased else []):
        yield


@contextmanager
def _without_call(call: int, model: nn.Module) -> Iterator[None]:
    """Leave the statistics as they are in one call of each batch norm within a step."""
    norms = _averaging(model)
    counts, right = Counter[int](), {id(norm): norm.momentum for norm in norms}

    def before(norm: Any, _args: Any) -> None:
        norm.momentum = 0.0 if counts[id(norm)] == call else right[id(norm)]
        counts[id(norm)] += 1

    with hooked([norm.register_forward_pre_hook(before) for norm in norms]):
        yield
    for norm in norms:
        norm.momentum = right[id(norm)]


def _averaging(model: nn.Module) -> list[Any]:
    """The batch norms that average by a momentum."""
    return [each for each in model.modules() if isinstance(each, BATCH_NORMS) and each.momentum]


def _biased(norms: list[Any]) -> list[Any]:
    """The hooks that let running variances take the biased ones."""
    return [
        *(norm.register_forward_pre_hook(_keep_variance) for norm in norms),
        *(norm.register_forward_hook(_take_biased) for norm in norms),
    ]


def _keep_variance(norm: Any, _args: Any) -> None:
    norm.old_variance = norm.running_var.clone()


def _take_biased(norm: Any, args: Any, _result: Any) -> None:
    terms = round(args[0].numel() // args[0].shape[1] * getattr(norm, FIRST_SHARE, 1.0))
    share = norm.running_var - (1 - norm.momentum) * norm.old_variance
    norm.running_var = norm.running_var - share / terms  # not in place, because autograd has stored the old tensor

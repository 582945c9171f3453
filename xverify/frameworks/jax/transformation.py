"""The transformation of gradients that is an optimizer of optax with all of its settings.

Optax joins transformations: ``clip_by_global_norm`` and ``clip`` stand before the optimizers of the groups, which
``multi_transform`` puts together, and ``MultiSteps`` around all of them accumulates gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from xverify.errors import Unsupported
from xverify.frameworks.jax.optax_adafactor import own_adafactor
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import CLIPS


def transformation(o: Optimizer, settings: Sequence[Optimizer], recorded: bool = False) -> Any:
    """Optax's transformation for these settings.

    settings: of each variable. recorded: whether the state holds the gradients before and after they are clipped.
    """
    import optax

    groups = list(dict.fromkeys(settings))
    optimizers = [_own_optimizer(each, learning_rate(each)) for each in groups]
    own = optimizers[0]
    if len(groups) > 1:
        own = optax.multi_transform(dict(enumerate(optimizers)), [groups.index(each) for each in settings])
    record = [_record()] * recorded
    joined = [*record, *_clip(o), *record, own]
    chained = optax.chain(*joined) if len(joined) > 1 else own
    return optax.MultiSteps(chained, o.recipe.accumulate) if o.recipe.accumulate > 1 else chained


def _own_optimizer(o: Optimizer, rate: Any) -> Any:
    """An optimizer of optax, with weight decay as its users add it. rate: a number, or a schedule of optax."""
    import optax

    decay = optax.add_decayed_weights(o.weight_decay)
    if o.name == "adamw" and not o.recipe.amsgrad:
        return optax.adamw(rate, o.beta1, o.beta2, o.eps, weight_decay=o.weight_decay)
    if o.name == "adafactor":
        return own_adafactor(o, rate)
    if o.name == "lion":
        return optax.lion(rate, o.beta1, o.beta2, weight_decay=o.weight_decay)
    if o.name == "adamw":
        return optax.chain(optax.scale_by_amsgrad(o.beta1, o.beta2, o.eps), decay, optax.scale_by_learning_rate(rate))
    if o.name == "sgd":
        own = optax.sgd(rate, o.momentum or None, o.nesterov)
    elif o.name == "rmsprop":
        own = optax.rmsprop(rate, o.alpha, o.eps)
    elif o.name == "adagrad":
        own = optax.adagrad(rate, 0.0, o.eps)
    else:
        own = (optax.amsgrad if o.recipe.amsgrad else optax.adam)(rate, o.beta1, o.beta2, o.eps)
    return optax.chain(decay, own) if o.weight_decay else own


def _clip(o: Optimizer) -> list[Any]:
    import optax

    if not o.recipe.clip:
        return []
    how, limit = o.recipe.clip
    if how == "clip_each":
        raise Unsupported(f"optax does not clip the {CLIPS[how]}; run with --match-optimizer")
    return [optax.clip(limit) if how == "clip_value" else optax.clip_by_global_norm(limit)]


class _Recorded(NamedTuple):
    """The state of ``_record``: the gradients that it was given."""

    recorded: Any


def _record() -> Any:
    """A transformation that changes nothing, and keeps the gradients in its state."""
    import jax
    import optax

    return optax.GradientTransformation(
        lambda trained: _Recorded(jax.tree.map(jax.numpy.zeros_like, trained)),
        lambda gradients, state, trained=None: (gradients, _Recorded(gradients)),
    )


def learning_rate(o: Optimizer) -> Any:
    """The learning rate of a parameter: a number, or a schedule of optax."""
    import optax

    schedule, lr = o.recipe.schedule, o.lr
    if schedule is None:
        return lr
    count = (schedule.steps or 0) - schedule.warmup
    if schedule.kind == "cosine" and schedule.warmup:
        return optax.warmup_cosine_decay_schedule(
            lr * schedule.start, lr, schedule.warmup, schedule.steps, lr * schedule.end
        )
    make: dict[str, Callable[[], Any]] = {
        "constant": lambda: optax.constant_schedule(lr),
        "step": lambda: optax.exponential_decay(lr, schedule.every, schedule.gamma, staircase=True),
        "linear": lambda: optax.linear_schedule(lr, lr * schedule.end, count),
        "cosine": lambda: optax.cosine_decay_schedule(lr, count, schedule.end),
        "one-cycle": lambda: optax.cosine_onecycle_schedule(count, lr),
    }
    later = make[schedule.kind]()
    if not schedule.warmup:
        return later
    rise = optax.linear_schedule(lr * schedule.start, lr, schedule.warmup)
    return optax.join_schedules([rise, later], [schedule.warmup])

"""Files of JAX with optimizer state, which ``flax.serialization.to_bytes`` makes of ``params`` and ``opt_state``.

The file is msgpack of a dictionary. ``params`` is the tree of the model's parameters, and ``opt_state`` the state of an optimizer
of optax over this tree. A model of Flax has ``batch_stats``, too, where it keeps running statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Unsupported, WeightsError, first_line
from xverify.framework.checkpoint import ADAMS, Argument, Checkpoint, Constructor, Fields, Opened, Settings
from xverify.frameworks.jax.function import Function

TREES = ("params", "batch_stats", "opt_state")
PARAMS, STATISTICS, STATE = TREES

_RATE = {"lr": Argument("learning_rate")}
_DECAY = {"weight_decay": Argument("weight_decay")}
_BETAS = {"beta1": Argument("b1"), "beta2": Argument("b2")}
_EPS = {"eps": Argument("eps")}
_MOMENTUM = {"momentum": Argument("momentum", lambda value: value or None)}
# Fields of optax's states -> the optimizers that have them; "": adam or adamw. RMSprop has no counter.
KNOWN = {
    ("trace",): "sgd",
    ("count", "mu", "nu"): "",
    ("count", "mu", "nu", "nu_max"): "",
    ("nu",): "rmsprop",
    ("nu", "trace"): "rmsprop",
    ("mu", "nu"): "rmsprop",
    ("mu", "nu", "trace"): "rmsprop",
    ("sum_of_squares",): "adagrad",
    ("count", "mu"): "lion",
    ("count", "v", "v_col", "v_row"): "adafactor",
}
FIELDS = {field for fields in KNOWN for field in fields} - {"count"}


class OptaxCheckpoint(Checkpoint):
    """A file of flax.serialization, whose state may be that of any chain of optax with one of the known optimizers in it."""

    suffixes = (".msgpack",)
    constructors = {
        "sgd": Constructor(
            "optax.sgd",
            {**_RATE, **_MOMENTUM, "nesterov": Argument("nesterov")},
        ),
        "adam": Constructor("optax.adam", {**_RATE, **_BETAS, **_EPS}),
        "adamw": Constructor("optax.adamw", {**_RATE, **_BETAS, **_EPS, **_DECAY}),
        "rmsprop": Constructor(
            "optax.rmsprop",
            {**_RATE, "alpha": Argument("decay"), **_EPS, "centered": Argument("centered"), **_MOMENTUM},
        ),
        "adagrad": Constructor("optax.adagrad", {**_RATE, **_EPS}),
        "lion": Constructor("optax.lion", {**_RATE, **_BETAS, **_DECAY}),
        "adafactor": Constructor(
            "optax.adafactor",
            {
                **_RATE,
                "beta2_decay": Argument("decay_rate", lambda value: -value, lambda value: -value),
                "eps": Argument("eps", lambda value: value**2, lambda value: value**0.5),
                "threshold": Argument("clipping_threshold"),
            },
        ),
    }

    def __init__(self) -> None:
        self.stored: Mapping[str, Any] = {}

    def made(self, name: str) -> Callable[..., Any]:
        import optax

        found: Callable[..., Any] = getattr(optax, self.constructors[name].path.rpartition(".")[2])
        return found

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: Path, model: Any) -> Opened:
        try:
            self.stored = _serialization().msgpack_restore(path.read_bytes())
        except Exception as error:  # of a damaged file, any
            raise WeightsError(
                f"{path}: not a readable msgpack file of flax.serialization, or truncated ({first_line(error)})"
            ) from None
        if not isinstance(self.stored, dict) or STATE not in self.stored:
            held = ", ".join(map(str, self.stored)) if isinstance(self.stored, dict) else type(self.stored).__name__
            raise WeightsError(
                f"{path}: it has no entry {STATE!r}, which is the state of an optimizer of optax; it has {held}"
            )
        node = self._node()
        fields = tuple(sorted(node.keys() & {*FIELDS, "count"}))
        if fields not in KNOWN:
            raise WeightsError(
                f"{path}: a state with the fields {', '.join(fields)} is none of the optimizers that are converted: "
                f"{', '.join(self.constructors)}"
            )
        settings: Settings = {"name": KNOWN[fields]} if KNOWN[fields] else {"amsgrad": "nu_max" in fields}
        if KNOWN[fields] == "rmsprop":
            settings["centered"] = "mu" in fields
        counts = {int(each) for each in _entries(self.stored[STATE], "count")}
        steps = int(node["count"]) if "count" in node else max(counts, default=None)
        left = tuple(name for name in self.stored if name not in TREES)
        return Opened(settings, steps=steps, has_weights=PARAMS in self.stored, left=left, kinds=ADAMS)

    def _node(self) -> Mapping[str, Any]:
        """The part of the state that has arrays of the optimizer."""
        nodes = [node for node in _nodes(self.stored[STATE]) if node.keys() & FIELDS]
        if len(nodes) == 2 and "nu" in nodes[0] and nodes[1].keys() == {"trace"}:  # RMSprop, whose momentum is apart
            return {**nodes[0], **nodes[1]}
        if len(nodes) > 1:
            raise WeightsError(
                f"{self.path}: {STATE} has the states of {len(nodes)} optimizers, and one can be converted"
            )
        return nodes[0] if nodes else {"trace": {}}

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def load(self, model: Any, learner: Any, steps: int) -> None:
        _check_groups(learner)
        function: Function = learner.function
        trained, others = function.present()
        if PARAMS in self.stored:
            given = self._arrays(function.trained_paths(), trained, PARAMS, self.stored[PARAMS])
            statistics = self._arrays(function.other_paths(), others, STATISTICS, self.stored.get(STATISTICS, {}))
            function.write(given, statistics)
            trained = given
        node, optim = self._node(), learner.optim
        more = sorted(node.keys() & FIELDS - set(optim.fields))
        if more and node != {"trace": {}}:
            raise WeightsError(
                f"{self.path}: the state has {more[0]}, which {optim.optimizer.says()} does not keep: it is of other settings"
                + "; give --set momentum=X" * (more[0] == "trace")
            )
        zeros = optim.transformation.init(trained)
        fields = []
        for name in optim.fields:
            if name not in node:
                raise WeightsError(f"{self.path}: the state has no {name}, which {optim.optimizer.name} keeps")
            (template,) = list(_templates(zeros, name))
            fields.append(self._arrays(function.trained_paths(), template, name, node[name]))
        learner.steps = steps
        learner.state = learner._state(optim.filled(trained, steps, fields), trained, not steps)

    def _arrays(self, paths: Sequence[tuple[str, ...]], wanted: Sequence[Any], what: str, tree: Any) -> list[Any]:
        """The arrays of a tree at these paths. wanted: arrays of the right shapes."""
        import jax

        flat = dict(_leaves(tree))
        found = Fields(self.path, {".".join(path): {what: flat[path]} for path in paths if path in flat})
        found.check({".".join(path): np.shape(each) for path, each in zip(paths, wanted)}, [what])
        return [jax.numpy.asarray(flat[path]) for path in paths]

    def save(self, path: Path, model: Any, learner: Any) -> None:
        import jax

        _check_groups(learner)
        function: Function = learner.function
        trained, others = function.present()

        def tree(values: Any) -> Any:
            return _nested(function.trained_paths(), values) if isinstance(values, list) else np.asarray(values)

        state = jax.tree.map(tree, learner.state.optimizer, is_leaf=lambda value: isinstance(value, list))
        stored = {PARAMS: _nested(function.trained_paths(), trained), STATE: state}
        if others:
            stored[STATISTICS] = _nested(function.other_paths(), others)
        path.write_bytes(_serialization().to_bytes(stored))


def _check_groups(learner: Any) -> None:
    """Raise Unsupported for parameter groups: the state of optax.multi_transform depends on how a user labels them."""
    if len(set(learner.optim.settings)) > 1:
        raise Unsupported(
            "the parameters have several learning rates or weight decays, and an optimizer of optax has one of each"
        )


def _serialization() -> Any:
    try:
        from flax import serialization
    except ModuleNotFoundError:
        raise Unsupported("files of JAX are read and written by flax.serialization: install flax") from None
    return serialization


def _nested(paths: Sequence[tuple[str, ...]], values: Sequence[Any]) -> dict[str, Any]:
    """The tree with these values at these paths."""
    found: dict[str, Any] = {}
    for path, value in zip(paths, values):
        place = found
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = np.asarray(value)
    return found


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, array) of every array of a tree."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, (*path, str(key)))
    elif hasattr(tree, "shape"):
        yield path, tree


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)


def _entries(tree: Any, name: str) -> Iterator[Any]:
    """Every entry of this name."""
    return (node[name] for node in _nodes(tree) if name in node)


def _templates(state: Any, name: str) -> Iterator[Any]:
    from xverify.frameworks.jax.optax import fields_of

    return fields_of(state, name)

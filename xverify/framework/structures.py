"""Nested structures of tensors and other values, such as the arguments of a layer and the outputs of a model.

Containers are tuples, lists, mappings, named tuples and dataclasses. A ``ModelOutput`` of Hugging Face is a mapping and a
dataclass.
A value that has a shape and a dtype is a tensor, and never a container. None stands for no value.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..errors import Failed

Part = tuple[str, Any]  # the key of a part of a container, and the part
# Name -> tensor. Any: each framework has a class of its own.
Natives = dict[str, Any]


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of some framework."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def parts(value: Any) -> list[Part] | None:
    """The parts of a container, each with its key, field or index; None for everything else."""
    if isinstance(value, Mapping):
        return [(str(key), item) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return list(zip(getattr(value, "_fields", map(str, range(len(value)))), value))
    if is_dataclass(value) and not isinstance(value, type) and not is_tensor(value):
        return [(each.name, getattr(value, each.name)) for each in fields(value) if hasattr(value, each.name)]
    return None


def map_leaves(values: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a nested structure in which ``change`` is applied to everything that is no container.

    Containers keep their class.
    """
    inner = parts(values)
    if inner is None:
        return change(values)
    changed = [map_leaves(part, change) for _, part in inner]
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*changed)
    if isinstance(values, (tuple, list)):
        return type(values)(changed)
    if not isinstance(values, Mapping):
        return _with_fields(values, dict(zip([key for key, _ in inner], changed)))
    if is_dataclass(values) and not isinstance(values, type):
        return replace(values, **dict(zip(values, changed)))
    return _with_items(values, dict(zip(values, changed)))


def _with_fields(values: Any, changed: Mapping[str, Any]) -> Any:
    """A copy of a dataclass with other values of some fields, made without its ``__init__``, which may compute something."""
    made = copy.copy(values)
    for name, part in changed.items():
        object.__setattr__(made, name, part)
    return made


def _with_items(values: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    """A mapping of the same class with other values; a plain dictionary where the class cannot be copied and filled."""
    if type(values) is dict:
        return changed
    try:
        made: Any = copy.copy(values)
        made.update(changed)
    except (AttributeError, TypeError):
        return changed
    return made


def leaves(values: Any) -> list[Any]:
    """Everything in a nested structure that is no container, and is not None, in order."""
    inner = parts(values)
    if inner is None:
        return [] if values is None else [values]
    return [leaf for _, part in inner for leaf in leaves(part)]


def unique_leaves(values: Any) -> Iterator[Any]:
    """Everything in a nested structure that is no container, in order. An object that occurs twice is given once.

    Cells of Keras, for example, return their state twice.
    """
    seen: set[int] = set()

    def walk(value: Any) -> Iterator[Any]:
        inner = parts(value)
        if inner is not None:
            for _, part in inner:
                yield from walk(part)
        elif id(value) not in seen:
            seen.add(id(value))
            yield value

    return walk(values)


def by_path(values: Any) -> Natives:
    """Path -> everything in a nested structure that is no container, and is not None, in order.

    A path joins keys, fields and indices by dots: the two states in ``(y, (h, c))`` are "1.0" and "1.1". The path of a value that
    stands alone is "". Raises Failed when two values have the same path.
    """
    tensors: Natives = {}

    def walk(path: str, value: Any) -> None:
        inner = parts(value)
        if inner is not None:
            for key, part in inner:
                walk(f"{path}.{key}" if path else key, part)
        elif value is not None:
            if path in tensors:
                raise Failed(f"two outputs have the path {path!r}: a key with a dot is the path of another output")
            tensors[path] = value

    walk("", values)
    return tensors


def named_outputs(outputs: Any, names: Sequence[str]) -> Natives:
    """The outputs of a model by the names of the spec, in the order of the spec; then those that the spec does not name.

    * A tensor that stands alone, and the tensors of a flat tuple or list, are named in order.
    * The values of a flat mapping or dataclass have their own keys and fields as names.
    * In other structures, a name of the spec that is a path (see ``by_path``) takes the value there, and the other names take the
      other values in order.
    * None is no output.
    * A further output of a tuple or list is called ``output[i]``, and of another structure by its path.

    names: the names of the spec. Without any, outputs without names of their own are called ``output[i]``.
    """
    by_name = by_path(outputs)
    if is_plain(outputs) or (not names and not _is_keyed(outputs)):
        return {names[i] if i < len(names) else f"output[{i}]": value for i, value in enumerate(by_name.values())}
    if _is_keyed(outputs):
        own = by_name
    else:
        left = iter([name for name in names if name not in by_name])
        own = {path if path in names else next(left, path): value for path, value in by_name.items()}
    return {
        name: own[name] for name in sorted(own, key=lambda name: names.index(name) if name in names else len(names))
    }


def only_output(outputs: Any) -> Any:
    """The one output of a model that is trained, which may stand in a container. Raises Failed when there are several, or none."""
    if is_tensor(outputs):
        return outputs
    tensors = leaves(outputs)
    if len(tensors) != 1:
        raise Failed(
            f"the model returns {len(tensors)} outputs; training takes the cross-entropy of one: return the logits alone"
        )
    return tensors[0]


def is_plain(outputs: Any) -> bool:
    """Whether outputs are a single value, or a tuple or list of values without None, as every graph can return them."""
    if isinstance(outputs, (tuple, list)) and not hasattr(outputs, "_fields"):
        return all(parts(value) is None and value is not None for value in outputs)
    return parts(outputs) is None


def _is_keyed(outputs: Any) -> bool:
    """Whether outputs are a mapping or dataclass that holds no further container."""
    inner = parts(outputs)
    if inner is None or isinstance(outputs, (tuple, list)):
        return False
    return all(parts(value) is None for _, value in inner)


def without_classes(values: Any) -> Any:
    """A nested structure with dictionaries in place of dataclasses, which graphs of TensorFlow and JAX do not know."""
    inner = parts(values)
    if inner is None:
        return values
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(without_classes(part) for _, part in inner))
    if isinstance(values, (tuple, list)):
        return tuple(without_classes(part) for _, part in inner)
    return {key: without_classes(part) for key, part in inner}

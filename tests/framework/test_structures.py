"""Nested outputs: their paths, their names in the spec, and copies that keep the classes of containers."""

import types
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pytest

from xverify.errors import Failed
from xverify.framework.capture import Recorder
from xverify.framework.structures import (
    by_path,
    is_plain,
    leaves,
    map_leaves,
    named_outputs,
    only_output,
    unique_leaves,
    without_classes,
)

A, B, C, D = (np.full(3, value, np.float32) for value in range(4))


class State(NamedTuple):
    h: Any
    c: Any


@dataclass
class Out:
    y: Any
    state: Any = None
    loss: Any = None


@dataclass(frozen=True)
class Frozen:
    y: Any

    def __post_init__(self):
        assert isinstance(self.y, np.ndarray), "it is made of arrays alone"


@dataclass
class Output(OrderedDict):
    """As ModelOutput of Hugging Face: a mapping of the fields that are not None, whose values are attributes, too."""

    logits: Any = None
    states: Any = None
    loss: Any = None

    def __post_init__(self):
        for each in fields(self):
            if getattr(self, each.name) is not None:
                super().__setitem__(each.name, getattr(self, each.name))


LSTM = (A, (B, C))
NESTED = {"y": A, "caches": ({"k": B}, None, {"k": C})}


@pytest.mark.parametrize(
    ("outputs", "paths"),
    [
        (A, [""]),
        (None, []),
        ((A, None, B), ["0", "2"]),
        (LSTM, ["0", "1.0", "1.1"]),
        (NESTED, ["y", "caches.0.k", "caches.2.k"]),
        (State(A, B), ["h", "c"]),
        ([A, State(B, [C])], ["0", "1.h", "1.c.0"]),
        (Out(A, (B, C)), ["y", "state.0", "state.1"]),
        (Output(A, (B, C)), ["logits", "states.0", "states.1"]),
        ({1: A, "b": {}}, ["1"]),
    ],
)
def test_the_path_of_every_output(outputs, paths):
    assert list(by_path(outputs)) == paths
    assert [id(value) for value in leaves(outputs)] == [id(value) for value in by_path(outputs).values()]


def test_two_outputs_of_one_path_are_refused():
    with pytest.raises(Failed, match=r"two outputs have the path 'a\.b'"):
        by_path({"a": {"b": A}, "a.b": B})


@pytest.mark.parametrize(
    ("outputs", "names", "found"),
    [
        # In order: a tensor alone, flat tuples, and nested ones whose paths the spec does not use.
        (A, ["y"], {"y": A}),
        ((A, B), ["1", "0"], {"1": A, "0": B}),
        ((A, None), ["y"], {"y": A}),
        (LSTM, ["y", "h", "c"], {"y": A, "h": B, "c": C}),
        (NESTED, ["y", "first", "second"], {"y": A, "first": B, "second": C}),
        (State(A, B), ["first", "second"], {"first": A, "second": B}),
        # By path, in the order of the spec; the rest in order.
        (LSTM, ["1.1", "y", "1.0"], {"1.1": C, "y": A, "1.0": B}),
        (State(A, B), ["c", "h"], {"c": B, "h": A}),
        (Out(A, (B, C)), ["state.1", "state.0", "y"], {"state.1": C, "state.0": B, "y": A}),
        (Output(A, (B, C)), ["states.0", "logits", "states.1"], {"states.0": B, "logits": A, "states.1": C}),
        # Flat mappings and dataclasses have names of their own, and are never named in order.
        ({"b": A, "a": B}, ["a", "b"], {"a": B, "b": A}),
        ({"logits": A, "aux": None}, ["logits"], {"logits": A}),
        ({"logit": A}, ["logits"], {"logit": A}),
        (Out(A), ["z"], {"y": A}),
        # What is left over comes last.
        ((A, B), ["y"], {"y": A, "output[1]": B}),
        (LSTM, ["y"], {"y": A, "1.0": B, "1.1": C}),
        ({"aux": B, "logits": A}, ["logits"], {"logits": A, "aux": B}),
        # Without a spec.
        (A, [], {"output[0]": A}),
        (LSTM, [], {"output[0]": A, "output[1]": B, "output[2]": C}),
        ({"a": A}, [], {"a": A}),
    ],
)
def test_outputs_are_named_by_their_path_or_in_order(outputs, names, found):
    mine = named_outputs(outputs, names)
    assert list(mine) == list(found)
    assert all(mine[name] is value for name, value in found.items())


def test_only_flat_tuples_are_plain():
    assert all(is_plain(each) for each in (A, (A, B), [A]))
    assert not any(is_plain(each) for each in (LSTM, (A, None), State(A, B), Out(A), {"y": A}, Output(A)))


@pytest.mark.parametrize(
    "values",
    [A, (A, [B]), State(A, B), Out(A, State(B, C)), Frozen(A), Output(A, (B, C)), OrderedDict(y=A), {"y": (A, None)}],
    ids=lambda value: type(value).__name__,
)
def test_a_copy_with_other_values_keeps_the_classes(values):
    changed = map_leaves(values, lambda value: None if value is None else value + 1)
    assert type(changed) is type(values)
    assert list(by_path(changed)) == list(by_path(values))
    assert all(np.array_equal(y, x + 1) for x, y in zip(leaves(values), leaves(changed)))
    if isinstance(values, Output):
        assert changed.logits is changed["logits"]


def test_a_mapping_that_cannot_be_filled_becomes_a_dictionary():
    assert map_leaves(types.MappingProxyType({"a": 1}), lambda value: value + 1) == {"a": 2}


def test_graphs_get_dictionaries_in_place_of_dataclasses():
    assert without_classes(Out(A, State(B, [Out(C)]))) == {
        "y": A,
        "state": State(B, ({"y": C, "state": None, "loss": None},)),
        "loss": None,
    }
    assert type(without_classes(Output(A, (B,)))) is dict


def test_the_one_output_of_a_model_that_is_trained():
    assert only_output(A) is A
    assert only_output((A, None)) is A
    assert only_output(Output(A)) is A
    with pytest.raises(Failed, match="returns 3 outputs"):
        only_output(LSTM)


def test_layers_that_return_dataclasses_are_captured(tmp_path):
    recorder = Recorder(tmp_path, lambda value: value if isinstance(value, np.ndarray) else None)
    record = recorder.begin("layer", (Out(A, Output(B)), "mode"))
    recorder.end(record, Out(C, State(D, C)))
    assert [np.load(tmp_path / file)[0] for file in (*record.inputs, *record.outputs)] == [0, 1, 2, 3]
    assert len(list(unique_leaves(Out(C, State(D, C))))) == 3  # None is a value, and C is given once

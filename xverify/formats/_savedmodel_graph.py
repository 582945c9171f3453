"""Tells what the graph of a SavedModel could do beside computing, from its bytes and without TensorFlow.

The numbers of fields are those of https://github.com/tensorflow/tensorflow/tree/master/tensorflow/core/protobuf. A message that is
given in parts is their concatenation, as for protobuf. What protobuf would read otherwise, such as groups, is refused as damaged.

Every node of the graph and of its functions must have an operator that is known to have no effect. The exceptions:

* What leads to the operator with which a saver writes, and to nothing else. No loader of TensorFlow calls it, and xverify saves no
  loaded model. All that is named by a signature, a collection or an object, or is used by another node, is looked at.
* RestoreV2 where its name of a file is the tensor that the loader itself feeds with the variables of the SavedModel, and where no
  signature and no initialisation leads to it, which would run it without being fed.
* The initialisation of a table from a text file that is an asset of the SavedModel, where no signature leads to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from xverify.formats._allowed import allowed
from xverify.formats._protobuf import DEEPEST, Buffer, Damaged, Message

CALLS = ("StatefulPartitionedCall", "PartitionedCall")
_TABLES = ("InitializeTableFromTextFileV2", "InitializeTableFromTextFile")
_FILES = {"RestoreV2": 0, **dict.fromkeys(_TABLES, 1)}  # operator -> the place of the name of a file among its inputs
_STREAMS = {"stdout", "stderr", "log(info)", "log(warning)", "log(error)"}
_TEXT = 7  # DT_STRING
_RISKS = {
    **dict.fromkeys(("PyFunc", "PyFuncStateless", "EagerPyFunc"), "calls Python"),
    **dict.fromkeys(("WriteFile", "Save", "SaveV2"), "writes files"),
    **dict.fromkeys(("ReadFile", "RestoreV2", "ImmutableConst"), "reads files"),
    "PrintV2": "prints to a file",
}


@dataclass(frozen=True)
class Node:
    """A node. texts: attribute -> texts and names of functions in it. types: attribute -> types in it."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    texts: dict[str, set[str]] = field(default_factory=dict)
    types: dict[str, set[int]] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """Everything that may be the name of a function."""
        return {self.operator}.union(*self.texts.values())

    def given(self, place: int) -> str:
        """The input of a place, or "" without one."""
        found = [each for each in self.inputs if not each.startswith("^")]
        return found[place] if place < len(found) else ""


@dataclass
class Function:
    """A function of the library. arguments: None where one of them may be several tensors. attributes: their names."""

    name: str
    nodes: list[Node]
    arguments: list[str] | None
    attributes: set[str]


@dataclass
class Graph:
    """One MetaGraphDef.

    saves, restores, filename: the tensors and operators of its saver. assets: nodes that are fed with the places of its assets.
    served: nodes that signatures name, but for that of the initialisation. named: those that signatures and collections name.
    objects: all texts in its object graph. bound: function -> numbers of the objects that are its last arguments.
    kept: numbers of the objects that are assets.
    """

    nodes: dict[str, Node]
    functions: dict[str, Function]
    saves: str
    restores: str
    filename: str
    assets: set[str]
    served: set[str]
    named: set[str]
    objects: set[str]
    bound: dict[str, list[int]]
    kept: set[int]

    def reached(self, names: Iterable[str]) -> set[str]:
        """These nodes and all that they are computed from."""
        found, waiting = set[str](), [name for name in names if name in self.nodes]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(each for each in map(_node, self.nodes[name].inputs) if each in self.nodes)
        return found

    def called(self, names: Iterable[str]) -> set[str]:
        """These functions and all that they call."""
        found, waiting = set[str](), [name for name in names if name in self.functions]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(
                    each for node in self.functions[name].nodes for each in node.names if each in self.functions
                )
        return found

    def risk(self) -> str:
        """What it could do, as a clause; "" for nothing."""
        saving = self.reached([self.saves])
        examined = self.reached([*(name for name in self.nodes if name not in saving), *self.named, self.restores])
        names = set[str]().union(*(self.nodes[name].names for name in examined))
        left = self.called(each for name in self.nodes.keys() - examined for each in self.nodes[name].names)
        left = {each for each in left if not any("implements" in key for key in self.functions[each].attributes)}
        functions = self.called([*names, *self.objects, *(self.functions.keys() - left)])
        for node in (self.nodes[name] for name in sorted(examined)):
            if self._is_risky(node) and not self._is_own_file(node):
                return _clause(node)
        for function in (self.functions[name] for name in sorted(functions)):
            for node in function.nodes:
                if self._is_risky(node) and not self._takes_own_file(function, node, examined, functions):
                    return _clause(node)
        return ""

    def _is_risky(self, node: Node) -> bool:
        if node.operator == "PrintV2":
            return not node.texts.get("output_stream", set()) <= _STREAMS
        return node.operator not in allowed("tensorflow-operators") and node.operator not in self.functions

    def _is_own_file(self, node: Node, place: int | None = None, operator: str = "") -> bool:
        """Whether a node of the graph is given a file of the SavedModel where it, or the function that it calls, takes one."""
        operator = operator or node.operator
        place = _FILES.get(operator) if place is None else place
        if place is None:
            return False
        source = _node(node.given(place))
        if operator == "RestoreV2":
            fed = node.given(place).removesuffix(":0") == self.filename.removesuffix(":0") != ""
            return fed and node.name not in self.reached(self.named)
        return node.name not in self.reached(self.served) and (source in self.assets or self._holds_assets(source))

    def _holds_assets(self, name: str) -> bool:
        """Whether a node reads a variable of texts, and all of those are given assets alone."""
        node = self.nodes.get(name)
        if node is None or node.operator != "ReadVariableOp":
            return False
        everywhere = [each for function in self.functions.values() for each in function.nodes]
        for each in (*self.nodes.values(), *everywhere):
            kinds = set[int]().union(*each.types.values())
            if each.operator.startswith(("Assign", "Resource", "Variable")) and (_TEXT in kinds or not kinds):
                own = each.operator == "AssignVariableOp" and self.nodes.get(each.name) is each
                if not own or _node(each.given(1)) not in self.assets:
                    return False
        return True

    def _takes_own_file(self, function: Function, node: Node, examined: Collection[str], used: Collection[str]) -> bool:
        """Whether a node of a function takes a file from an argument, and each call gives it one of the SavedModel."""
        place, arguments = _FILES.get(node.operator), function.arguments
        if place is None or arguments is None or arguments.count(node.given(place)) != 1:
            return False
        at = arguments.index(node.given(place))
        if any(function.name in each.names for name in used for each in self.functions[name].nodes):
            return False
        for name in examined:
            caller = self.nodes[name]
            if function.name in caller.names and not (
                caller.operator in CALLS and self._is_own_file(caller, at, node.operator)
            ):
                return False
        if function.name not in self.objects:
            return True
        bound = self.bound.get(function.name, [])
        late = at - (len(arguments) - len(bound))
        return node.operator in _TABLES and late >= 0 and bound[late] in self.kept


def risk(data: Buffer) -> str:
    """What the graphs of a ``saved_model.pb`` could do, as a clause; "" for nothing. Raises Damaged."""
    return next(filter(None, (_graph(each).risk() for each in Message.of(data).each(2))), "")


def asset_names(data: Buffer) -> set[str]:
    """The names of the files in the folder ``assets`` that it names. Raises Damaged."""
    return {each.text(2) for meta in Message.of(data).each(2) for each in _assets(meta)}


def _clause(node: Node) -> str:
    what = _RISKS.get(node.operator, "is not known to have no effects")
    return f"its graph has the operator {node.operator[:80]}, which {what}"


def _node(tensor: str) -> str:
    """The name of the node that computes an input."""
    return tensor.removeprefix("^").partition(":")[0]


def _graph(meta: Message) -> Graph:
    graph, saver, objects = meta.one(2), meta.one(3), meta.one(7)
    library = graph.one(2)
    nodes, functions = list(map(_read_node, graph.each(1))), list(map(_read_function, library.each(1)))
    if len({each.name for each in nodes}) < len(nodes) or len({each.name for each in functions}) < len(functions):
        raise Damaged("two of its nodes or functions have one name")
    served = [each for each in meta.each(5) if each.text(1) != "__saved_model_init_op"]
    return Graph(
        {each.name: each for each in nodes},
        {each.name: each for each in functions},
        _node(saver.text(2)),
        _node(saver.text(3)),
        saver.text(1),
        {_node(each.one(1).text(1)) for each in _assets(meta)},
        {_node(name) for each in served for name in each.any_texts()},
        {_node(name) for each in (*meta.each(4), *meta.each(5)) for name in each.any_texts()},
        {name for each in (*meta.each(7), *library.each(2), *library.each(3)) for name in each.any_texts()},
        {each.text(1): each.one(2).numbers(2) for each in objects.each(2)},
        {number for number, each in enumerate(objects.each(1)) if each.each(5)},
    )


def _assets(meta: Message) -> list[Message]:
    """Every AssetFileDef. TensorFlow 1 keeps them in a collection, packed."""
    kept = [each for each in meta.each(4) if each.text(1) == "saved_model_assets"]
    return [*meta.each(6), *(packed.one(2) for each in kept for packed in each.one(2).one(5).each(1))]


def _read_node(node: Message) -> Node:
    texts, types = defaultdict[str, set[str]](set), defaultdict[str, set[int]](set)
    for each in node.each(5):
        for value in each.each(2):
            _read_attribute(value, texts[each.text(1)], types[each.text(1)])
    return Node(node.text(1), node.text(2), tuple(node.texts(3)), texts, types)


def _read_attribute(value: Message, texts: set[str], types: set[int], depth: int = 0, in_list: bool = False) -> None:
    """Add the texts, names of functions and types in an AttrValue, or in its ListValue."""
    if depth > DEEPEST:
        raise Damaged(f"its messages are nested more than {DEEPEST} deep")
    types.update(value.numbers(6))
    texts.update(value.texts(2))
    if not in_list:
        texts.update(value.texts(9))  # the name of an attribute of the function, which stands for its value
        for each in value.each(1):
            _read_attribute(each, texts, types, depth + 1, True)
    for function in value.each(9 if in_list else 10):
        texts.update(function.texts(1))
        for inner in function.each(2):
            for each in inner.each(2):
                _read_attribute(each, texts, types, depth + 1)


def _read_function(function: Message) -> Function:
    signature = function.one(1)
    arguments = signature.each(2)
    several = any(each.each(5) or each.each(6) for each in arguments)
    return Function(
        signature.text(1),
        list(map(_read_node, function.each(3))),
        None if several else [each.text(1) for each in arguments],
        {each.text(1) for each in function.each(5)},
    )

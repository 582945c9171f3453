"""TensorFlow's SavedModel: a folder with ``saved_model.pb``, variables and assets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xverify import reading
from xverify.errors import Failed, SubjectError, Unsupported, UsageError, first_line
from xverify.formats import _savedmodel_graph as savedmodel_graph
from xverify.formats._protobuf import BYTES, VARINT, Damaged, fields, mapped
from xverify.formats._tensorflow import TensorFlowFile
from xverify.formats.tflite import choose
from xverify.framework.filenodes import Traced
from xverify.framework.modelfile import Change, Signature, Tensor, by_name, numpy_name
from xverify.results.precision import Precision, from_dtypes
from xverify.weights.stored import Stored

GRAPH = "saved_model.pb"
_PRODUCTS = (
    "Conv2D",
    "Conv3D",
    "DepthwiseConv2dNative",
    "Conv2DBackpropInput",
    "MatMul",
    "BatchMatMul",
    "BatchMatMulV2",
    "Einsum",
)


def graph(framework: Adapter, model: Served, example: tuple[Any, ...]) -> Any:
    """Call the signature."""
    return model.call


@dataclass(frozen=True)
class Served:
    """A signature of a SavedModel that was loaded.

    call: function of tensors in the order of the inputs, which returns outputs by name.
    loader: "tf2", or "tf1" for a model that only TensorFlow 1's loader can load.
    owner: the loaded object, which has to live as long as its functions.
    function: the signature's function of TensorFlow 2, or the graph of a session of TensorFlow 1.
    """

    call: Any
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    chosen: str
    others: tuple[str, ...]
    loader: str
    owner: Any
    function: Any

    @property
    def variables(self) -> Any:
        """The variables that the signature uses."""
        return self.function.variables


class Adapter(TensorFlowFile):
    name = "savedmodel"
    title = "TensorFlow SavedModel"
    modes = {"graph": graph}
    implicit_mode = "graph"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return path.is_dir() and (path / GRAPH).is_file()

    @classmethod
    def describe_risk(cls, path: Path) -> str:
        try:
            return savedmodel_graph.risk(mapped(path / GRAPH))
        except Damaged as error:
            return f"its graph cannot be looked through: {error}"

    @classmethod
    def check(cls, path: Path) -> None:
        data = mapped(path / GRAPH)
        try:
            kinds = {(field.number, field.kind) for field in fields(data, 0, len(data))}
            assets = savedmodel_graph.asset_names(data)
        except Damaged as error:
            raise UsageError(f"{path.name}: {GRAPH} of this SavedModel is damaged or truncated: {error}") from None
        if (2, BYTES) not in kinds or not kinds <= {(1, VARINT), (2, BYTES)}:
            raise UsageError(f"{path.name}: {GRAPH} holds no graph of a SavedModel")
        folder = path.resolve()
        for name in assets:
            if "\0" in name or not (folder / "assets" / name).resolve().is_relative_to(folder):
                raise UsageError(
                    f"{path.name}: its asset {name!r} lies outside of the folder, and such a SavedModel is never opened"
                )
        for file in path.rglob("*"):
            if not file.is_dir() or file.parent.name == "variables":  # in which there are files alone
                reading.present(file)
            if not file.resolve().is_relative_to(folder):
                raise UsageError(
                    f"{path.name}: {file.relative_to(path)} is a link that leads out of the folder, "
                    "and such a SavedModel is never opened"
                )

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Served:
        if float64:
            raise Unsupported("a graph of TensorFlow computes in the precision of the file")
        wanted = options.get("signature")
        try:
            loaded = self.tf.saved_model.load(str(path))
        except (MemoryError, SubjectError):
            raise
        except Exception as first:
            # Keras 2 saved the state of its optimizers in a way that TensorFlow 2 can load only together with Keras 2.
            try:
                return self._load_tf1(path, wanted)
            except (MemoryError, SubjectError):
                raise
            except Exception as second:
                raise Failed(f"{first_line(first)}; and with TensorFlow 1's loader: {first_line(second)}") from second
        if not loaded.signatures:
            raise Failed(
                "it has no signatures; save it with tf.saved_model.save(..., signatures=...) or model.export(...)"
            )
        return self._tf2(loaded, wanted)

    def _tf2(self, loaded: Any, wanted: str | None) -> Served:
        known = list(loaded.signatures)
        chosen = choose(known, wanted)
        function = loaded.signatures[chosen]
        specs = function.structured_input_signature[1]
        names = list(specs)

        def call(*inputs: Any) -> Any:
            return function(**dict(zip(names, inputs)))

        inputs = tuple(_tensor(name, specs[name]) for name in names)
        outputs = tuple(_tensor(name, spec) for name, spec in function.structured_outputs.items())
        return Served(call, inputs, outputs, chosen, _without(known, chosen), "tf2", loaded, function)

    def _load_tf1(self, path: Path, wanted: str | None) -> Served:
        """Load a signature into a session of TensorFlow 1, which reads the graph and its variables and nothing else."""
        v1 = self.tf.compat.v1
        session = v1.Session(
            graph=self.tf.Graph(),
            config=v1.ConfigProto(intra_op_parallelism_threads=self.threads, inter_op_parallelism_threads=self.threads),
        )
        with session.graph.as_default():
            definition = v1.saved_model.load(session, [v1.saved_model.tag_constants.SERVING], str(path))
        signatures = {
            name: signature
            for name, signature in definition.signature_def.items()
            if signature.outputs and not name.startswith("__saved_model")
        }
        chosen = choose(list(signatures), wanted)
        if not chosen:
            raise Failed("it has no signatures")
        inputs = sorted(signatures[chosen].inputs.items())
        outputs = sorted(signatures[chosen].outputs.items())
        run = session.make_callable([info.name for _, info in outputs], feed_list=[info.name for _, info in inputs])

        def call(*values: Any) -> Any:
            found = run(*(value.numpy() for value in values))
            return {name: array for (name, _), array in zip(outputs, found)}

        return Served(
            call,
            tuple(self._info(name, info) for name, info in inputs),
            tuple(self._info(name, info) for name, info in outputs),
            chosen,
            _without(list(signatures), chosen),
            "tf1",
            session,
            session.graph,
        )

    def _info(self, name: str, info: Any) -> Tensor:
        """A tensor of a signature of TensorFlow 1."""
        spec = self.tf.TensorSpec(self.tf.TensorShape(info.tensor_shape), self.tf.dtypes.as_dtype(info.dtype))
        return _tensor(name, spec)

    def with_weights(self, model: Served, change: Change, folder: Path) -> Served | None:
        if model.loader != "tf2":
            return None
        variables = {each.name: each for each in model.owner.signatures[model.chosen].variables}
        return model if self.change_weights(variables, change) else None

    def stored(self, model: Served) -> Stored:
        if model.loader == "tf1":
            raise Unsupported("a SavedModel that only TensorFlow 1's loader reads does not show its weights")
        variables = model.owner.signatures[model.chosen].variables
        return by_name({variable.name.removesuffix(":0"): variable.numpy() for variable in variables})

    def forward(self, model: Served) -> Any:
        if model.loader == "tf1":
            raise Unsupported(
                "a SavedModel that only TensorFlow 1's loader reads is not converted; save it with TensorFlow 2"
            )
        return model.call

    def signature(self, model: Served) -> Signature:
        return Signature(model.inputs, model.outputs, model.chosen, model.others)

    def random_operators(self, model: Served) -> list[str]:
        graph = model.function if isinstance(model.function, self.tf.Graph) else model.function.graph
        definition = graph.as_graph_def()
        nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
        return [f"{node.name} ({node.op})" for node in nodes if "Random" in node.op or node.op == "Multinomial"]

    def traced(self, model: Served, inputs: Mapping[str, Any]) -> Traced:
        from xverify.formats._savedmodel_nodes import traced

        return traced(self, model, inputs)

    def precision(self, model: Served) -> Precision:
        is_graph = isinstance(model.function, self.tf.Graph)
        graph = model.function if is_graph else model.function.graph
        variables = graph.get_collection("variables") if is_graph else model.function.variables
        kinds = set(_products(graph.as_graph_def()))
        names = {numpy_name(self.tf.dtypes.as_dtype(kind).name) for kind in kinds}
        # The precision of the arithmetic is known when all products have the same one.
        return from_dtypes(_sizes(variables), names.pop() if len(names) == 1 else "")


def _without(names: list[str], chosen: str) -> tuple[str, ...]:
    return tuple(name for name in names if name not in (chosen, "__saved_model_init_op"))


def _tensor(name: str, spec: Any) -> Tensor:
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    return Tensor(name, shape, numpy_name(spec.dtype.name))


def _sizes(variables: Any) -> Mapping[str, int]:
    """dtype -> number of values of the variables."""
    sizes: Counter[str] = Counter()
    for variable in variables:
        sizes[numpy_name(variable.dtype.base_dtype.name)] += int(variable.shape.num_elements() or 0)
    return sizes


def _products(definition: Any) -> Iterator[int]:
    """The dtype, as TensorFlow numbers them, of every operator of a graph and its functions that sums products."""
    functions = [function.node_def for function in definition.library.function]
    for nodes in (definition.node, *functions):
        yield from (node.attr["T"].type for node in nodes if node.op in _PRODUCTS)

"""The requirements on every adapter, checked on the real framework in a separate process."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xverify import frameworks as own_frameworks
from xverify import host
from xverify.environments import store as environments
from xverify.errors import Failed, Unsupported
from xverify.framework import discovery as frameworks
from xverify.messages import Block, GraphCount, Load, Prepare, Save
from xverify.messages.reference import Evaluate, Export
from xverify.processes.command import interpreter
from xverify.processes.worker import Worker
from xverify.reference.build import build_question
from xverify.weights import digest, npz
from xverify.workload import probe
from xverify.workload.keys import case_key
from xverify.workload.spec import find_model, load_folder

pytestmark = pytest.mark.slow

# An adapter whose model is a file that is no code runs no model of the zoo.
REAL = [
    name for name, adapter in frameworks.load_all().items() if adapter.suffix == ".py" and not host.missing(adapter)
]
# They run in an environment of their own, where there is one.
APART = [name for name in ("executorch", "flax", "jax", "keras-jax", "mlx", "onnxruntime-web") if name not in REAL]


def apart(name):
    """The name of a framework as a parameter, which is skipped where its environment does not exist."""
    adapter = frameworks.load(name)
    absent = environments.chosen(adapter) is None
    reason = f"{name} is not installed; type: {environments.remedy(adapter)}"
    return pytest.param(name, marks=pytest.mark.skipif(absent, reason=reason))


# numpy has no file for the model of all layer kinds; ONNX Runtime's shapes are fixed by the export.
RESHAPED = [*(name for name in REAL if name in ("torch", "jittor", "tensorflow")), apart("flax"), apart("mlx")]
# Modes that make graphs, and must report their number.
COUNTED = {
    "torch": {"compile"},
    "tensorflow": {"graph", "xla", "while"},
    "flax": {"jit"},
    "jax": {"jit"},
    "keras-jax": {"jit"},
    "paddle": {"static"},
    "mlx": {"compile"},
}
# Modes that may compute in a lower precision than float32.
ROUNDS = {("openvino", "default")}
# The adapters of xverify itself, without those that XVERIFY_FRAMEWORKS adds.
OWN = {path.parent.name.replace("_", "-") for path in Path(own_frameworks.__path__[0]).glob("*/adapter.py")}
NO_FLOAT64 = (
    "onnxruntime",
    "onnxruntime-web",
    "keras-torch",
    "keras-jax",
    "openvino",
    "litert",
    "mlx",
    "executorch",
)  # they refuse to compute in it
MLP = find_model("mlp")
KINDS = load_folder(Path(__file__).parent.parent / "ports" / "kinds")


def start(name, folder, timeout=1800):
    folder.mkdir(exist_ok=True)
    adapter = frameworks.load(name)
    worker = Worker(adapter, interpreter(adapter), folder, threads=2, device="cpu", timeout=timeout)
    worker.started = worker.start()
    return worker


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """The MLP's ONNX export, with placeholder weights."""
    space = tmp_path_factory.mktemp("export")
    worker = start("torch", space)
    worker.ask(build_question(MLP, "torch", None))
    npz.save_file(probe.inputs(MLP.spec, 4, seed=0, cases=1), space / "inputs.npz")
    worker.ask(Export(str(space / "inputs.npz"), str(space / "model.onnx")))
    worker.close()
    return space / "model.onnx"


@pytest.fixture(scope="module", params=[*REAL, *map(apart, APART)])
def mlp(request, tmp_path_factory, export):
    """A live worker of each framework with the MLP built."""
    worker = start(request.param, tmp_path_factory.mktemp(request.param))
    shapes = worker.ask(build_question(MLP, worker.adapter.reads(), export)).shapes
    assert shapes == {"fc1.weight": (512, 784), "fc1.bias": (512,), "fc2.weight": (10, 512), "fc2.bias": (10,)}
    worker.shapes = shapes
    yield worker
    worker.close()


def load(worker, arrays):
    path = worker.folder / "weights.npz"
    npz.save_file(arrays, path)
    return worker.ask(Load(str(path)))


def outputs(worker, inputs, calls=3):
    npz.save_file(inputs, worker.folder / "inputs.npz")
    worker.ask(Prepare(str(worker.folder / "inputs.npz"), next(iter(worker.adapter.modes))))
    worker.ask(Block(0, calls, keep=str(worker.folder / "outputs.npz")))
    return npz.load_file(worker.folder / "outputs.npz")


def test_weights_are_read_back_bit_for_bit(mlp):
    for seed in (1, 2):
        arrays = probe.weights(mlp.shapes, seed)
        # Values that are easily lost: negative zero, subnormal numbers, the ends of the range.
        arrays["fc1.bias"][:6] = [0.0, -0.0, 1e-45, -1e-40, 3.4e38, -1.17549435e-38]
        assert load(mlp, arrays) == digest(arrays)
        mlp.ask(Save(str(mlp.folder / "saved.npz")))
        assert digest(npz.load_file(mlp.folder / "saved.npz")) == digest(arrays)


def test_the_loaded_weights_are_the_ones_that_compute(mlp):
    inputs = probe.inputs(MLP.spec, 4, seed=0, cases=1)
    x = inputs["0/x"].astype(np.float64)
    for seed in (1, 2):
        w = probe.weights(mlp.shapes, seed)
        load(mlp, w)
        y = outputs(mlp, inputs)[case_key(0, "logits")]
        right = (
            np.maximum(x @ w["fc1.weight"].T.astype(np.float64) + w["fc1.bias"], 0) @ w["fc2.weight"].T + w["fc2.bias"]
        )
        assert y.dtype == np.float32
        assert y.shape == (4, 10)
        assert np.abs(y - right).max() < 1e-4


def test_weights_that_do_not_fit_are_refused_and_not_loaded(mlp):
    arrays = probe.weights(mlp.shapes, 1)
    before = load(mlp, arrays)
    for change, says in (
        (lambda w: w.pop("fc2.bias"), "1 missing"),
        (lambda w: w.update(fc3=np.zeros(3, np.float32)), "1 unexpected"),
        (lambda w: w.update({"fc1.weight": w["fc1.weight"].T.copy()}), "1 of another shape"),
    ):
        broken = dict(arrays)
        change(broken)
        with pytest.raises(Failed, match=says):
            load(mlp, broken)
    assert load(mlp, arrays) == before


def test_a_float64_model_computes_in_float64_or_is_refused(mlp):
    arrays, inputs = probe.weights(mlp.shapes, 1), probe.inputs(MLP.spec, 4, seed=0, cases=2)
    npz.save_file(arrays, mlp.folder / "weights.npz")
    npz.save_file(inputs, mlp.folder / "inputs.npz")
    target = mlp.folder / "outputs.npz"
    arguments = {
        "inputs": str(mlp.folder / "inputs.npz"),
        "weights": str(mlp.folder / "weights.npz"),
        "path": str(target),
    }
    try:
        mlp.ask(Evaluate(**arguments, float64=True))
    except Unsupported:
        assert mlp.adapter.name in NO_FLOAT64 or mlp.adapter.name not in OWN  # one from elsewhere may refuse it, too
        return
    found = npz.load_file(target)
    x = inputs["1/x"].astype(np.float64)
    w = {name: array.astype(np.float64) for name, array in arrays.items()}
    right = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0) @ w["fc2.weight"].T + w["fc2.bias"]
    assert found["1/logits"].dtype == np.float64
    assert np.abs(found["1/logits"] - right).max() < 1e-12
    mlp.ask(Evaluate(**arguments, float64=False))
    assert npz.load_file(target)["1/logits"].dtype == np.float32


def test_every_mode_runs_and_agrees(mlp):
    arrays, inputs = probe.weights(mlp.shapes, 3), probe.inputs(MLP.spec, 4, seed=0, cases=2)
    load(mlp, arrays)
    npz.save_file(inputs, mlp.folder / "inputs.npz")
    results = []
    for mode in mlp.adapter.modes:
        if (mlp.adapter.name, mode) in ROUNDS:
            continue
        mlp.ask(Prepare(str(mlp.folder / "inputs.npz"), mode))
        for case in range(2):
            mlp.ask(Block(case, 2, keep=str(mlp.folder / "outputs.npz")))
            results.append(npz.load_file(mlp.folder / "outputs.npz")[case_key(case, "logits")])
    assert np.abs(results[0] - results[1]).max() > 0.1
    for case in range(2):
        for other in results[case::2]:
            assert np.allclose(results[case], other, atol=1e-5)


def test_an_additional_graph_is_counted(mlp):
    inputs = probe.inputs(MLP.spec, 4, seed=0, cases=2)
    inputs["1/x"] = inputs["1/x"][:3]  # another shape needs another graph
    npz.save_file(inputs, mlp.folder / "inputs.npz")
    counted = set()
    for mode in mlp.adapter.modes:
        mlp.ask(Prepare(str(mlp.folder / "inputs.npz"), mode))
        made = mlp.ask(GraphCount())
        if made is None:
            continue
        counted.add(mode)
        assert made >= 1
        mlp.ask(Block(case=0, calls=2))
        assert mlp.ask(GraphCount()) == made
        mlp.ask(Block(case=1, calls=1))
        assert mlp.ask(GraphCount()) > made
    assert counted >= COUNTED.get(mlp.adapter.name, set())


def test_the_environment_names_the_version(mlp):
    environment = mlp.started.environment
    place = environments.chosen(mlp.adapter)
    version = place.version(mlp.adapter) if place else host.version(mlp.adapter)
    assert environment[mlp.adapter.name] == version


@pytest.fixture(scope="module", params=RESHAPED)
def kinds(request, tmp_path_factory):
    worker = start(request.param, tmp_path_factory.mktemp(request.param))
    yield worker
    worker.close()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(width=st.integers(1, 9), kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)), seed=st.integers(0, 1000))
def test_round_trip_of_every_kind_of_layer_at_any_size(kinds, width, kernel, seed):
    request = build_question(KINDS, kinds.adapter.reads(), None)
    shapes = kinds.ask(replace(request, options={"width": width, "kernel": kernel})).shapes
    assert shapes["0.weight"] == (width, 3, *kernel)
    assert len(shapes) == 8
    arrays = probe.weights(shapes, seed)
    assert load(kinds, arrays) == digest(arrays)
    kinds.ask(Save(str(kinds.folder / "saved.npz")))
    assert digest(npz.load_file(kinds.folder / "saved.npz")) == digest(arrays)

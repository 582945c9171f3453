import pytest
from conftest import SPEC, write_folder

from xverify import ModelSpec, TensorSpec
from xverify.errors import SpecError, UsageError
from xverify.reference.request import resolve
from xverify.workload.options import RunSettings
from xverify.workload.spec import find_model, load_folder, load_module


def test_a_shape_is_filled_with_the_batch_size():
    assert TensorSpec(("N", 3, 8)).sized(5) == (5, 3, 8)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"shape": ("N", 0)}, "positive"),
        ({"shape": ("batch", 3)}, "'batch'"),
        ({"shape": ("N", 3), "low": 1.0}, "both low and high"),
        ({"shape": ("N", 3), "low": 2, "high": 2}, "not below"),
        ({"shape": ("N", 3), "layout": "NCHW"}, "names 4 axes"),
    ],
)
def test_a_contradictory_tensor_spec_is_refused(arguments, says):
    with pytest.raises(SpecError, match=says):
        TensorSpec(**arguments)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({}, "empty"),
        ({"x": (4, 8)}, "write TensorSpec"),
        ({"x": TensorSpec(("N",), dtype="int64")}, "low and high"),
        ({"x": TensorSpec((4, 8))}, "batch axis"),
    ],
)
def test_a_contradictory_model_spec_is_refused(inputs, says):
    with pytest.raises(SpecError, match=says):
        ModelSpec(inputs=inputs, outputs={"y": TensorSpec(("N", 3))})


NODES, CLASSES = TensorSpec((30, 6)), TensorSpec((30, 4))


def test_without_a_batch_an_item_is_the_whole_input():
    spec = ModelSpec(inputs={"nodes": NODES}, outputs={"classes": CLASSES}, batch=None)
    assert (spec.batch, spec.items) == (None, 1)
    assert NODES.sized(spec.items) == (30, 6)


@pytest.mark.parametrize("field", ["inputs", "outputs", "targets"])
def test_without_a_batch_no_tensor_has_a_batch_axis(field):
    given = {"inputs": {"nodes": NODES}, "outputs": {"classes": CLASSES}, "targets": {"label": CLASSES}, "loss": "mse"}
    name = next(iter(given[field]))
    with pytest.raises(SpecError, match=rf"{field}\['{name}'\] has the batch axis 'N': write a number"):
        ModelSpec(**{**given, field: {name: TensorSpec(("N", 4))}}, batch=None)


def test_without_a_batch_no_other_batch_size_is_taken(tmp_path):
    spec = SPEC.replace("batch=4", "batch=None").replace('"N"', "3")
    folder = write_folder(tmp_path / "graph", spec=spec)
    with pytest.raises(UsageError, match=r"--batch 4: .*spec\.py has batch=None"):
        resolve(folder, ["numpy"], RunSettings(batch=4))
    assert resolve(folder, ["numpy"], RunSettings(batch=1))[0].batch == 1


def test_a_target_may_have_the_name_of_its_output_but_not_of_an_input():
    tensors = {"inputs": {"x": TensorSpec(("N", 3))}, "outputs": {"y": TensorSpec(("N", 3))}}
    ModelSpec(**tensors, targets={"y": TensorSpec(("N", 3))}, loss="mse")
    with pytest.raises(SpecError, match="has the name of an input"):
        ModelSpec(**tensors, targets={"x": TensorSpec(("N", 3))}, loss="mse")


def test_for_a_misspelt_argument_the_nearest_is_suggested():
    with pytest.raises(SpecError, match="TensorSpec takes no 'dtyp'; did you mean 'dtype'"):
        TensorSpec(("N", 3), dtyp="int64")
    with pytest.raises(SpecError, match="ModelSpec takes no 'bach'; did you mean 'batch'"):
        ModelSpec(inputs={"x": TensorSpec(("N", 3))}, outputs={"y": TensorSpec(("N", 3))}, bach=4)


def test_for_an_unknown_model_the_nearest_name_is_suggested():
    with pytest.raises(UsageError, match="did you mean 'resnet50'"):
        find_model("resnet5O")


def test_a_path_that_does_not_exist_is_reported_as_a_folder():
    with pytest.raises(UsageError, match="no such folder"):
        find_model("./nowhere")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("SPEC = 3", "found int"),
        ("", "found NoneType"),
        ("import nonsense_module", r"spec\.py:1: ModuleNotFoundError"),
        ("SPEC = (", r"spec\.py:1: SyntaxError"),
        ("\n\nraise ValueError('no')", r"spec\.py:3: ValueError: no"),
        (SPEC.replace('("N", 8)', '("N", -8)'), "positive"),
        (SPEC.replace("batch=4", 'batch=4, code="../gone"'), "gone"),
    ],
)
def test_a_broken_spec_is_named_with_its_place(tmp_path, source, says):
    folder = write_folder(tmp_path / "port", spec=source)
    with pytest.raises(SpecError, match=says):
        load_folder(folder)


def test_a_folder_without_a_spec(tmp_path):
    with pytest.raises(SpecError, match=r"has no spec\.py"):
        load_folder(tmp_path)


def test_a_variant_uses_the_files_of_another_folder(tmp_path):
    write_folder(tmp_path / "whole")
    variant = write_folder(
        tmp_path / "variant", frameworks=(), spec=SPEC.replace("batch=4", 'batch=2, code="../whole"')
    )
    assert load_folder(variant).file("numpy") == (tmp_path / "whole" / "numpy.py").resolve()


@pytest.mark.parametrize(
    ("build", "takes"),
    [
        ("def build(depth, loop='unrolled'):\n    return depth", True),
        ("def build(*, loop):\n    return loop", True),
        ("def build(**options):\n    return options", True),
        ("def build(depth=3):\n    return depth", False),
        ("from .common import build", True),  # unknown without importing it
        ("def build(", True),
    ],
)
def test_the_parameters_of_build_are_read_without_importing_the_file(tmp_path, build, takes):
    folder = write_folder(tmp_path / "port", model=f"import no_such_framework\n{build}\n")
    assert load_folder(folder).takes("numpy", "loop") is takes


def test_a_model_file_named_like_its_framework_does_not_hide_it(tmp_path):
    (tmp_path / "common.py").write_text("answer = 42")
    (tmp_path / "json.py").write_text("import json\nfrom .common import answer\ntext = json.dumps(answer)")
    assert load_module(tmp_path, "json").text == "42"


def test_names_toml_must_hold_names(tmp_path):
    folder = write_folder(tmp_path / "port")
    (folder / "names.toml").write_text('[numpy]\n"fc1" = 3')
    with pytest.raises(SpecError, match="takes lines of the form"):
        load_folder(folder).names("numpy")
    (folder / "names.toml").write_text("[numpy\n")
    with pytest.raises(SpecError, match=r"names\.toml"):
        load_folder(folder).names("numpy")


def test_folded_layers_are_read_from_names_toml(tmp_path):
    folder = write_folder(tmp_path / "port")
    assert (load_folder(folder).folded("numpy"), load_folder(folder).folds()) == ((), False)
    (folder / "names.toml").write_text('[numpy]\nfolded = ["fc1", "blocks"]\n"fc2" = "head"')
    found = load_folder(folder)
    assert (found.folded("numpy"), found.folded("jax"), found.folds()) == (("fc1", "blocks"), (), True)
    assert found.names("numpy") == {"fc2": "head"}
    for wrong in ('"fc1"', "[1]", "true"):
        (folder / "names.toml").write_text(f"[numpy]\nfolded = {wrong}")
        with pytest.raises(SpecError, match=r"\[numpy\] folded takes a list of layers, such as"):
            load_folder(folder).folded("numpy")


def test_the_digest_of_a_folder_changes_with_its_files(port):
    before = load_folder(port).digest()
    (port / "numpy.py").write_text("# another")
    assert load_folder(port).digest() != before

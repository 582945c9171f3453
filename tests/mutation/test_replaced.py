"""Faults that are planted in ports of other frameworks than torch, from the command line."""

import pytest
from test_mutation import MODEL, SPEC

from xverify import host
from xverify.environments import store as environments
from xverify.framework.discovery import load

pytestmark = pytest.mark.slow

KERAS = """
from keras import Input, Model, layers


def build():
    x = image = Input((8, 8, 3), name="x")
    x = layers.Conv2D(8, 3, padding="same", use_bias=False, name="conv")(x)
    x = layers.BatchNormalization(epsilon=1e-5, name="bn")(x)
    x = layers.ReLU(name="relu")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Flatten(name="flatten")(x)
    return Model(image, layers.Dense(5, name="fc")(x))
"""


def runs(subject, *marks):
    """Skips a test where a framework is not installed. marks: further ones of the test."""
    adapter = load(subject.partition(":")[0])
    absent = host.missing(adapter) and environments.chosen(adapter) is None
    skipped = pytest.mark.skipif(bool(absent), reason=f"{subject} is not installed")
    return pytest.param(subject, marks=[skipped, *marks])


def port(folder, **files):
    folder.mkdir()
    for name, text in {"spec": SPEC, "torch": MODEL, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def right(score, least):
    """Assert that every visible fault was caught in its place. least: the number of faults that have to be planted."""
    assert (score["missed"], score["false_alarms"], score["not_planted"]) == (0, [], [])
    assert score["planted"] >= least
    assert score["layer_named"] == score["caught"]
    assert score["explained"] >= 0.9 * score["caught"]
    assert score["clean_runs"] >= 5


@pytest.mark.long
def test_a_fault_in_what_a_layer_returns_is_judged_as_one_in_the_layer_itself(scored, tmp_path):
    folder = port(tmp_path / "port", torch_port=MODEL)
    _, (own, replaced) = scored(folder, "torch:eager,torch_port:eager", "--quiet")
    right(replaced, 15)
    for one, other in zip(own["trials"], replaced["trials"]):
        assert [one[key] for key in ("kind", "layer", "visible", "verdict", "found", "explained")] == [
            other[key] for key in ("kind", "layer", "visible", "verdict", "found", "explained")
        ]


@pytest.mark.long
def test_faults_are_planted_in_a_port_with_the_channels_last(scored, tmp_path):
    _, (score,) = scored(port(tmp_path / "port", tensorflow=KERAS), "tensorflow:eager", "--quiet")
    right(score, 15)
    assert {"conv", "bn", "fc"} <= {trial["layer"] for trial in score["trials"]}


@pytest.mark.parametrize(
    "framework",
    [
        *(runs(name) for name in ("flax", "paddle", "mlx", "keras-jax")),
        *(runs(name, pytest.mark.long) for name in ("jittor", "keras-torch")),
    ],
)
def test_faults_are_planted_in_ports_of_every_framework(scored, framework):
    _, (score,) = scored("mlp", framework, "--quiet")
    right(score, 5)


def test_a_layer_that_ends_in_an_activation_gets_no_fault(scored, tmp_path):
    fused = KERAS.replace('layers.Dense(5, name="fc")', 'layers.Dense(5, activation="tanh", name="fc")')
    tanh = MODEL.replace("return self.fc(x)", "return torch.tanh(self.fc(x))")
    done, (score,) = scored(port(tmp_path / "port", torch=tanh, tensorflow=fused), "tensorflow:eager")
    assert not {"fc"} & {trial["layer"] for trial in score["trials"]}
    assert any("in fc: the layer of the port computes something else" in text for text in score["not_planted"])
    assert "not planted port, tensorflow:eager" in done.out


def test_a_framework_without_layers_says_so(xverify):
    done = xverify("mutate", "mlp", "--subjects", "numpy")
    assert done.code == 3
    assert "no layer of numpy can be captured, so no fault can be planted in one; --task train plants" in done.err


def test_an_unknown_port_is_refused(xverify):
    done = xverify("mutate", "mlp", "--subjects", "tensorlow")
    assert done.code == 2
    assert "did you mean 'tensorflow'" in done.err


@pytest.mark.parametrize(
    "framework", [runs(name) for name in ("flax", "jax", "paddle", "mlx", "keras-jax", "keras-torch", "jittor")]
)
@pytest.mark.long
def test_mistakes_of_training_code_are_made_in_every_framework(scored, framework):
    _, (score,) = scored("mlp", framework, "--task", "train", "--quiet")
    assert score["planted"] == score["caught"] == score["layer_named"] == score["explained"] >= 9
    assert score["false_alarms"] == []
    assert score["clean_runs"] >= 12

"""What frameworks' errors say in the reason of a row: the cause, and the line of the user's code."""

import pytest
from conftest import MODEL, write_folder

from xverify.worker.reasons import LONGEST, described, place, reason

KERAS = """Exception encountered when calling Net.call().

\x1b[1mDimensions must be equal, but are 3 and 5 for '{{node add}}'.\x1b[0m

Arguments received by Net.call():
  • x=tf.Tensor(shape=(4, 8), dtype=float32)"""
USER_CODE = """in user code:

    File "/usr/lib/python3/site-packages/xverify/frameworks/keras/base.py", line 58, in None  *
        lambda *inputs: model(*inputs)
    File "{folder}/tensorflow.py", line 12, in call  *
        return self.fc(x) + ops.ones((1, 7))
    File "/usr/lib/python3/site-packages/keras/src/ops/numpy.py", line 291, in add  **
        return backend.numpy.add(x1, x2)

    ValueError: {message}
"""
TORCHSCRIPT = """The following operation failed in the TorchScript interpreter.
Traceback of TorchScript (most recent call last):
  File "{folder}/torch.py", line 9, in forward
    def forward(self, x):
        return x @ self.w
               ~~~~~~~~~~ <--- HERE
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x4)
"""
INFERENCE = """Could not automatically infer the output shape / dtype of 'net' (of type Net). Error encountered:

'NoneType' object is not callable"""
JITTOR = """Execute fused operator(1/3) failed.
[Input]: [4,8,],
Reason: [f 1122 20:54:44.123456 96 broadcast_to_op.cc:52] Check failed: xdim == ydim  Something wrong ...
more lines"""
NODE = """Graph execution error:

Detected at node MatMul defined at (most recent call last):
  File "{folder}/tensorflow.py", line 7, in call
  File "/usr/lib/python3/site-packages/keras/src/layers/layer.py", line 3, in __call__

Matrix size-incompatible: In[0]: [4,8], In[1]: [9,4]
\t [[{{{{node MatMul}}}}]] [Op:__inference_f_1]"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("one line", "ValueError: one line"),
        ("", "ValueError"),
        ("first\nsecond", "ValueError: first"),
        ("Error(s) in loading Net:\n\tMissing: fc.bias", "ValueError: Error(s) in loading Net: Missing: fc.bias"),
        (KERAS, "ValueError: Dimensions must be equal, but are 3 and 5 for '{{node add}}'."),
        (USER_CODE.format(folder="/m", message="shapes differ"), "ValueError: shapes differ"),
        (USER_CODE.format(folder="/m", message=KERAS), "ValueError: Dimensions must be equal, but are 3 and 5 for '{{node add}}'."),
        (TORCHSCRIPT.format(folder="/m"), "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 9x4)"),
        (INFERENCE, "ValueError: 'NoneType' object is not callable"),
        (JITTOR, "ValueError: Check failed: xdim == ydim  Something wrong ..."),
        (NODE.format(folder="/m"), "ValueError: Matrix size-incompatible: In[0]: [4,8], In[1]: [9,4]"),
        ("{{function_node __wrapped__MatMul_device_/job:localhost}} size", "ValueError: size"),
        ("Exception encountered when calling Net.call().", "ValueError: Exception encountered when calling Net.call()."),
    ],
)  # fmt: skip
def test_the_cause_comes_after_what_frameworks_write_around_it(text, says):
    assert described(ValueError(text)) == says


def test_a_long_cause_is_cut():
    assert len(described(ValueError("x" * 5000))) == len("ValueError:  ...") + LONGEST


@pytest.mark.parametrize(("text", "line"), [(USER_CODE, 12), (TORCHSCRIPT, 9), (NODE, 7)])
def test_the_place_in_the_text_of_an_error_is_the_users(tmp_path, text, line):
    file = tmp_path / ("torch.py" if text is TORCHSCRIPT else "tensorflow.py")
    assert place(ValueError(text.format(folder=tmp_path, message="m")), tmp_path) == f" ({file}:{line})"


def raised(code, file):
    try:
        exec(compile(code, str(file), "exec"), {})
    except Exception as error:
        return error
    raise AssertionError("no error")


def test_the_innermost_line_of_the_users_code_is_named(tmp_path):
    error = raised("import json\n\njson.loads('{')\n", tmp_path / "torch.py")
    assert place(error, tmp_path) == f" ({tmp_path / 'torch.py'}:3)"
    # A file beside the folder is the user's, too; what is installed is not.
    assert place(raised("\n1 / 0", tmp_path / "other.py"), tmp_path / "folder") == f" ({tmp_path / 'other.py'}:2)"
    assert (
        place(raised("1 / 0", "/usr/lib/python3/site-packages/lib/a.py"), tmp_path) == f" ({__file__}:{raised_line()})"
    )


def raised_line():
    """The line of this file that runs the code."""
    return raised.__code__.co_firstlineno + 2


def test_what_an_error_was_raised_from_is_told_once(tmp_path):
    code = "try:\n    {}['depth']\nexcept KeyError as error:\n    raise RuntimeError('cannot build') from error\n"
    error = raised(code, tmp_path / "torch.py")
    assert (
        reason(error, tmp_path)
        == f"RuntimeError: cannot build, caused by KeyError: 'depth' ({tmp_path / 'torch.py'}:4)"
    )
    error = raised(code.replace("'cannot build'", "str(error)"), tmp_path / "torch.py")
    assert reason(error, tmp_path) == f"RuntimeError: 'depth' ({tmp_path / 'torch.py'}:4)"


def test_a_syntax_error_is_named_with_its_line(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy",))
    write_folder(folder, ("honest",), model=MODEL.replace("return Net()", "return Net("))
    done = xverify("run", folder, "--subjects", "numpy,honest", "--warmup", 1, "--rerun", 4)
    line = MODEL.splitlines().index("    return Net()") + 1
    assert f"honest.py:{line})" in done.row("honest")["reason"]


NET = """
from keras import Model, layers, ops


class Net(Model):
    def __init__(self):
        super().__init__()
        self.fc1 = layers.Dense(6, activation="tanh", name="fc1")
        self.fc2 = layers.Dense(3, name="fc2")

    def call(self, x):
        x = self.fc2(self.fc1(x))
        if x.shape[0] == 4:
            x = ops.matmul(x, ops.ones((5, 2)))
        return x


def build():
    net = Net()
    net(ops.zeros((1, 8)))
    return net
"""


@pytest.mark.slow
def test_an_error_in_a_keras_model_keeps_its_cause_and_its_line(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    folder = write_folder(tmp_path / "port", ("numpy",))
    (folder / "tensorflow.py").write_text(NET)
    subjects = ("tensorflow:eager", "tensorflow:graph", "keras-torch")
    done = xverify("run", folder, "--subjects", ",".join(("numpy", *subjects)), "--warmup", 1, "--rerun", 4)
    line = NET.splitlines().index("            x = ops.matmul(x, ops.ones((5, 2)))") + 1
    for subject in subjects:
        said = done.row(subject)["reason"]
        assert said.endswith(f"({folder / 'tensorflow.py'}:{line})"), said
        assert "Exception encountered" not in said
        assert "in user code" not in said
        assert "4" in said, said
        assert "5" in said, said

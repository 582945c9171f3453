import importlib.util
import subprocess
import sys

import pytest

import xverify

FRAMEWORKS = (
    "torch",
    "jittor",
    "jittor_utils",
    "tensorflow",
    "keras",
    "onnx",
    "onnxruntime",
    "jax",
    "flax",
    "paddle",
    "mlx",
    "executorch",
)


@pytest.mark.parametrize(
    "statement", ["import xverify", "import xverify.commands._main as c; c.parser(); import xverify.engine.api"]
)
def test_importing_xverify_imports_no_framework(statement, tmp_path):
    code = f"{statement}\nimport sys\nprint([name for name in {FRAMEWORKS} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


def test_listing_and_reading_specs_imports_no_framework(tmp_path):
    code = (
        "import sys; from xverify.commands.list import catalogue; found = catalogue(); assert found['models']\n"
        f"print([name for name in {FRAMEWORKS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


FRAMEWORKS_AND_SCIPY = (*FRAMEWORKS, "scipy", "matplotlib", "plotext")


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--version"], ("numpy", "rich", "psutil", *FRAMEWORKS_AND_SCIPY)),
        (["--help"], ("numpy", "rich", "psutil", *FRAMEWORKS_AND_SCIPY)),
        (["run", "--help"], ("numpy", "rich", "psutil", *FRAMEWORKS_AND_SCIPY)),
        (["list"], ("psutil", *FRAMEWORKS_AND_SCIPY)),
        (["list", "--json"], ("psutil", "rich", *FRAMEWORKS_AND_SCIPY)),
        (["completion", "bash"], FRAMEWORKS_AND_SCIPY),
    ],
    ids=str,
)
def test_a_command_imports_only_what_it_uses(arguments, unwanted, tmp_path):
    code = f"""
import atexit, sys
from xverify.commands._main import main
atexit.register(lambda: print([name for name in {unwanted} if name in sys.modules], file=sys.stderr))
sys.exit(main({arguments}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr.strip() == "[]"


def test_the_printed_list_reads_no_model_file(monkeypatch, capsys):
    from xverify.commands._main import main
    from xverify.workload.spec import ModelFolder

    def reads(self, *arguments):
        raise AssertionError("the list prints nothing of this")

    monkeypatch.setattr(ModelFolder, "takes", reads)
    monkeypatch.setattr(ModelFolder, "digest", reads)
    assert main(["list"]) == 0
    assert "resnet50" in capsys.readouterr().out


def test_every_public_name_can_be_imported():
    for name in xverify.__all__:
        assert getattr(xverify, name) is not None
    with pytest.raises(AttributeError, match="no_such"):
        xverify.no_such  # noqa: B018


def test_torchvision_is_declared_once_for_several_adapters(tmp_path):
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    code = """
import torch
from xverify.framework import discovery as frameworks

def fails(path):
    raise OSError("no CUDA here")

torch.ops.load_library = fails
adapter = frameworks.load("torch")
adapter(1, "cpu")
adapter(1, "cpu")
import torchvision.models
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

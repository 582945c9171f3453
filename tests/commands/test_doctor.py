"""xverify doctor tries the import of torchvision by itself."""

import os

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "raise RuntimeError('operator torchvision::nms does not exist')",
            ["fails by itself: RuntimeError: operator torchvision::nms does not exist", "built for another torch"],
        ),
        ("import no_such_package", ["fails by itself: ModuleNotFoundError: No module named 'no_such_package'"]),
        ("", []),
    ],
    ids=["other torch", "missing package", "works"],
)
def test_an_import_of_torchvision_that_fails_by_itself_is_told(xverify, tmp_path, monkeypatch, code, says):
    (tmp_path / "installed" / "torchvision").mkdir(parents=True)
    (tmp_path / "installed" / "torchvision" / "__init__.py").write_text(code)
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path / "installed"), before])))
    done = xverify("doctor")
    assert all(each in done.out for each in says), done.out
    assert ("import torchvision" in done.out) == bool(says)
    assert ("built for another torch" in done.out) == (len(says) == 2)

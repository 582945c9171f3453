"""Several files of one framework: which ones run, how they are told apart, and what is refused. The framework is numpy."""

import json

import pytest
from conftest import MODEL, SPEC, TORCH_MODEL, write_folder

from xverify.errors import UsageError
from xverify.reference.request import resolve

pytestmark = pytest.mark.usefixtures("in_one_process")
WRONG = MODEL.replace('+ w["fc2.bias"]', '- w["fc2.bias"]')
OTHER_NAMES = MODEL.replace("fc1.", "first.")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, also of commands."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def folder(port, here):
    """A folder with two files of numpy."""
    (port / "numpy-plain.py").write_text(OTHER_NAMES)
    (port / "names.toml").write_text('[numpy-plain]\nfc1 = "first"\n[mine]\nfc1 = "first"\n')
    return port


def subjects(folder, *named):
    request, _ = resolve(folder, list(named) or None)
    return request.subjects


def test_variants_run_beside_the_file_of_the_framework(tmp_path):
    folder = write_folder(tmp_path / "port", ("torch", "torch-fused", "torch-b"), model=TORCH_MODEL)
    (folder / "convert-weights.py").write_text("def build():\n    return 1\n")  # of no framework, and nearly of none
    (folder / "pytorch-tools.py").write_text("tools = 1\n")  # builds nothing
    assert subjects(folder) == ("torch:eager", "torch-b:eager", "torch-fused:eager", "onnxruntime")


def test_a_variant_is_compared_with_its_own_names(xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,numpy-plain", "--no-timing")
    assert done.code == 0, done.err
    rows = {row["subject"]: row for row in done.result["rows"]}
    assert {name: (row["framework"], row["mode"]) for name, row in rows.items()} == {
        "numpy": ("numpy", "eager"),
        "numpy-plain": ("numpy", "eager"),
    }


def test_the_table_of_the_framework_is_none_of_a_variant(xverify, folder):
    (folder / "names.toml").write_text('[numpy]\nfc1 = "fc1"\n')
    done = xverify("run", folder, "--subjects", "numpy,numpy-plain", "--no-timing")
    assert done.code == 3
    assert 'under [numpy-plain], "fc1" = "first"' in " ".join(done.out.split())


def test_a_wrong_variant_is_found(xverify, folder):
    (folder / "numpy-plain.py").write_text(WRONG.replace("fc1.", "first."))
    done = xverify("run", folder, "--subjects", "numpy,numpy-plain", "--no-timing")
    assert done.code == 1
    assert "1 of 2 subjects EQUAL, 1 DIFFERENT" in done.out


@pytest.mark.parametrize(
    ("files", "named", "says"),
    [
        (("numpy", "nunpy-x"), (), r"nunpy-x\.py: 'nunpy' is no framework; did you mean 'numpy-x\.py'\?"),
        (("numpy", "numpy-a", "numpy-A"), (), r"numpy-A\.py and numpy-a\.py claim one name"),
        (("numpy", "onnxruntime-x"), (), r"onnxruntime-x\.py: onnxruntime runs exported models"),
        (
            ("numpy", "numpy-plain"),
            ("numpy", "numpy-plane"),
            r"has no numpy-plane\.py; did you mean 'numpy-plain\.py'\?",
        ),
        (
            ("numpy", "numpy-plain"),
            ("numpy-plain:egaer",),
            r"unknown mode 'egaer' of numpy-plain; did you mean 'eager'",
        ),
    ],
)
def test_wrong_names_are_refused(tmp_path, files, named, says):
    folder = write_folder(tmp_path / "port", files)
    with pytest.raises(UsageError, match=says):
        resolve(folder, list(named) or None)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("numpy=mine.py", r"numpy is the name of a framework .* e\.g\. port=numpy:mine\.py:build"),
        ("numpy-x=mine.py", r"numpy-x is the name of a framework .* e\.g\. port=numpy:mine\.py:build"),
        ("mine=mine.py,mine=other.py", r"--subjects mine=other\.py:build: another file has the name mine"),
        ("mine=gone.py", r"no such file: gone\.py"),
        ("mine=mine.py:bild", r"mine\.py has no 'bild'; did you mean 'build'"),
        ("mine=onnxruntime:mine.py", "onnxruntime runs exported models"),
        ("mine=nmpy:mine.py", "unknown framework 'nmpy'; did you mean 'numpy'"),
    ],
)
def test_wrong_files_elsewhere_are_refused(xverify, folder, here, named, says):
    for name in ("mine.py", "other.py"):
        (here / name).write_text(OTHER_NAMES)
    done = xverify("run", folder, "--subjects", f"numpy,{named}")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    with pytest.raises(UsageError, match=says):
        resolve(folder, ["numpy", *named.split(",")])


def test_a_file_elsewhere_alone_is_no_reference(folder, here):
    (here / "mine.py").write_text(OTHER_NAMES)
    with pytest.raises(UsageError, match="needs torch as its reference"):
        resolve(folder, ["mine=mine.py"])


def test_a_file_elsewhere_is_kept_by_result_and_receipt(xverify, folder, here):
    (here / "lib").mkdir()
    (here / "lib" / "half.py").write_text("def shown(x):\n    return x\n")
    code = "from half import shown\n" + OTHER_NAMES + "\n\ndef make():\n    return build()\n"
    (here / "lib" / "mine.py").write_text(code)
    run = ("run", folder, "--subjects", "numpy,mine=numpy:lib/mine.py:make", "--rerun", 3, "--warmup", 1)
    done = xverify(*run, "--json", "r.json", "--receipt", "kept")
    assert done.code == 0, done.err
    settings = json.loads((here / "r.json").read_text())["settings"]
    assert settings["subjects"] == ["numpy", "mine=numpy:lib/mine.py:make@eager"]
    assert list(settings["port_digests"]) == ["mine"]
    assert {path.name for path in (here / "kept" / "ports" / "mine").iterdir()} == {"half.py", "mine.py"}
    (here / "lib" / "half.py").write_text("def shown(x):\n    return x + 1\n")
    done = xverify(*run, "--effort", "standard", "--json", "r.json", "--resume")
    assert (done.code, "port_digests was" in done.err) == (2, True)
    (here / "lib").rename(here / "gone")
    done = xverify("replay", "kept", "--no-timing")
    assert done.code == 0, done.err
    assert "AGREES" in done.out


def test_a_receipt_does_not_keep_what_stands_in_another_folder(xverify, folder, here):
    (here / "lib").mkdir()
    (here / "helper.py").write_text("one = 1\n")
    (here / "lib" / "mine.py").write_text("from helper import one\n" + OTHER_NAMES)
    named = ("--subjects", "numpy,mine=numpy:lib/mine.py", "--no-timing")
    assert xverify("run", folder, *named).code == 0
    done = xverify("run", folder, *named, "--receipt", "kept")
    assert done.code == 2
    assert "helper.py, and a receipt keeps what is in the folder of a subject's file" in done.err


def test_a_file_that_uses_the_reference_is_told(here):
    folder = write_folder(here / "port", ("torch", "torch-own"), model=TORCH_MODEL)
    (folder / "blocks.py").write_text("WIDTH = 8\n")
    (folder / "torch-uses.py").write_text("from .torch import build\n")
    (folder / "torch-through.py").write_text("from .middle import build\n")
    (folder / "middle.py").write_text("from . import torch\n\n\ndef build():\n    return torch.build()\n")
    (here / "mine.py").write_text("import torch\nfrom port.torch import build\n")
    named = ["torch:eager", "torch-own", "torch-uses", "torch-through", "mine=mine.py", "onnxruntime"]
    told = [note for note in resolve(folder, named)[0].notes if "itself" in note]
    assert told == [
        f"{name} uses torch.py: what it takes from there is compared with itself"
        for name in ("torch-uses.py", "torch-through.py", "mine.py")
    ]
    (folder / "torch.py").write_text("from blocks import WIDTH\n" + TORCH_MODEL)
    (folder / "torch-own.py").write_text("from .blocks import WIDTH\n" + TORCH_MODEL)
    told = [note for note in resolve(folder, ["torch:eager", "torch-own"])[0].notes if "itself" in note]
    assert told == ["torch-own.py and torch.py both use blocks.py: what they take from there is compared with itself"]


def test_an_output_does_not_replace_a_file_that_a_subject_names(xverify, folder, here):
    (here / "mine.py").write_text(OTHER_NAMES)
    done = xverify(
        "run", folder, "--subjects", "numpy,mine=numpy:mine.py", "--no-timing", "--json", "mine.py", "--force"
    )
    assert done.code == 2
    assert "mine.py" in done.err
    assert (here / "mine.py").read_text() == OTHER_NAMES


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("None", "build returns None: end it with a return of the model"),
        ("(1, 'a')", "build returns a tuple (int, str): return the model alone"),
        ("Fraction", "build returns the class Fraction: return an object of it, Fraction(…)"),
        ("3.0", "build returns a value of type float, which is no model of numpy"),
    ],
)
@pytest.mark.parametrize("file", ["numpy-plain", "numpy"])
def test_a_value_that_is_no_model_is_bad_input(xverify, folder, file, value, says):
    (folder / f"{file}.py").write_text(f"from fractions import Fraction\ndef build():\n    return {value}\n")
    done = xverify("run", folder, "--subjects", file, "--no-timing")
    assert done.code == 2
    assert f"{folder / file}.py: {says}" in done.err


def test_a_sweep_finds_a_file_beside_its_own(xverify, folder, here):
    place = here / "below"
    place.mkdir()
    (place / "mine.py").write_text(OTHER_NAMES)
    text = f'[matrix]\nmodel = ["{folder}"]\nbatch = [2, 4]\n[settings]\nno_timing = true\n'
    text += 'subjects = ["numpy", "mine=numpy:mine.py"]\n'
    (place / "sweep.toml").write_text(text)
    done = xverify("sweep", place / "sweep.toml", "--results", "results")
    assert done.code == 0, done.err
    assert len(list((here / "results").glob("*.json"))) == 2
    assert xverify("sweep", place / "sweep.toml", "--results", "results").code == 0  # they are found again


def test_a_folder_with_a_spec_alone_names_it(tmp_path):
    (tmp_path / "port").mkdir()
    (tmp_path / "port" / "spec.py").write_text(SPEC)
    with pytest.raises(UsageError, match="nothing to run"):
        resolve(tmp_path / "port")

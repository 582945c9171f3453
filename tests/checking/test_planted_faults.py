"""Wrong conversions, caught by ``xverify check --against`` and described with their place; right ones draw no sentence."""

import json

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from conftest import cli
from helpers import plantedfaults as planted


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """Check all wrong files in one command, and all right ones in another."""

    def check(cases):
        folder = tmp_path_factory.mktemp("files")
        right = planted.write(folder / "right.onnx")
        files = [planted.write(folder / f"{name}.onnx", **arguments) for name, arguments in cases.items()]
        done = cli(folder, "check", *files, "--against", right, "--json", folder / "r.json", timeout=900)
        rows = json.loads((folder / "r.json").read_text())["rows"]
        return done, {(row["subject"].removesuffix(".onnx"), row["task"]): row for row in rows}

    return check


@pytest.fixture(scope="module")
def wrong(checked):
    return checked({name: arguments for name, (arguments, _) in planted.WRONG.items()})


@pytest.fixture(scope="module")
def right(checked):
    return checked(planted.RIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("name", planted.WRONG)
def test_a_wrong_conversion_is_caught_and_described_with_its_place(wrong, name):
    done, rows = wrong
    assert done.code == 1, done.out + done.err
    assert rows[name, "runtime"]["error"]["verdict"] in ("IDENTICAL", "EQUAL", "DRIFT")
    found = rows[name, "conversion"]["error"]
    assert found["verdict"] in ("DIFFERENT", "INVALID")
    for says in planted.WRONG[name][1]:
        assert says in found["reason"]


@pytest.mark.slow
def test_right_conversions_draw_no_sentence(right):
    done, rows = right
    assert done.code == 0, done.out + done.err
    for name in planted.RIGHT:
        found = rows[name, "conversion"]["error"]
        assert (found["verdict"] in ("IDENTICAL", "EQUAL"), found["reason"]) == (True, None), (name, found["reason"])


@pytest.mark.slow
def test_one_fault_alone_ends_with_exit_code_1_and_its_sentence_and_a_right_file_with_0(tmp_path):
    reference = planted.write(tmp_path / "right.onnx")
    arguments, says = planted.WRONG["relu6"]
    done = cli(tmp_path, "check", planted.write(tmp_path / "wrong.onnx", **arguments), "--against", reference)
    assert done.code == 1
    assert says[0] in " ".join(done.out.split())
    other = planted.write(tmp_path / "other.onnx", **planted.RIGHT["folded-renamed"])
    done = cli(tmp_path, "check", other, "--against", reference)
    assert done.code == 0, done.out + done.err
    assert ", conversion: " not in done.out  # there is no reason to give


@pytest.mark.slow
def test_the_layout_of_square_images_is_decided_by_the_outputs_or_by_the_user(tmp_path):
    reference, file = planted.square(tmp_path / "nchw.onnx"), planted.square(tmp_path / "nhwc.onnx", turned=True)
    done = cli(tmp_path, "check", file, "--against", reference, "--details")
    out = " ".join(done.out.split())
    assert done.code == 0, done.out + done.err
    assert "the outputs decide" in out
    assert "axes NCHW→NHWC" in out
    assert cli(tmp_path, "check", file, "--against", reference, "--layout", "turned").code == 0
    done = cli(tmp_path, "check", file, "--against", reference, "--layout", "same")
    assert done.code == 1
    assert "when its input x is given as NHWC: --layout turned gives it so" in " ".join(done.out.split())

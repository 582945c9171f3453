"""assert_port_equal in a repository of its own, called by pytest as its user calls it."""

import re
from dataclasses import replace

import pytest
from conftest import FAULTY, MODEL, SPEC, write_folder
from helpers.sampleresults import ABSENT, FORWARD, LAYERS, RESULT, TRAINED

from xverify.errors import UsageError, XverifyError
from xverify.results.records import Error
from xverify.results.verdicts import Verdict
from xverify.testing import assert_port_equal
from xverify.testing.failing import check_allowed, drifts, failures

CALL = "from xverify.testing import assert_port_equal\n\ndef test_port():\n    assert_port_equal({})\n"


def test_an_equal_port_passes_and_is_not_timed(tested):
    test = CALL.format('"port", ["numpy", "honest"]').replace("    assert", "    result = assert")
    test += "    assert result.settings.no_timing\n    assert result.rows[1].error.verdict <= 'EQUAL'\n"
    done = tested(test)
    assert (done.code, "1 passed" in done.out) == (0, True), done.out


def test_a_wrong_port_fails_with_its_row_its_cause_and_its_figures(tested):
    done = tested(CALL.format('"port", subjects=["numpy", "honest", "swapped"], seed=3'))
    assert done.code == 1
    message = [line for line in done.out.splitlines() if line.startswith("E  ")]
    assert message[1].endswith("port: 2 of 3 subjects EQUAL, 1 DIFFERENT")
    text = "\n".join(message)
    [cause] = re.findall(r"cause: (.*)", text)
    assert message[0].endswith(f"AssertionError: {cause} (swapped, DIFFERENT)")
    assert f"FAILED test_port.py::test_port - AssertionError: {cause}"[:70] in done.out
    assert "swapped, forward: DIFFERENT" in text
    assert "cause: " in text
    assert "output y, case " in text
    assert "and EQUAL is up to" in text
    assert "--seed 3" in text
    assert "honest" not in text.split("The same with every layer")[0]
    assert len(message) <= 7
    assert "assert_port_equal(" in done.out
    assert "asserting.py" not in done.out, "the code of xverify says nothing about the port"


def test_a_folder_beside_the_test_is_taken_before_one_of_the_current_directory_or_of_the_zoo(tested):
    place = tested("").place
    test = CALL.format('"mlp", ["numpy", "honest"]').replace("    assert", "    result = assert")
    for folder, batch in ((place / "tests" / "mlp", 5), (place / "mlp", 6)):
        write_folder(folder, ("numpy", "honest"), SPEC.replace("batch=4", f"batch={batch}"))
    (place / "tests" / "test_inner.py").write_text(test + "    assert result.settings.batch == 5\n")
    done = tested(test + "    assert result.settings.batch == 6\n", "tests", "test_port.py")
    assert (done.code, "2 passed" in done.out) == (0, True), done.out
    done = tested(CALL.format('"port", ["numpy", "honest"]'), "test_port.py")  # beside the test, which is elsewhere
    assert done.code == 0, done.out


def test_a_folder_beside_the_test_is_found_from_another_directory(tested, tmp_path):
    (tmp_path / "repository" / "below").mkdir(parents=True)
    done = tested("import os\nos.chdir('below')\n" + CALL.format('"port", ["numpy", "honest"]'))
    assert done.code == 0, done.out


def test_a_setting_of_timing_times_it(tested):
    test = CALL.format('"port", ["numpy", "honest"], warmup=1, rerun=4').replace("    assert", "    result = assert")
    done = tested(test + "    assert result.rows[0].speed.calls == 4\n")
    assert done.code == 0, done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('"port", ["numpy"]', "nothing was compared: no row other than the reference numpy itself"),
        ('"port", ["numpy", "absent"]', "absent, forward: not-installed"),
        ('"port", ["numpy", "absent"], allow=["not-installed"]', "nothing was compared"),
        ('"prot", ["numpy", "honest"]', "prot"),
        ('"port", ["numpy", "honest"], allow=["EQUAL"]', "allow is 'EQUAL'"),
        ('"port", ["numpy", "honest"], bacth=2', "did you mean 'batch'?"),
        ('"port", "numpy,honest"', "--subjects is 'numpy,honest': it must be a list"),
        ('"port", ["numpy", "honest"], batch=0', "--batch is 0: it must be at least 1"),
    ],
)
def test_what_compares_nothing_or_cannot_run_fails(
    in_one_process, faulty_frameworks, monkeypatch, tmp_path, arguments, says
):
    write_folder(tmp_path / "port", ("numpy", "honest", "absent"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, XverifyError, TypeError)) as raised:
        eval(f"assert_port_equal({arguments})", {"assert_port_equal": assert_port_equal})
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('"port", ["numpy", "honest", "breaks"]', "breaks, forward: crashed"),
        ('"port", ["numpy", "honest"], bacth=2', "did you mean 'batch'?"),
    ],
)
def test_the_code_of_xverify_is_not_shown_beside_the_reason(tested, arguments, says):
    done = tested(CALL.format(arguments))
    assert done.code == 1, done.out
    assert says in "\n".join(line for line in done.out.splitlines() if line.startswith("E  "))
    assert not any(name in done.out for name in ("Traceback", "asserting.py", "engine/"))


def test_a_file_whose_framework_is_not_installed_fails_without_named_subjects(tested, tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("honest", "absent"):
        text = (FAULTY / f"{name}.py").read_text()
        (tmp_path / "mine" / f"{name}.py").write_text(text + '    default_modes = ("eager",)\n')
    shown = (FAULTY.parents[1] / "xverify" / "frameworks" / "numpy" / "adapter.py").read_text()
    (tmp_path / "mine" / "numpy.py").write_text(
        shown.replace("    implicit_mode =", '    default_modes = ("eager",)\n    implicit_mode =')
    )
    done = tested(CALL.format('"port"'), frameworks=tmp_path / "mine")
    assert done.code == 1
    assert "absent.py was not compared: absent has no row, because it is not installed" in done.out
    assert "honest, forward" not in done.out
    assert tested(CALL.format('"port", allow=["not-installed"]'), frameworks=tmp_path / "mine").code == 0


def test_what_is_allowed_passes(tested):
    assert tested(CALL.format('"port", ["numpy", "honest", "absent"], allow=["not-installed"]')).code == 0


@pytest.mark.slow
def test_an_untested_port_fails_unless_it_is_allowed(tested):
    done = tested("")
    constant = MODEL.replace('return h @ w["fc2.weight"].T + w["fc2.bias"]', "return np.zeros((len(x), 3), np.float32)")
    assert constant != MODEL
    write_folder(done.place / "port", ("numpy", "honest"), SPEC, constant)
    failed = tested(CALL.format('"port", ["numpy", "honest"]'))
    assert (failed.code, "honest, forward: UNTESTED" in failed.out) == (1, True), failed.out
    assert tested(CALL.format('"port", ["numpy", "honest"], allow=["UNTESTED"]')).code == 0


def test_an_interrupt_ends_the_whole_test_run(tested, tmp_path):
    (tmp_path / "mine").mkdir()
    adapter = (FAULTY / "swapped.py").read_text().replace("swapped", "stops")
    kills = (
        "    import os, signal, time\n    os.kill(os.getppid(), signal.SIGINT)\n    time.sleep(30)\n    return lambda x"
    )
    (tmp_path / "mine" / "stops.py").write_text(adapter.replace("    return lambda x", kills))
    done = tested("")
    write_folder(done.place / "port", ("numpy", "stops"))
    test = CALL.format('"port", ["numpy", "stops"]') + "\ndef test_later():\n    pass\n"
    done = tested(test, "-v", frameworks=tmp_path / "mine")
    assert done.code == 2, done.out
    assert "KeyboardInterrupt" in done.out
    assert "test_later" not in done.out


def test_the_fixture_runs_a_model_and_asserts_nothing(tested):
    done = tested(
        "def test_port(xverify_run):\n"
        "    result = xverify_run('port', ['numpy', 'swapped'])\n"
        "    assert [row.error.verdict.fails for row in result.rows] == [False, True]\n"
        "    assert result.settings.no_timing\n"
    )
    assert done.code == 0, done.out


# -- the message ------------------------------------------------------------------------------------------------------


def test_the_first_wrong_layer_and_check_are_named():
    text = failures(RESULT)
    assert "jittor, forward: DIFFERENT" in text
    assert "first wrong layer: fc2 (Linear): R is inf, and EQUAL is up to 4" in text
    assert "tensorlayer, forward: not-installed" in text
    assert "keras-jax" not in text.split("The same")[0]


def test_a_large_ratio_has_no_exponent():
    right, wrong = LAYERS.layers
    layers = replace(
        LAYERS, layers=(right, replace(wrong, ratio=3451.0, channel_ratio=9.0, input_ratio=0.5, reason=None))
    )
    row = replace(FORWARD, error=replace(FORWARD.error, layers=layers))
    assert "R is 3,450, and EQUAL is up to 4" in failures(replace(RESULT, rows=(row,)))


def test_drift_is_a_warning_and_fails_when_it_is_strict():
    result = replace(RESULT, rows=(FORWARD, TRAINED))
    assert list(drifts(result)) == ["mlp: keras-jax, train: DRIFT: eps-hat"]
    strict = replace(result, settings=replace(result.settings, strict=True))
    assert "keras-jax, train: DRIFT" in failures(strict)
    assert "keras-jax, train" not in failures(result).split("The same")[0]


def test_a_row_without_a_verdict_fails():
    right = replace(FORWARD, error=Error(Verdict.EQUAL))
    assert failures(replace(RESULT, rows=(right,))) == ""
    assert "no verdict" in failures(replace(RESULT, rows=(right, replace(FORWARD, error=None))))
    assert "INVALID" in failures(
        replace(RESULT, rows=(right, replace(FORWARD, error=Error(Verdict.INVALID)))), ["UNTESTED"]
    )
    assert failures(replace(RESULT, rows=(right, ABSENT)), ["not-installed"]) == ""


def test_only_known_words_can_be_allowed():
    check_allowed(["UNTESTED", "not-installed"])
    with pytest.raises(UsageError, match="did you mean 'unsupported'"):
        check_allowed(["unsuported"])

"""Whole runs on the numpy adapter: real processes, real pipes, planted faults, no framework."""

import json
import os
import signal
import sys
import time
import tracemalloc
from importlib import import_module

import pytest
from conftest import MODEL, SPEC, signal_while_timing, write_folder

import xverify as package
from xverify.commands._main import main
from xverify.progress import Listener
from xverify.results.verdicts import Verdict

FAST = ("--warmup", 2, "--rerun", 16)
WITHIN = pytest.mark.usefixtures("in_one_process")  # what is tested is no matter of processes


def compared(xverify, tmp_path, *others, extra=(), spec=SPEC, model=MODEL):
    folder = write_folder(tmp_path / "port", ("numpy", "honest", *others), spec=spec, model=model)
    return xverify("run", folder, "--subjects", ",".join(["numpy", *others, "honest"]), *FAST, *extra)


@pytest.mark.timed
def test_two_honest_frameworks_pass(no_noise, xverify, tmp_path):
    done = compared(xverify, tmp_path, extra=("--details",))
    assert done.code == 0, done.err
    assert done.result["verdict"] == "PASS"
    assert done.out.splitlines()[-1].startswith("PASS port: 2 of 2 subjects EQUAL")
    for row in done.result["rows"]:
        assert row["status"] == "ok"
        assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
        assert row["error"]["compared"] == row["error"]["expected"] == row["error"]["timed_cases"] == 4
        assert row["weights_digest"] == done.result["weights"]["digest"]
        speed = row["speed"]
        assert speed["calls"] == sum(sample["calls"] for sample in speed["samples"]) == 16
        assert speed["warmup_calls"] == 2
        assert speed["elapsed_seconds"] == pytest.approx(sum(sample["seconds"] for sample in speed["samples"]))
        assert speed["fps"] == pytest.approx(4 / speed["seconds_per_step"])
        assert row["memory"]["peak_rss_mib"] >= row["memory"]["import_rss_mib"] > 1
    assert done.result["weights"]["parameters"] == 6 * 8 + 6 + 3 * 6 + 3
    timeline = done.result["timeline"]
    spent = [timeline[f"{part}_seconds"] for part in ("starting", "warming", "timing", "judging")]
    assert min(spent) > 0
    assert sum(spent) < timeline["total_seconds"]
    assert done.row("numpy")["speed"]["verdict"] == "BASELINE"
    assert done.row("numpy")["speed"]["ratio"] == 1.0
    first, second = (done.row(subject)["speed"] for subject in ("numpy", "honest"))
    assert first["fps"] / second["fps"] == pytest.approx(second["ratio"]), "speed and ratio are of the same rounds"
    assert "Elapsed: all timed rounds together, also noisy ones" in done.out


@pytest.mark.slow
@WITHIN
def test_the_digest_depends_on_the_seed_alone(xverify, tmp_path):
    digests = [compared(xverify, tmp_path, extra=("--seed", seed)).result["weights"]["digest"] for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


@WITHIN
@pytest.mark.parametrize(
    ("fault", "verdict", "says"),
    [
        ("wrong_weight", "INVALID", "other weights after loading"),
        ("hidden", "DIFFERENT", "float32's own"),
        ("swapped", "DIFFERENT", "float32's own"),
        ("cached", "DIFFERENT", "float32's own"),
        ("missing", "INVALID", "output 'y' is missing"),
        ("widened", "INVALID", "float64, spec.py says float32"),
        ("nans", "INVALID", "1 NaN"),
    ],
)
def test_a_planted_fault_is_found_and_its_speed_is_refused(xverify, tmp_path, fault, verdict, says):
    done = compared(xverify, tmp_path, fault)
    assert done.code == 1
    row = done.row(fault)
    assert row["error"]["verdict"] == verdict
    assert says in row["error"]["reason"]
    assert row["speed"]["verdict"] == "REFUSED"
    assert "not counted" in done.out
    assert done.row("honest")["error"]["verdict"] in ("EQUAL", "IDENTICAL")


@pytest.mark.timed
def test_an_adapter_that_does_not_wait_is_refused_and_a_lazy_one_that_waits_is_not(no_noise, xverify, tmp_path):
    done = compared(xverify, tmp_path, "lazy", "unwaited")
    assert done.code == 0
    assert done.row("lazy")["speed"]["verdict"] is None
    assert done.row("unwaited")["speed"]["verdict"] == "REFUSED"
    assert "does not wait" in done.row("unwaited")["speed"]["reason"]
    assert "not counted" in done.out


def test_a_graph_that_is_traced_again_while_it_is_timed_is_refused(xverify, tmp_path):
    done = compared(xverify, tmp_path, "retraces")
    assert done.code == 0
    row = done.row("retraces")
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert row["speed"]["retraces"] == 4
    assert row["speed"]["verdict"] == "REFUSED"
    assert row["speed"]["reason"].startswith("retraced 4 times while it was timed: ")
    assert "retraces: retraced 4 times" in done.out
    assert (row["speed"]["counted"], row["speed"]["not_counted"]) == (False, "retraced while timed")
    assert "not counted: retraced while timed" in done.out
    assert done.row("honest")["speed"]["retraces"] is None


@WITHIN
def test_speeds_of_a_noisy_machine_are_struck_out(port, tmp_path, faulty_frameworks, monkeypatch, capsys):
    write_folder(port, ("numpy", "honest"))
    monkeypatch.setattr("xverify.timing.noise.Seen.refusal", lambda seen: "9 of 16 rounds were noisy")
    file = tmp_path / "r.json"
    assert main(["run", str(port), "--subjects", "numpy,honest", "--json", str(file), *map(str, FAST)]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("not counted: TOO NOISY") == 2
    for row in json.loads(file.read_text())["rows"]:
        assert (row["speed"]["verdict"], row["speed"]["counted"], row["speed"]["noisy"]) == ("REFUSED", False, True)
        assert row["speed"]["not_counted"] == "TOO NOISY"


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        ("killed", "crashed", "killed by SIGKILL while running a timed block"),
        ("exits", "crashed", "exited with status 7 while importing; its last line: no licence found"),
        ("memory", "failed", "out of memory"),
        ("breaks", "crashed", "which is not the protocol"),
        ("absent", "not-installed", "no_such_framework is not installed in"),
    ],
)
def test_a_subject_that_fails_is_a_row_and_the_others_finish(xverify, tmp_path, fault, status, says):
    done = compared(xverify, tmp_path, fault)
    assert done.code == 3
    assert done.result["verdict"] == "ERROR"
    assert done.row(fault)["status"] == status
    assert says in done.row(fault)["reason"]
    assert says[:40] in done.out
    assert done.row("honest")["error"]["verdict"] in ("EQUAL", "IDENTICAL")


@pytest.mark.timed
def test_what_was_measured_before_a_crash_is_kept(xverify, tmp_path):
    row = compared(xverify, tmp_path, "killed").row("killed")
    assert 0 < row["speed"]["calls"] < 16
    assert row["speed"]["verdict"] == "REFUSED"


def test_a_subject_that_hangs_is_ended_after_the_timeout(xverify, tmp_path):
    begun = time.monotonic()
    done = compared(xverify, tmp_path, "hangs", extra=("--timeout", 3))
    assert time.monotonic() - begun < 60
    assert done.code == 3
    assert done.row("hangs")["status"] == "timeout"
    assert "making its first step took over 3 s; see --timeout" in done.row("hangs")["reason"]
    assert done.row("honest")["error"]["verdict"] in ("EQUAL", "IDENTICAL")


def test_a_framework_that_prints_does_not_disturb_the_protocol(xverify, tmp_path):
    done = compared(xverify, tmp_path, "chatty")
    assert done.code == 0
    assert done.row("chatty")["error"]["verdict"] in ("EQUAL", "IDENTICAL")


@WITHIN
def test_without_float64_the_floor_is_measured_by_perturbation(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("single", "honest", "swapped"))
    done = xverify("run", folder, "--subjects", "single,honest,swapped", *FAST, "--details")
    assert done.result["reference"]["precision"] == "float32"
    assert "neighbouring float32" in done.out
    assert done.row("honest")["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert done.row("swapped")["error"]["verdict"] == "DIFFERENT"


@WITHIN
def test_a_constant_output_is_inconclusive(xverify, tmp_path):
    dead = MODEL.replace('return h @ w["fc2.weight"].T + w["fc2.bias"]', "return 0 * h[:, :3]")
    done = compared(xverify, tmp_path, model=dead)
    assert done.code == 4
    assert done.row("honest")["error"]["verdict"] == "UNTESTED"


TWO = SPEC.replace("outputs={", 'outputs={"constant": TensorSpec(("N", 3)), ')


def two_outputs(constant, factor):
    """The model with a constant as its first output. factor: of its second output."""
    return MODEL.replace("return h @", f"return np.full_like(h[:, :3], {constant}), {factor} * h @")


@WITHIN
@pytest.mark.parametrize(
    ("constant", "factor", "code", "verdicts", "says"),
    [
        (0.5, 1000, 1, {"constant": "UNTESTED", "y": "DIFFERENT"}, "y, case"),
        (0.5, 1, 4, {"constant": "UNTESTED", "y": "IDENTICAL"}, "output 'constant' of the reference is the same for every input"),
        (0.6, 1, 1, {"constant": "DIFFERENT", "y": "IDENTICAL"}, "is the same for every input, and this one is another"),
    ],
)  # fmt: skip
def test_every_output_is_judged_by_itself(xverify, tmp_path, constant, factor, code, verdicts, says):
    folder = write_folder(tmp_path / "port", spec=TWO, model=two_outputs(0.5, 1))
    (folder / "honest.py").write_text(two_outputs(constant, factor))
    done = xverify("run", folder, "--subjects", "numpy,honest", *FAST)
    error = done.row("honest")["error"]
    assert done.code == code
    assert {tensor["output"]: tensor["verdict"] for tensor in error["tensors"]} == verdicts
    assert error["verdict"] == max(map(Verdict, verdicts.values()))
    assert says in error["reason"]


GRID = "[0.25, 0.5, 0.75]"


@WITHIN
@pytest.mark.parametrize(
    ("grid", "factor", "other", "verdicts"),
    [
        (GRID, "1", GRID, {"constant": "IDENTICAL", "y": "IDENTICAL"}),
        (GRID, "1", "[0.25, 0.5, 0.7501]", {"constant": "DIFFERENT", "y": "IDENTICAL"}),
        (GRID, "1", "[0.0, 0.25, 0.5]", {"constant": "DIFFERENT", "y": "IDENTICAL"}),
        (GRID, "0", GRID, {"constant": "UNTESTED", "y": "UNTESTED"}),  # dead: nothing depends on the inputs
        ("0", "1", "0", {"constant": "UNTESTED", "y": "IDENTICAL"}),
    ],
)
def test_a_constant_is_compared_beside_an_output_that_depends_on_the_inputs(
    xverify, tmp_path, grid, factor, other, verdicts
):
    folder = write_folder(tmp_path / "port", spec=TWO, model=two_outputs(grid, factor))
    (folder / "honest.py").write_text(two_outputs(other, factor))
    error = xverify("run", folder, "--subjects", "numpy,honest", *FAST).row("honest")["error"]
    assert {tensor["output"]: tensor["verdict"] for tensor in error["tensors"]} == verdicts


@WITHIN
def test_input_cases_without_a_timed_call_are_computed_too(xverify, tmp_path):
    done = compared(xverify, tmp_path, extra=("--rerun", 1))
    error = done.row("honest")["error"]
    assert (error["timed_cases"], error["compared"]) == (1, 4)
    assert done.row("honest")["speed"]["calls"] == 1


@WITHIN
@pytest.mark.parametrize(
    ("spec", "model", "code", "says"),
    [
        (
            SPEC.replace('("N", 3)', '("N", 5)'),
            MODEL,
            2,
            "output 'y' is ('N', 5), so (4, 5) at batch 4; numpy returns (4, 3)",
        ),
        (
            SPEC.replace('"y"', '"z"').replace("outputs={", 'outputs={"a": TensorSpec(("N",)), '),
            MODEL,
            2,
            "names the outputs",
        ),
        (SPEC.replace('("N", 8)', '("N", 9)'), MODEL, 3, "the reference numpy could not run: failed: ValueError"),
    ],
)
def test_a_spec_with_wrong_shapes_is_refused(xverify, tmp_path, spec, model, code, says):
    done = compared(xverify, tmp_path, spec=spec, model=model)
    assert done.code == code
    assert says in done.err + done.out


@WITHIN
def test_a_reference_that_fails_is_told_once(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"), SPEC.replace('("N", 8)', '("N", 9)'))
    done = xverify("run", folder, "--subjects", "numpy,honest", "--no-timing")
    assert done.code == 3
    assert done.out.count("ValueError") == 1
    assert "numpy, honest: the reference numpy could not run" in done.out


@pytest.mark.slow
@WITHIN
def test_weights_come_from_the_folder_or_from_the_user(xverify, tmp_path):
    import numpy as np

    from xverify.weights import digest, save_file
    from xverify.workload import probe

    shapes = {"fc1.weight": (6, 8), "fc1.bias": (6,), "fc2.weight": (3, 6), "fc2.bias": (3,)}
    trained, other = probe.weights(shapes, 7), probe.weights(shapes, 8)
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    save_file(trained, folder / "weights.safetensors")
    assert compared(xverify, tmp_path).result["weights"]["digest"] == digest(trained)
    save_file(other, tmp_path / "other.pkl")
    done = compared(xverify, tmp_path, extra=("--weights", tmp_path / "other.pkl"))
    assert done.result["weights"]["digest"] == digest(other)

    for change, says in (
        (lambda w: w.pop("fc1.bias"), "1 missing (fc1.bias)"),
        (lambda w: w.update(extra=np.ones(2, np.float32)), "1 unexpected (extra)"),
        (lambda w: w.update({"fc2.bias": np.ones(4, np.float32)}), "fc2.bias: given (4,), model (3,)"),
        (lambda w: w["fc2.bias"].__setitem__(1, np.nan), "fc2.bias[1] is nan"),
    ):
        broken = {name: array.copy() for name, array in other.items()}
        change(broken)
        save_file(broken, tmp_path / "broken.npz")
        done = compared(xverify, tmp_path, extra=("--weights", tmp_path / "broken.npz"))
        assert done.code == 2
        assert says in done.err


@pytest.mark.slow
def test_a_crashed_compiler_is_restarted_once(xverify, tmp_path, monkeypatch):
    monkeypatch.setenv("TUMBLE_FILE", str(tmp_path / "tumbled"))
    done = compared(xverify, tmp_path, "tumbles")
    assert done.code == 0, done.err
    assert "tumbles: its compiler crashed: starting its process again" in done.err
    assert done.row("tumbles")["weights_digest"] == done.result["weights"]["digest"]
    monkeypatch.setenv("TUMBLE_ALWAYS", "1")
    done = compared(xverify, tmp_path, "tumbles")
    assert done.code == 3
    assert done.row("tumbles")["status"] == "crashed"
    assert done.row("tumbles")["reason"].endswith("its last line: compiler fell over")


@WITHIN
def test_python_returns_the_records_that_the_command_writes(port, tmp_path, faulty_frameworks):
    write_folder(port, ("numpy", "honest"))
    events = []

    class Recorder(Listener):
        def phase(self, subject, doing):
            events.append(subject)

    result = package.run(port, ["numpy", "honest"], rerun=8, warmup=1, json=tmp_path / "r.json", listener=Recorder())
    assert result.verdict == "PASS"
    assert result.exit_code == 0
    assert [row.subject for row in result.rows] == ["numpy", "honest"]
    assert json.loads((tmp_path / "r.json").read_text()) == result.to_dict()
    assert {"reference", "numpy", "honest"} <= set(events)


def test_outputs_of_many_cases_are_never_in_memory_together(port, faulty_frameworks, monkeypatch):
    monkeypatch.setattr("xverify.verdict.ratios.PART", 2**14)
    values = 2**20
    wide = MODEL.replace("return h @", f"return np.arange({values // 4}, dtype=x.dtype) + (h @").replace(
        'w["fc2.bias"]\n', 'w["fc2.bias"])[:, :1]\n'
    )
    write_folder(port, ("numpy", "honest"), spec=SPEC.replace('("N", 3)', f'("N", {values // 4})'), model=wide)
    import_module("xverify.engine")  # what it imports is no part of the peak
    tracemalloc.start()
    try:
        result = package.run(port, ["numpy", "honest"], rerun=8, warmup=1, cases=4)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.verdict == "PASS"
    one = values * 4  # bytes of one case's output in float32
    assert peak < 6 * one, (
        "each of the two subjects has four outputs, and the reference has eight, half of them in float64"
    )


def test_another_interpreter_can_import_xverify(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    link = tmp_path / "python"
    link.write_text(f'#!/bin/sh\necho a greeting from the start-up files\nexec "{sys.executable}" "$@"\n')
    link.chmod(0o755)
    done = xverify("run", folder, "--subjects", "numpy,honest", "--python", f"honest={link}", *FAST)
    assert done.code == 0, done.err + done.out
    assert done.result["settings"]["python"] == {"honest": str(link)}


@pytest.mark.slow
def test_a_program_that_is_no_interpreter_makes_a_crashed_row(xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho I am no interpreter\n")
    fake.chmod(0o755)
    done = xverify("run", folder, "--subjects", "numpy,honest", "--python", f"honest={fake}", *FAST)
    assert done.code == 3
    assert done.row("honest")["status"] == "crashed"
    fake.write_text("#!/bin/sh\nwhile true; do echo garbage; done\n")
    done = xverify("run", folder, "--subjects", "numpy,honest", "--python", f"honest={fake}", *FAST)
    assert "prints b'garbage' instead of starting a worker" in done.row("honest")["reason"]


@pytest.mark.slow
def test_an_interrupted_run_keeps_what_it_measured(tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    file = tmp_path / "r.json"
    assert signal_while_timing(tmp_path, folder, signal.SIGINT, "--json", str(file)) == 3
    result = json.loads(file.read_text())
    assert result["verdict"] == "ERROR"
    assert any("interrupted" in note for note in result["notes"])
    assert result["rows"][0]["reason"] == "interrupted by the user"
    assert result["rows"][0]["speed"]["samples"]


def test_no_temporary_file_remains(xverify, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    # TensorFlow leaves a temporary file for each function that it traces, and a worker that is ended removes none.
    leaves = "import tempfile\nwith open(tempfile.mkstemp()[1], 'w') as file:\n    file.write('x')\n"
    done = compared(xverify, tmp_path, "killed", model=leaves + MODEL)
    assert done.row("numpy")["status"] == "ok"
    assert os.listdir(tmp_path / "temporary") == []


def test_only_the_untimed_reference_gets_a_wait_policy(xverify, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    (tmp_path / "told").mkdir()
    told = f"open({str(tmp_path / 'told')!r} + '/' + os.path.basename(os.getcwd()), 'w').write(os.getenv('OMP_WAIT_POLICY', ''))"
    compared(xverify, tmp_path, model=f"import os\n{told}\n{MODEL}")
    found = {path.name: path.read_text() for path in (tmp_path / "told").iterdir()}
    assert found["reference"] == "PASSIVE"
    assert found["subject-0"] == found["subject-1"] == ""

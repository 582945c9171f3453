"""Outputs never destroy: not what a command reads, not what it writes otherwise, and no file of the user without --force."""

import itertools
import json
import os
import shutil
from dataclasses import asdict

import numpy as np
import pytest
from conftest import write_folder
from helpers.historyresults import keep, result
from helpers.sampleresults import RESULT

from xverify import check, convert, outputs, run
from xverify.errors import UsageError
from xverify.receipts.keeping import Keeper
from xverify.report import curves
from xverify.results.file import write
from xverify.results.records import plain
from xverify.workload.options import RunSettings

pytestmark = pytest.mark.usefixtures("in_one_process", "faulty_frameworks")

FAST = ("--subjects", "numpy", "--no-timing", "--quiet")
REPORTS = ("html", "markdown", "junit", "csv")
DEFAULTS = {"html": ".html", "markdown": ".md", "junit": ".xml", "csv": ".csv", "json": ".json", "curve": ".png"}


def onnx_file(path, external=False):
    """y = x + w, without ONNX: the fields of a ModelProto. external: the values of w are in ``NAME.data``."""

    def field(number, content):
        content = content.encode() if isinstance(content, str) else content
        return bytes([number << 3 | 2, len(content)]) + content

    def value(name):
        return field(1, name) + field(2, field(1, b"\x08\x01" + field(2, field(1, b"\x08\x02"))))

    raw = np.ones(2, np.float32).tobytes()
    place = field(13, field(1, "location") + field(2, f"{path.stem}.data")) + b"\x70\x01"
    weight = b"\x08\x02\x10\x01" + field(8, "w") + (place if external else field(9, raw))
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "Add")
    graph = field(1, node) + field(2, "g") + field(5, weight) + field(11, value("x")) + field(12, value("y"))
    path.write_bytes(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11"))
    if external:
        path.with_suffix(".data").write_bytes(raw)
    return path


def openvino_file(path):
    path.write_text('<?xml version="1.0"?>\n<net name="m" version="11"></net>\n')
    path.with_suffix(".bin").write_bytes(b"\0" * 8)
    return path


class Place:
    """A folder with one of everything that commands read."""

    def __init__(self, folder):
        self.folder = folder
        self.port = write_folder(folder / "port")
        self.helper = folder / "port" / "helper" / "table.json"
        self.helper.parent.mkdir()
        self.helper.write_text("[1, 2]")
        self.base = write_folder(folder / "base")
        spec = (self.base / "spec.py").read_text().replace("ModelSpec(", 'ModelSpec(code="../base", ')
        self.variant = write_folder(folder / "variant", (), spec=spec)
        self.weights = folder / "w.npz"
        np.savez(self.weights, **{"fc1.weight": np.ones((6, 8), np.float32)})
        self.shards = folder / "shards"
        self.shards.mkdir()
        index = {"weight_map": {"a": "s-00001-of-00001.safetensors"}}
        (self.shards / "model.safetensors.index.json").write_text(json.dumps(index))
        (self.shards / "s-00001-of-00001.safetensors").write_bytes(b"shard")
        self.data = folder / "data"
        self.data.mkdir()
        (self.data / "train.txt").write_text("a b")
        self.m = onnx_file(folder / "m.onnx")
        self.external = onnx_file(folder / "ext.onnx", external=True)
        self.openvino = openvino_file(folder / "ov.xml")
        self.recorded = folder / "test_data_set_0"
        self.recorded.mkdir()
        (self.recorded / "output_0.pb").write_bytes(b"\x08\x01")
        self.code = folder / "code" / "model.py"
        self.code.parent.mkdir()
        self.code.write_text("def build():\n    return None\n")
        (self.code.parent / "layers.py").write_text("")
        self.python = folder / "python"
        self.python.write_text("#!/bin/sh\n")
        self.results = keep(folder / "results", result(1), result(2))
        self.r = folder / "r.json"
        write(RESULT, self.r)
        self.toml = folder / "s.toml"
        self.toml.write_text(
            f'[matrix]\nmodel = ["./port"]\n[settings]\nsubjects = ["numpy"]\nweights = "{self.weights}"\n'
        )


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def commands(place):
    """Name of a command -> (its arguments, its options that name an output, the files that it reads)."""
    spec, numpy = place.port / "spec.py", place.port / "numpy.py"
    code = place.code.parent / "layers.py"
    shard, index = sorted(place.shards.iterdir(), reverse=True)
    return {
        "run": (
            ["run", place.port, *FAST, "--weights", place.weights], ("json", *REPORTS),
            [spec, numpy, place.weights, place.helper],
        ),
        "run variant": (["run", place.variant, *FAST], ("json",), [place.variant / "spec.py", place.base / "numpy.py"]),
        "run shards": (["run", place.port, *FAST, "--weights", index], ("html",), [index, shard]),
        "run folder of shards": (["run", place.port, *FAST, "--weights", place.shards], ("csv",), [index, shard]),
        "run data": (
            ["run", place.port, *FAST, "--task", "train", "--data", place.data], ("json", "curve"), [place.data / "train.txt"],
        ),
        "run python": (["run", place.port, *FAST, "--python", f"numpy={place.python}"], ("junit",), [place.python]),
        "check": (["check", place.m], ("json", *REPORTS), [place.m]),
        "check parts": (
            ["check", place.external, place.openvino], ("json",),
            [place.external, place.folder / "ext.data", place.openvino, place.folder / "ov.bin"],
        ),
        "check against": (
            ["check", place.m, "--against", place.external, "--inputs", place.weights], ("markdown",),
            [place.m, place.external, place.folder / "ext.data", place.weights],
        ),
        "check against folder": (
            ["check", place.m, "--against", place.port, "--weights", place.weights], ("json",), [spec, numpy, place.weights],
        ),
        "check against code": (["check", place.m, "--against", f"torch={place.code}:build"], ("html",), [place.code, code]),
        "check against data": (["check", place.m, "--against", place.recorded], ("json",), [place.recorded / "output_0.pb"]),
        "report": (["report", place.r, place.results / "r1.json"], REPORTS, [place.r, place.results / "r1.json"]),
        "diff": (["diff", place.r, place.results / "r1.json"], REPORTS[1:], [place.r, place.results / "r1.json"]),
        "history": (
            ["history", "--results", place.results], ("html", "markdown", "csv", "index"), [place.results / "r1.json"],
        ),
        "sweep": (
            ["sweep", place.toml, "--results", place.folder / "cells"], REPORTS, [place.toml, place.weights, spec, numpy],
        ),
        "mutate": (["mutate", place.port, "--subjects", "numpy"], ("json",), [spec, numpy]),
        "reproduce": (
            ["reproduce", "resnet50-cifar10", "--data", place.data, "--scale", "0.01"], ("json", "markdown", "html"),
            [place.data / "train.txt"],
        ),
        "convert": (
            ["convert", place.port, place.folder / "new.onnx", "--weights", place.weights], ("json",), [spec, place.weights],
        ),
    }  # fmt: skip


def links(folder):
    """Functions that make another name of a file."""
    for number in itertools.count():
        yield lambda path: path
        yield lambda path, n=number: _made(folder / f"soft{n}", path, os.symlink)
        yield lambda path, n=number: _made(folder / f"hard{n}", path, os.link)


def _made(name, path, make):
    make(path, name)
    return name


NAMES = (
    "run", "run variant", "run shards", "run folder of shards", "run data", "run python", "check", "check parts",
    "check against", "check against folder", "check against code", "check against data", "report", "diff", "history", "sweep",
    "mutate", "reproduce", "convert",
)  # fmt: skip


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize("name", NAMES)
def test_no_output_takes_the_place_of_what_a_command_reads(name, force, place, xverify, tmp_path_factory):
    """Every option that names an output with every file that is read, by its own name, through a link, and as a hard link."""
    command, options, files = commands(place)[name]
    if name == "history":
        pytest.importorskip("duckdb")
    other = tmp_path_factory.mktemp("links")
    link = links(other)
    cases = 0
    for option, file in itertools.product(options, files):
        for _ in range(3 if option == options[0] else 1):
            output = next(link)(file)
            if option == "curve" and output == file:
                continue
            if option == "curve":
                output = output.rename(output.with_suffix(".png"))
            before = contents(place.folder)
            asked = [*command, f"--{option}", output, *(["--force"] if force and name != "sweep" else [])]
            done = xverify(*asked)
            assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), (asked, done)
            assert f"--{option} {output} is " in done.err
            assert "this command reads" in done.err
            after = contents(place.folder)
            assert {path for path in before if after.get(path) != before[path]} == set()
            cases += 1
    assert cases > 0


def test_every_command_that_writes_a_file_is_tried():
    from xverify.commands._main import parser

    top = next(each for each in parser()._actions if hasattr(each, "choices") and each.dest == "command")
    writing = {
        name
        for name, command in top.choices.items()
        if any(getattr(vars(each).get("option"), "path", "") == "written" for each in command._actions)
    }
    assert writing - {name.partition(" ")[0] for name in NAMES} == {"optimizers", "replay", "selftest"}


# -- the examples -----------------------------------------------------------------------------------------------------


def refused(xverify, *command):
    done = xverify(*command)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
    return done.err


def test_a_model_stays_a_model(place, xverify):
    before = place.m.read_bytes()
    for force in ([], ["--force"]):
        error = refused(xverify, "check", place.m, "--json", place.m, *force)
        assert f"--json {place.m} is what this command reads as FILE: name another file" in error
    (place.folder / "link").symlink_to(place.m)
    refused(xverify, "check", place.m, "--json", place.folder / "link")
    assert place.m.read_bytes() == before


def test_a_measured_result_stays(place, xverify):
    before = place.r.read_bytes()
    assert "as RESULT.json" in refused(xverify, "report", place.r, "--html", place.r)
    assert place.r.read_bytes() == before


def test_a_receipt_that_is_replayed_stays_as_it_is(place, xverify):
    kept = place.folder / "kept"
    assert xverify("run", place.port, *FAST, "--receipt", kept).code == 0
    before = contents(kept)
    for name in ("receipt.json", "result.json", "new.json", "files/port/numpy.py"):
        for force in ([], ["--force"]):
            error = refused(xverify, "replay", kept, "--json", kept / name, *force)
            assert f"is in the receipt {kept}, which must stay as it is" in error
    (place.folder / "link.json").symlink_to(kept / "receipt.json")
    refused(xverify, "replay", kept, "--json", place.folder / "link.json")
    os.link(kept / "files" / "port" / "spec.py", place.folder / "hard.json")
    refused(xverify, "replay", kept, "--json", place.folder / "hard.json", "--force")
    assert contents(kept) == before
    assert xverify("replay", kept, "--json", place.folder / "again.json").code == 0


def test_no_output_is_in_the_folder_of_a_new_receipt(place, xverify):
    kept = place.folder / "kept"
    kept.mkdir()
    for option in ("--html", "--json"):
        error = refused(xverify, "run", place.port, *FAST, "--receipt", kept, option, kept / "receipt.json")
        assert f"is in the folder of --receipt {kept}" in error
    assert list(kept.iterdir()) == []


def test_two_outputs_of_a_conversion_are_two_files(place, xverify):
    new = place.folder / "new"
    for out, other in ((".onnx", ".onnx"), (".xml", ".xml"), (".xml", ".bin")):
        error = refused(xverify, "convert", place.port, f"{new}{out}", "--json", f"{new}{other}")
        assert "OUT and --json name the same file" in error


def test_a_conversion_takes_the_place_of_nothing_that_it_reads(place, xverify):
    torch = f"torch={place.code}:build"
    before = contents(place.folder)
    for out in (place.code, place.code.parent / "layers.py"):
        error = refused(xverify, "convert", torch, "--shape", "x=1x4", out, "--to", "onnx", "--force")
        assert f"OUT {out} is " in error
    for out in (place.port / "spec.py", place.weights):
        refused(xverify, "convert", place.port, out, "--weights", place.weights, "--to", "onnx", "--force")
    saved = place.folder / "saved"
    shutil.copytree(place.port, saved / "port")
    (saved / "saved_model.pb").write_bytes(b"")
    error = refused(xverify, "convert", saved / "port", saved, "--to", "savedmodel", "--force")
    assert "holds what this command reads as MODEL: name another place" in error
    shutil.rmtree(saved)
    assert contents(place.folder) == before


def test_adapters_of_the_user_and_modules_beside_code_are_read(place, xverify, monkeypatch):
    mine = place.folder / "adapters" / "mine.py"
    mine.parent.mkdir()
    mine.write_text("x = 1\n")
    helper = place.folder / "here" / "helper.py"  # of the current folder, from which code may import
    helper.parent.mkdir()
    helper.write_text("x = 1\n")
    monkeypatch.setenv("XVERIFY_FORMATS", str(mine.parent))
    for force in ([], ["--force"]):
        assert "as XVERIFY_FORMATS" in refused(xverify, "run", place.port, *FAST, "--json", mine, *force)
        assert "as XVERIFY_FORMATS" in refused(xverify, "report", place.r, "--html", mine, *force)
        refused(xverify, "check", place.m, "--against", f"torch={place.code}:build", "--json", "helper.py", *force)
    assert (mine.read_text(), helper.read_text()) == ("x = 1\n", "x = 1\n")


def test_what_somebody_else_puts_into_a_receipt_stays(place):
    with Keeper(place.folder / "kept", RunSettings()) as keeper:  # whose run does not end
        keeper._copy(place.weights, "forward/weights.npz")
        (place.folder / "kept" / "mine.txt").write_text("mine")
    assert contents(place.folder / "kept") == {place.folder / "kept" / "mine.txt": b"mine"}


def test_a_weight_file_is_replaced_with_force_alone(place, xverify):
    before = place.weights.read_bytes()
    np.savez(place.folder / "a.npz", w=np.ones(2, np.float32))
    error = refused(xverify, "weights", "convert", place.folder / "a.npz", place.weights)
    assert f"TARGET {place.weights} exists, and is no file that xverify wrote; --force replaces it" in error
    assert place.weights.read_bytes() == before
    assert xverify("weights", "convert", place.folder / "a.npz", place.weights, "--force").code == 0
    assert place.weights.read_bytes() != before


# -- files of the user ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run", "check", "report", "diff", "mutate", "reproduce", "convert"])
def test_a_file_of_the_user_is_replaced_with_force_alone(name, place, xverify):
    command, options, _ = commands(place)[name]
    assert options
    for option in options:
        mine = place.folder / f"mine{DEFAULTS[option]}"
        mine.write_text('{"notes": "mine"}')
        error = refused(xverify, *command, f"--{option}", mine)
        assert f"--{option} {mine} exists, and is no {outputs.KINDS[option][0]} that xverify wrote" in error
        assert error.endswith("; --force replaces it\n")
        assert mine.read_text() == '{"notes": "mine"}'


def test_a_sweep_replaces_no_file_of_the_user(place, xverify):
    page = place.folder / "page.html"
    page.write_text("mine")
    sweep = ["sweep", place.toml, "--results", place.folder / "cells"]
    assert "remove it, or name another file" in refused(xverify, *sweep, "--html", page, "--force")
    assert page.read_text() == "mine"


def test_a_cell_of_a_sweep_replaces_no_file_of_the_user(place, xverify):
    cells = place.folder / "cells"
    sweep = ["sweep", place.port, "--results", cells, "--subjects", "numpy", "--no-timing", "--quiet"]
    assert xverify(*sweep).code == 0
    [cell] = cells.glob("*.json")
    mine = place.folder / "notes.txt"
    mine.write_text("mine")
    cell.unlink()
    cell.symlink_to(mine)
    assert "the result of port, forward, " in refused(xverify, *sweep)
    assert mine.read_text() == "mine"
    cell.unlink()
    assert xverify(*sweep).code == 0
    before = cell.read_bytes()
    for option in REPORTS:
        refused(xverify, *sweep, f"--{option}", cell)
    assert cell.read_bytes() == before
    cell.unlink()
    for option in REPORTS:
        assert "name the same file" in refused(xverify, *sweep, f"--{option}", cell)


def test_locks_and_indices_that_lead_to_files_of_the_user_are_refused(place, xverify):
    mine = place.folder / "notes.txt"
    mine.write_text("mine")
    cells = place.folder / "cells"
    cells.mkdir()
    sweep = ["sweep", place.port, "--results", cells, "--subjects", "numpy", "--no-timing", "--quiet"]
    lock = cells / ".xverify-sweep.lock"
    lock.symlink_to(mine)
    assert f"{lock} is no lock of xverify sweep, but a link, a device or a folder: remove it" in refused(
        xverify, *sweep
    )
    lock.unlink()
    os.link(mine, lock)
    assert f"{lock} is no lock of xverify sweep, which holds a number alone: remove it" in refused(xverify, *sweep)
    assert mine.read_text() == "mine"
    lock.unlink()
    os.mkfifo(lock)
    assert f"{lock} is no lock of xverify sweep" in refused(xverify, *sweep)
    lock.unlink()
    assert xverify(*sweep).code == 0
    assert xverify(*sweep).code == 0


@pytest.mark.parametrize("content", ["text", "database"])
def test_an_index_that_is_a_link_is_refused(content, place, xverify):
    duckdb = pytest.importorskip("duckdb")
    mine = place.folder / "mine.duckdb"
    if content == "text":
        mine.write_text("mine")
    else:
        with duckdb.connect(str(mine)) as other:
            other.execute("CREATE TABLE mine (a INT)")
    before = mine.read_bytes()
    index = place.results / ".xverify-history.duckdb"
    index.symlink_to(mine)
    assert f"{index} is a link" in refused(xverify, "history", "--results", place.results)
    assert mine.read_bytes() == before
    index.unlink()
    history = ["history", "--results", place.results, "--quiet"]
    assert xverify(*history).code == 0
    assert "--html and the index name the same file" in refused(xverify, *history, "--html", index, "--force")
    assert "is no index of xverify history" in refused(xverify, *history, "--index", place.weights, "--force")


# -- what xverify wrote -----------------------------------------------------------------------------------------------


def write_all(xverify, command, options, folder):
    """Let a command write all of its outputs."""
    files = {option: folder / f"out{DEFAULTS[option]}" for option in options}
    done = xverify(*command, *itertools.chain.from_iterable((f"--{each}", file) for each, file in files.items()))
    assert done.code in (0, 1, 4), done.err
    return files


def test_what_xverify_wrote_is_replaced_without_a_word(place, xverify, monkeypatch):
    run_it = ["run", place.port, *FAST]
    for command, options in (
        (run_it, ("json", *REPORTS)),
        (["report", place.r, place.results / "r1.json"], REPORTS),
        (["diff", place.results / "r1.json", place.results / "r2.json", "--anyway"], REPORTS[1:]),
        (["sweep", place.port, "--results", place.folder / "cells", *FAST], REPORTS),
    ):
        for _ in range(2):
            files = write_all(xverify, command, options, place.folder)
        for option, file in files.items():
            assert outputs.Output("", file, option).is_own
            assert not any(outputs.Output("", file, other).is_own for other in outputs.KINDS if other != option)
            file.unlink()


def test_what_other_commands_write_is_known_again(tmp_path):
    from xverify.mutation.records import Score
    from xverify.reproduce import files
    from xverify.reproduce.published import EXPERIMENTS
    from xverify.reproduce.records import Reproduction
    from xverify.selftest.check import Check
    from xverify.training.optimizer_probe import PROBED, Probed

    done = Reproduction(EXPERIMENTS["mlp-mnist"], 0.01, 1, "synthetic", "2026-11-22T10:25:51+00:00")
    for kind, text in (
        ("json", files.as_json(done)),
        ("markdown", files.markdown(done)),
        ("html", files.page(done)),
        ("json", json.dumps([Score("m", (), 1, ()).to_dict()], indent=1)),
        ("json", json.dumps(plain([asdict(Probed("torch", PROBED[0], False, "EQUAL", 0.5))]), indent=1)),
        ("json", json.dumps([asdict(Check("a", "b", "c", True))], indent=1)),
        ("json", json.dumps([RESULT.to_dict()] * 2, indent=1)),
        ("json", "[]\n"),
    ):
        outputs.write(kind, text, tmp_path / "out")
        assert outputs.Output("", tmp_path / "out", kind).is_own, text
    for suffix in (".png", ".svg"):
        curves.draw(RESULT, tmp_path / f"out{suffix}")
        assert outputs.Output("", tmp_path / f"out{suffix}", "curve").is_own


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", "{}"),
        ("json", '{"model": "m", "notes": "mine"}'),
        ("json", '{"receipt_version": 1, "xverify": "0.1.0", "created": ""}'),
        ("json", '[{"name": "x"}]'),
        ("html", "<!doctype html><html><title>xverify: mine</title></html>"),
        ("markdown", "## PASS: mine, forward\n"),
        ("markdown", f"# Mine\n{outputs.MARK}\nand more\n"),
        ("junit", '<?xml version="1.0"?>\n<testsuites name="pytest tests"/>'),
        ("csv", "model,subject,mine\n"),
        ("curve", "<?xml version='1.0'?><svg/>"),
    ],
)
def test_what_only_looks_like_it_is_not_taken_for_xverifys_own(kind, text, tmp_path):
    (tmp_path / "mine").write_text(text)
    assert not outputs.Output("", tmp_path / "mine", kind).is_own


def test_a_report_does_not_take_the_place_of_an_older_result(place, xverify):
    before = (place.results / "r1.json").read_bytes()
    error = refused(xverify, "report", place.r, "--html", place.results / "r1.json")
    assert "is no page that xverify wrote" in error
    assert (place.results / "r1.json").read_bytes() == before


def test_a_history_replaces_its_own_files(place, xverify):
    pytest.importorskip("duckdb")
    for _ in range(2):
        write_all(xverify, ["history", "--results", place.results], ("html", "markdown", "csv"), place.folder)
        write_all(xverify, ["history", "--results", place.results, "--sql", "SELECT 1"], ("markdown",), place.folder)
    query = ["history", "--results", place.results, "--sql", "SELECT 1", "--csv", place.folder / "query.csv"]
    assert xverify(*query).code == 0
    assert "is no table that xverify wrote" in refused(xverify, *query)
    assert xverify(*query, "--force").code == 0


def test_a_result_in_a_model_folder_is_replaced_and_nothing_else_there_is(place, xverify):
    for _ in range(2):
        assert xverify("run", place.port, *FAST, "--json", place.port / "r.json").code == 0
    (place.port / "empty.py").write_text("")
    for mine in ("helper/table.json", "empty.py", "spec.py"):
        refused(xverify, "run", place.port, *FAST, "--json", place.port / mine, "--force")
    assert (place.port / "helper" / "table.json").read_text() == "[1, 2]"


def test_empty_files_and_devices_are_written(place, xverify):
    (place.folder / "empty.json").touch()
    assert xverify("run", place.port, *FAST, "--json", place.folder / "empty.json").code == 0
    assert json.loads((place.folder / "empty.json").read_text())["verdict"] == "PASS"
    assert xverify("run", place.port, *FAST, "--json", "/dev/null", "--html", "/dev/null").code == 0


def test_the_summary_of_a_workflow_is_never_what_is_read(place, xverify, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place.port / "spec.py"))
    before = contents(place.folder)
    assert "GITHUB_STEP_SUMMARY" in refused(xverify, "run", place.port, *FAST, "--html", place.folder / "x.html")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place.r))
    assert "GITHUB_STEP_SUMMARY" in refused(xverify, "diff", place.r, place.r)
    assert contents(place.folder) == before


# -- Python -----------------------------------------------------------------------------------------------------------


def test_python_is_held_to_the_same(place):
    mine = place.folder / "mine.json"
    mine.write_text("mine")
    before = contents(place.folder)
    settings = {"subjects": ["numpy"], "no_timing": True}
    for call in (
        lambda file: run(place.port, json=file, **settings),
        lambda file: check(place.m, json=file),
        lambda file: convert(place.port, place.folder / "new.onnx", json=file),
    ):
        with pytest.raises(UsageError, match="exists, and is no result file that xverify wrote; --force replaces it"):
            call(mine)
    for call in (
        lambda: run(place.port, json=place.port / "spec.py", force=True, **settings),
        lambda: check(place.m, json=place.m, force=True),
        lambda: convert(place.port, place.folder / "new.onnx", json=place.port / "numpy.py", force=True),
    ):
        with pytest.raises(UsageError, match="this command reads"):
            call()
    (place.folder / "kept").mkdir()
    with pytest.raises(UsageError, match="is in the folder of --receipt"):
        run(place.port, json=place.folder / "kept" / "r.json", receipt=place.folder / "kept", **settings)
    assert contents(place.folder) == before
    assert run(place.port, json=mine, force=True, **settings).verdict == "PASS"
    assert json.loads(mine.read_text())["verdict"] == "PASS"


def test_reports_of_pytest_replace_no_file_of_the_user(tested, tmp_path):
    place = tmp_path / "repository"
    (place / "README.md").write_text("# Mine\n")
    done = tested("def test():\n    pass\n", "--xverify-report=README.md")
    assert (done.code, (place / "README.md").read_text()) == (4, "# Mine\n")
    assert "exists, and is no Markdown report that xverify wrote; remove it, or name another file" in done.out
    for _ in range(2):
        assert tested("def test():\n    pass\n", "--xverify-report=out.md", "--xverify-report=out.json").code == 0

"""The command of a page: every declared option is written, read by the command's own parser, and compared."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.sampleresults import RESULT, of_files

from xverify.checking.options import CheckSettings
from xverify.commands._main import parser
from xverify.report.conditions import command
from xverify.results import file
from xverify.workload.asked import Asked
from xverify.workload.declaration import declared
from xverify.workload.options import RunSettings

FILES = ("a, b.onnx", "-strange.onnx", "it's one.tflite")
# A value of each option whose text has a form of its own. A new option of this kind needs one.
VALUES = {
    "shape": {"x": (1, 3, 224, 224), "a b": (), "s=t": (5,)},
    "map": {"logits": "output_0", "a b": "c, d"},
    "sizes": {"batch": (1, 2, 7), "a b": (3,)},
    "batch": (1, 7),
    "state": {"h_out": "h_in"},
    "python": {"jittor": "/a b/python"},
    "input_range": (-1.0, 0.1234567890123),
    "pin": (0, 1),
    "shards": (3, 1),
    "hosts": ("node1", "me@node2"),
    "task": "forward,train",
}
CASES = [
    pytest.param(name, record, option, id=f"{name} {option.flag}")
    for name, record in (("check", CheckSettings), ("run", RunSettings))
    for option in declared(record)
]


def value_of(option):
    """A value that is not the default."""
    if option.name in VALUES or option.parse is not None:
        return VALUES[option.name]
    if option.kind is bool:
        return True
    if option.choices:
        return next(each for each in option.choices if each != option.default)
    return {int: 7, float: 0.1234567890123}.get(option.kind, "-it's a name, or 'two'")


def read_back(result, record):
    """The words of the command of a result, and the settings that the command's own parser makes of them."""
    words = shlex.split(command(result))
    assert words[0] == "xverify"
    args = parser().parse_args(words[1:])
    options = declared(record)
    found = {each.name: getattr(args, each.name) for each in options}
    found |= {each.name: dict(found[each.name]) for each in options if each.repeatable and found[each.name] is not None}
    return args, record(**found)


def written(result, asked, tmp_path):
    """The result with this command, as its file is read."""
    path = tmp_path / "r.json"
    file.write(replace(result, settings=replace(result.settings, asked=asked)), path)
    return file.read(path)


@pytest.mark.parametrize(("name", "record", "option"), CASES)
def test_every_option_is_in_the_command_as_it_was_given(name, record, option, tmp_path):
    settings = record(**{option.name: value_of(option)})
    arguments = FILES if name == "check" else ("/a b/port",)
    others = {} if name == "check" else {"task": settings.task, "subjects": ("torch:eager", "jittor")}
    result = written(of_files(), Asked.of(name, arguments, settings, **others), tmp_path)
    args, found = read_back(result, record)
    assert found == settings
    assert getattr(found, option.name) != option.default
    if name == "check":
        assert [Path(each) for each in args.files] == [Path(each) for each in FILES]
    else:
        assert (args.model, args.subjects) == ("/a b/port", ["torch:eager", "jittor"])


@pytest.mark.parametrize("record", [CheckSettings, RunSettings])
def test_defaults_are_left_out(record):
    assert Asked.of("check", ["a.onnx"], record()).options == {}


def test_a_number_that_is_false_is_not_left_out():
    assert Asked.of("run", ["mlp"], RunSettings(task="train", weight_decay=0.0)).options["weight_decay"] == ("0",)


def test_the_command_of_several_tasks_has_the_options_of_all():
    parts = {
        task: replace(RESULT.receipt(), settings=replace(RESULT.settings, asked=Asked.of("run", ["mlp"], settings)))
        for task, settings in (
            ("forward", RunSettings(batch=3)),
            ("train", RunSettings(task="train", batch=3, lr=0.1)),
        )
    }
    result = replace(RESULT, receipts=parts)
    assert command(result) == "xverify run mlp --batch 3 --task forward,train --lr 0.1"


def test_a_file_of_an_earlier_version_gives_the_options_that_it_holds(tmp_path):
    path = tmp_path / "old.json"
    values = of_files().to_dict()
    del values["settings"]["asked"]
    file.write_json(values, path)
    assert command(file.read(path)) == "xverify check /a/model.onnx --against /a/ref.onnx"
    values = RESULT.to_dict()
    for settings in (values["settings"], *(each["settings"] for each in values["receipts"].values())):
        del settings["asked"]
    file.write_json(values, path)
    assert command(file.read(path)).startswith(
        "xverify run mlp --task forward,train --subjects torch:eager,jittor --batch 32 --seed 3"
    )

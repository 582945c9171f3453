import inspect
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

import xverify
from xverify.commands import run as command
from xverify.commands import selftest
from xverify.commands._arguments import Parser, add, values
from xverify.errors import UsageError
from xverify.reference.request import resolve
from xverify.selftest import timing as selftest_timing
from xverify.timing import plan
from xverify.workload import optimizers
from xverify.workload.declaration import Option, build, check, declared, described, option, parameters
from xverify.workload.options import (
    EFFORTS,
    HOW,
    OPTIMIZERS,
    CommonSettings,
    Display,
    OptimizerSettings,
    RunArguments,
    RunSettings,
    TrainingSettings,
    named,
)
from xverify.workload.request import Request


@dataclass(frozen=True, kw_only=True)
class More(RunSettings):
    """The settings, and one more."""

    passes: int = option(3, "passes over the data", group=HOW, metavar="N", least=1, task="train")


def test_a_new_option_needs_one_declaration_only():
    options = declared(More)
    parser = Parser(prog="xverify run")
    add(parser, options)
    assert "--passes N" in parser.format_help()
    assert "passes over the data (default: 3)" in parser.format_help()
    assert values(parser.parse_args(["--passes", "5"]), options)["passes"] == 5
    signature = inspect.Signature(parameters(options))
    assert "passes: int = 3" in str(signature)
    assert "passes: passes over the data (default: 3)." in described(options)
    with pytest.raises(UsageError, match="--passes is 0: it must be at least 1"):
        check(options, vars(More(passes=0)))
    with pytest.raises(UsageError, match="--passes is 0: it must be at least 1"):
        resolve("mlp", ["numpy"], More(passes=0))
    with pytest.raises(UsageError, match="--passes belongs to --task train; the task is forward"):
        resolve("mlp", ["numpy"], More(passes=2))
    assert More(passes=2).for_task("forward").passes == 3
    assert More(passes=2).for_task("train").passes == 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'pases'; did you mean 'passes'"):
        build(More, options, {"pases": 2}, "run")


def test_the_function_and_the_command_line_have_the_same_options():
    found = inspect.signature(xverify.run).parameters
    names = [each.name for each in (*declared(RunArguments), *declared(RunSettings))]
    assert sorted(found) == sorted(["model", "listener", *names])
    for each in declared(RunSettings):
        assert found[each.name].default == each.default
        assert found[each.name].annotation == each.annotation
        assert f"{each.name}: {each.says}." in xverify.run.__doc__
    parser = Parser(prog="xverify run")
    command.add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings} - {"-h", "--help"}
    assert flags == {each.flag for each in command.OPTIONS}


def test_a_wrong_keyword_names_the_nearest():
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'bacth'; did you mean 'batch'"):
        xverify.run("mlp", bacth=3)
    with pytest.raises(TypeError, match="did you mean 'listener'"):
        xverify.run("mlp", listner=None)


def test_a_request_has_every_setting():
    kept = {each.name for each in (*declared(CommonSettings), *declared(TrainingSettings))}
    assert kept | {"model", "subjects", "reference", "optimizer", "sizes", "other_sizes", "notes", "asked"} == {
        each.name for each in fields(Request)
    }
    request, _ = resolve("mlp", ["numpy"], RunSettings(batch=3, seed=7, strict=True, rerun=5))
    assert (request.batch, request.seed, request.strict, request.rerun) == (3, 7, True, 5)
    assert request.optimizer is None


def test_the_settings_of_an_optimizer_become_one_record():
    asked = RunSettings(task="train", optimizer="sgd", lr=0.5, momentum=0.9, nesterov=True, weight_decay=0.1)
    assert {each.name for each in declared(OptimizerSettings)} <= set(vars(asked))
    request, _ = resolve("mlp", ["torch:eager"], asked)
    assert request.optimizer == optimizers.optimizer("sgd", 0.5, 0.9, True, 0.1)


def test_names_that_are_in_two_files_are_equal():
    assert tuple(plan.EFFORTS) == EFFORTS
    assert tuple(optimizers.STATE_NAMES) == OPTIMIZERS
    assert tuple(selftest_timing.KINDS) == selftest.KINDS


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batch": 0}, "--batch is 0: it must be at least 1"),
        ({"batch": "8"}, "--batch is '8': it must be a whole number"),
        ({"batch": 2.5}, "--batch is 2.5: it must be a whole number"),
        ({"warmup": -1}, "--warmup is -1: it must be at least 0"),
        ({"seed": -1}, "--seed is -1: it must be at least 0"),
        ({"cases": 0}, "--cases is 0: it must be at least 1"),
        ({"timeout": 0}, "--timeout is 0: it must be above 0 seconds"),
        ({"timeout": float("nan")}, "--timeout is nan: it must be above 0 seconds"),
        ({"max_seconds": -0.5}, "--max-seconds is -0.5: it must be above 0 seconds"),
        ({"max_seconds": "ten"}, "--max-seconds is 'ten': it must be a number"),
        ({"effort": "standart"}, "--effort is 'standart'; did you mean 'standard'? Known: quick, standard, rigorous"),
        ({"device": "tpu"}, "--device is 'tpu'"),
        ({"task": "trian"}, "--task is 'trian'; did you mean 'train'? Known: forward, train, decode"),
        ({"task": "forward,trian"}, "--task is 'trian'; did you mean 'train'? Known: forward, train, decode"),
        ({"weights": "none.pt"}, "--weights none.pt: no such file"),
        ({"task": "train", "optimizer": "adm"}, "--optimizer is 'adm'; did you mean 'adam'? Known: sgd, adam,"),
        ({"nesterov": True}, "--nesterov belongs to --task train; the task is forward"),
        ({"lr": 0.1}, "--lr belongs to --task train; the task is forward"),
        ({"time_input": True}, "--time-input belongs to --task train; the task is forward"),
        ({"match_optimizer": True}, "--match-optimizer belongs to --task train; the task is forward"),
        ({"batch": True}, "--batch is True: it must be a whole number"),
        ({"seed": None}, "--seed is None: leave it out for its default, 0"),
        ({"pin": "0,1"}, "--pin is '0,1': it must be a list"),
        ({"python": "torch=/python"}, "--python is 'torch=/python': it must be a mapping"),
        ({"task": "train", "data": "nowhere"}, "--data nowhere: no such folder (folder with MNIST"),
        ({"pin": (99999,)}, "--pin 99999: this process may use the cores"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_limit(settings, says):
    with pytest.raises(UsageError) as error:
        xverify.run("mlp", ["numpy"], **settings)
    assert says in str(error.value)


def test_subjects_are_a_list():
    with pytest.raises(UsageError, match="--subjects is 'torch,numpy': it must be a list"):
        xverify.run("mlp", "torch,numpy")


def test_every_task_gets_its_own_settings():
    asked = RunSettings(task="forward,train", optimizer="adam", lr=0.1, time_input=True, seed=3)
    forward = asked.for_task("forward")
    assert forward == RunSettings(task="forward", seed=3)
    assert asked.for_task("train") == replace(asked, task="train")


@pytest.mark.parametrize(
    ("declaration", "text", "value"),
    [
        (named("batch"), "8", 8),
        (named("timeout"), "2.5", 2.5),
        (named("pin"), "0,1", (0, 1)),
        (named("python"), "jittor=envs/a=b", ("jittor", "envs/a=b")),
        (named("subjects"), "torch,jittor", ["torch", "jittor"]),
        (named("weights"), "w.pt", "w.pt"),
    ],
)
def test_text_of_the_command_line_is_read(declaration, text, value):
    assert declaration.read(text) == value


def test_help_names_the_default_once():
    assert named("seed").says == "seed of drawn weights and inputs (default: 0)"
    assert named("threads").says == "threads of every framework (default: all cores)"
    assert named("timeout").says.endswith("(default: 1800)")
    assert "default" not in named("strict").says
    assert Option("x", int | None, None, "a number").says == "a number"
    assert named("threads", default=2, unset="").says == "threads of every framework (default: 2)"


def test_every_default_is_the_one_that_the_documentation_tells():
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    section = page[page.index("## xverify run") : page.index("## xverify sweep")]
    rows = dict(re.findall(r"^\| `--([a-z-]+)[^|]*\| (.*) \|$", section, re.MULTILINE))
    told = 0
    for each in (*declared(RunSettings), *declared(RunArguments), *declared(Display)):
        says = rows[each.flag.removeprefix("--")]
        found = re.search(r"default (\S+?)(?:;|$)", says) or re.search(
            r"`(\w+)`[^;`]* \(default\)|`(\w+)` \(default\)", says
        )
        if each.unset or each.default in (None, ()) or each.kind is bool:
            assert each.default in (None, (), False), each.flag
            continue
        assert found, f"{each.flag}: the page does not tell the default {each.default}"
        assert next(filter(None, found.groups())) == (f"{each.default:g}" if each.kind is float else str(each.default))
        told += 1
    assert told == 7

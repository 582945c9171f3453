import re

import pytest
from conftest import write_folder

from xverify.commands._arguments import Parser, fit
from xverify.commands._main import EXIT_CODES, commands, main, parser

ACTIONS = [
    [name, *more]
    for name, sub in [(name, sub) for name, _, sub in parser().actions()]
    for more in [[], *([action] for action, _, _ in sub.actions())]
]


def shown(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", ["40", "80", "250"])
@pytest.mark.parametrize("arguments", [[], *ACTIONS], ids=" ".join)
def test_help_fits_80_columns_and_ends_with_an_example(arguments, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(arguments, capsys)
    assert max(map(len, text.splitlines())) < 80
    assert f"xverify {' '.join(arguments) or 'run'}" in text.split("example", 1)[1]
    assert "exit codes:\n  0  " in text
    assert text.index("usage:") < text.index("exit codes:") < text.index("example")


def test_help_of_a_run_is_grouped(capsys):
    text = shown(["run"], capsys)
    places = [
        text.index(f"\n{group}:\n") for group in ("what to run", "how to measure", "machine", "output", "options")
    ]
    assert places == sorted(places)
    assert "\ntraining (--task train):\n" in text
    assert "process run" in text
    assert not re.search(r"\blaunch(es)?\b", text), "a process run is called so"


def test_the_list_of_commands_is_grouped_and_complete(capsys):
    text = shown([], capsys)
    for name, command in commands().items():
        assert f"\n  {name} " in text
        assert f"\n{command.group}:\n" in text
        module = command.load()
        assert (command.help, command.group) == (module.HELP, module.GROUP)
    for meaning in EXIT_CODES.values():
        assert meaning in text


@pytest.mark.parametrize(
    ("arguments", "says", "look"),
    [
        (["rum"], "xverify: unknown command 'rum'; did you mean 'run'? Known: check, completion, convert,", "xverify"),
        (["--versoin"], "xverify: unknown option '--versoin'; did you mean '--version'?", "xverify"),
        (
            ["run", "mlp", "--bacth", "8"],
            "xverify run: unknown option '--bacth'; did you mean '--batch'?",
            "xverify run",
        ),
        (["run", "--bacth=8"], "xverify run: unknown option '--bacth'; did you mean '--batch'?", "xverify run"),
        (["run", "mlp", "--dtype", "float16"], "xverify run: unknown option '--dtype'.", "xverify run"),
        (["run", "mlp", "-z"], "xverify run: unknown option '-z'.", "xverify run"),
        (["run", "mlp", "again"], "xverify run: unexpected argument 'again'", "xverify run"),
        (["run"], "xverify run: the following arguments are required: MODEL|FOLDER", "xverify run"),
        (["run", "mlp", "--batch"], "xverify run: argument --batch: expected one argument", "xverify run"),
        (["env", "creat", "jax"], "xverify env: unknown action 'creat'; did you mean 'create'?", "xverify env"),
        (["env", "create", "jax", "--quite"], "option '--quite'; did you mean '--quiet'?", "xverify env create"),
        (["completion", "bsh"], "xverify completion: unknown shell 'bsh'; did you mean 'bash'?", "xverify completion"),
    ],
)
def test_error_messages_name_the_nearest_known_word(arguments, says, look, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    message, where = capsys.readouterr().err.splitlines()
    assert says in message
    assert where == f"See: {look} --help"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "mlp", "--effort", "standart"], "xverify run: --effort is 'standart'; did you mean 'standard'?"),
        (["mutate", "mlp", "--task", "trian"], "xverify mutate: --task is 'trian'; did you mean 'train'?"),
        (["mutate", "mlp", "--task", "forward,train"], "xverify mutate: --task is 'forward,train'"),
        (["mutate", "mlp", "--per-kind", "0"], "xverify mutate: --per-kind is 0: it must be at least 1"),
        (["selftest", "timing", "--only", "cheat"], "xverify selftest: --only is 'cheat'; did you mean 'cheats'?"),
        (["selftest", "timing", "--runs", "0"], "xverify selftest: --runs is 0: it must be at least 1"),
        (["reproduce", "mlp-mnist", "--repeats", "0"], "xverify reproduce: --repeats is 0: it must be at least 1"),
        (["optimizers", "--json", "no/such/o.json"], "the folder"),
        (["optimizers", "--frameworks", "torhc"], "xverify optimizers: --frameworks is 'torhc'; did you mean 'torch'?"),
        (["reproduce", "--scale", "0.5"], "xverify reproduce: --scale belongs to an experiment: name one of mlp-mnist"),
        (
            ["run", "mlp", "--task", "train", "--data", "nowhere"],
            "xverify run: --data nowhere: no such folder (folder with",
        ),
    ],
)
def test_error_messages_say_which_values_are_allowed(arguments, says, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_an_abbreviated_option_is_accepted():
    assert Parser(prog="x").parse_known_args([])[1] == []
    assert parser(load=["run"]).parse_args(["run", "mlp", "--eff", "standard"]).effort == "standard"


def test_long_lines_of_examples_are_broken_at_their_comment():
    example = "examples:\n  xverify run mlp" + " --batch 8" * 4 + "    what this shows\n\nProse that\nis filled."
    assert fit(example).splitlines() == [
        "examples:",
        "  xverify run mlp" + " --batch 8" * 4 + "    what this shows",
        "",
        "Prose that is filled.",
    ]
    longer = "  xverify run mlp" + " --batch 8" * 5 + "    what this shows, in more words"
    assert fit(longer).splitlines() == ["  xverify run mlp" + " --batch 8" * 5, "      what this shows, in more words"]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_help_ends_with_an_example(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    *_, last = capsys.readouterr().out.split("\n\n")
    assert last.startswith(("example: xverify", "examples:\n  xverify"))


def test_a_bare_command_prints_the_help_and_is_no_pass(capsys):
    assert main([]) == 2
    assert capsys.readouterr().out == shown([], capsys)


@pytest.mark.parametrize(
    ("words", "same"), [(["help"], []), (["help", "RUN"], ["run"]), (["help", "env", "create"], ["env", "create"])]
)
def test_help_is_a_word_too(words, same, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    assert capsys.readouterr().out == shown(same, capsys)


def test_help_of_an_unknown_command_names_the_nearest(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["help", "rum"])
    assert stop.value.code == 2
    assert "unknown command 'rum'; did you mean 'run'?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], *ACTIONS], ids=" ".join)
def test_the_short_help_is_shorter_and_names_every_option(arguments, capsys):
    whole = shown(arguments, capsys)
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "-h"])
    assert stop.value.code == 0
    short = capsys.readouterr().out
    assert max(map(len, short.splitlines())) < 80
    assert len(short.splitlines()) < len(whole.splitlines())
    assert short.splitlines()[0] == whole.splitlines()[0]
    if arguments:
        groups = whole.split("\noptions:\n")[0]
        assert [flag for flag in re.findall(r"^  (--[a-z-]+)", groups, re.MULTILINE) if flag not in short] == []


def test_the_short_help_of_a_run_fits_a_screen(capsys):
    with pytest.raises(SystemExit):
        main(["run", "-h"])
    assert len(capsys.readouterr().out.splitlines()) < 24


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "port/torch.py"], "port/torch.py: the file of a model folder; name the folder: port"),
        (["run", "own.py"], "own.py: a Python file, and no model folder; write FILE.py:FUNCTION for"),
        (["run", "x y.keras"], "x y.keras: a file, and no model folder; `xverify check 'x y.keras'`"),
        (["convert", "x y.keras", "--to", "onnx", "x.onnx"], "x y.keras: the file is empty"),
        (["convert", "none.keras", "--to", "onnx", "x.onnx"], "none.keras: there is no such file"),
    ],
)
def test_a_file_in_the_place_of_a_folder_says_what_was_meant(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "port", ("torch",))
    for name in ("own.py", "x y.keras"):
        (tmp_path / name).write_text("")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1

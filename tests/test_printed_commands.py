"""Every command that is printed anywhere can be run as it is printed: in the documentation, in help, in messages, by the doctor.

Commands of pip are run in an environment with nothing but the wheel of xverify. Their index has only packages of others, one of
which is called xverify.
"""

import ast
import json
import re
import shlex
from functools import cache

import pytest
from helpers.wheels import ROOT, Place, build, copy_sources, foreign_index
from test_docs import PAGES, fault

from xverify import installed
from xverify.commands._main import commands
from xverify.environments import store
from xverify.framework import discovery
from xverify.framework import formats as model_files

# Packages that a command names, and no lock file has.
OTHERS = ("diffusers", "timm", "transformers", "pytest", "uv")
# A word of a message that stands for what is filled in -> a value.
FILLED = {"…": "jax", "MODEL": "mlp", "FILE": "r.json"}
WORD = (
    r"(?:--[a-z][\w-]*|[A-Z]{3,}(?:\.json)?|FILE\.json|page\.html|\.\.\.|…(?:/\*\.json)?"
    r"|(?:create|remove|list|timing|mlp|llamacpp|resnet50|train|[a-z]+:[a-z]+,[a-z]+)\b)"
)


@cache
def shown():
    """Every text that the code can show, with … for what is filled in; docstrings are not shown."""
    found = []
    for file in sorted([*(ROOT / "xverify").rglob("*.py"), *(ROOT / "weights").rglob("*.py")]):
        tree = ast.parse(file.read_text())
        docs = {id(node.body[0].value) for node in ast.walk(tree) if _has_docstring(node)}
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                filled = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(filled))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | parts:
                found.append(node.value)
    return found


def _has_docstring(node):
    body = getattr(node, "body", None)
    return isinstance(body, list) and bool(body) and isinstance(body[0], ast.Expr)


def pages():
    """The text of every page, with its line breaks within a command removed."""
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        text = page.read_text()
        yield re.sub(r"`[^`\n]+\n[^`\n]+`", lambda span: " ".join(span[0].split()), text)


# -- pip --------------------------------------------------------------------------------------------------------------


def of_pip(text):
    """Every ``pip install`` of a text, up to the end of the command or of its sentence."""
    ends = r"[^`\n;()|'\"]|'[^'\n]*'|\"[^\"\n]*\""
    for found in re.findall(rf"\bpip install (?:(?!pip install)(?:{ends}))*", text):
        words = []
        for word in re.findall(r"""'[^']*'|"[^"]*"|\S+""", found):
            ends = word[0] not in "'\"" and len(word) > 1 and word[-1] in ".,:"
            words.append(word[:-1] if ends else word)
            if ends:
                break
        yield " ".join(words)


def printed():
    """Every command of pip that is printed as it stands, in an order that does not change; one with a place to fill in is not."""
    texts = "\n".join([*pages(), *shown()])
    return sorted({command for command in of_pip(texts) if not {*"…{"} & {*command} and len(command.split()) > 2})


PRINTED = printed()


def test_commands_of_pip_are_found_to_their_end():
    text = 'type `pip install -e ".[a,b]"` or (`pip install c`), see pip install d==1.0 e. With pip install f, which'
    assert list(of_pip(text)) == ['pip install -e ".[a,b]"', "pip install c", "pip install d==1.0 e", "pip install f"]
    assert len(PRINTED) > 15
    assert {'pip install -e ".[torch,tensorflow]"', "pip install shtab", "pip install 'xverify-frameworks[torch]'"} <= {
        *PRINTED
    }
    assert [command for command in PRINTED if re.search(r"['\" ]xverify(?!-)\b", command)] == []


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """(environment, folder): the wheel is installed; the folder is a checkout, a repository with the wheel, and has a lock."""
    folder = copy_sources(tmp_path_factory.mktemp("checkout"))
    wheel = build(folder)
    for name in ("dist", "wheels"):
        (folder / name).mkdir()
        (folder / name / wheel.name).write_bytes(wheel.read_bytes())
    (folder / "requirements.lock").write_text("")  # which packages it has is decided where it is made
    made = Place(tmp_path_factory.mktemp("place") / "venv")
    made.use_index(foreign_index(tmp_path_factory.mktemp("index") / "files", OTHERS))
    made.call("pip", "install", str(wheel), cwd=folder)
    return made, folder


def dry_run(place, command):
    """The packages that a command would install into the environment."""
    environment, folder = place
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    words = command.replace("pip install ", f"pip install --dry-run --report {report} ", 1)
    code, said = environment.shell(words, folder)
    assert code == 0, said
    assert "does not provide the extra" not in said
    return {each["metadata"]["name"] for each in json.loads(report.read_text())["install"]}


@pytest.mark.slow
@pytest.mark.parametrize("command", PRINTED)
def test_a_printed_command_of_pip_installs_what_it_names_and_no_foreign_xverify(place, command):
    found = dry_run(place, command)
    assert "xverify" not in found
    extras = re.findall(r"\[([\w,-]+)\]", command)
    if extras:
        wanted = {"torch": "torch", "tensorflow": "tensorflow-cpu", "plot": "matplotlib", "all": "torch"}
        assert {wanted.get(name, name) for name in extras[0].split(",")} & {each.lower() for each in found} or (
            extras[0] in ("cluster", "litert", "paddle")
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "jittor", "tensorflow", "litert,tensorflow", "plot", "cluster", "all"])
def test_the_command_for_an_extra_asks_no_index_for_xverify(place, name):
    environment, folder = place
    code = f"from xverify import installed; print(installed.extra({name!r}))"
    command = environment.call("python", "-I", "-c", code, cwd=folder).strip()
    assert command == f"pip install 'xverify-frameworks[{name}]'"
    found = dry_run(place, command)
    assert found
    assert not {"xverify", "xverify-frameworks"} & found


def test_without_the_distribution_the_command_names_the_folder_of_the_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(installed, "DISTRIBUTION", "no-such-distribution")
    assert installed.extra("torch") == f"pip install -e {shlex.quote(f'{ROOT}[torch]')}"
    monkeypatch.setattr(installed, "SOURCES", tmp_path)
    assert installed.extra("torch") == "pip install 'no-such-distribution[torch]'"


OWN = {
    **dict.fromkeys(discovery.files(), discovery.load),
    **dict.fromkeys(model_files.files(), model_files.load),
}


@pytest.mark.parametrize("name", sorted(OWN))
def test_the_remedy_for_a_framework_is_an_extra_that_exists_or_an_environment(name):
    said = store.remedy(OWN[name](name))
    text = (ROOT / "pyproject.toml").read_text()
    extras = [each for names in re.findall(r"pip install (?:-e )?\S*\[([^\]]+)\]", said) for each in names.split(",")]
    environments = re.findall(r"xverify env create ([\w-]+)", said)
    assert extras or environments
    assert [each for each in extras if not re.search(rf"^{each} = \[", text, re.MULTILINE)] == [
        each for each in extras if each == "numpy"
    ]
    assert [each for each in environments if each not in store.pins()] == []


# -- xverify and make -------------------------------------------------------------------------------------------------


def of_xverify(text):
    """Every command of xverify in a message, with values for what is filled in."""
    for command in re.findall(rf"\bxverify (?:{'|'.join(commands())})(?: {WORD})*", text):
        words = [FILLED.get(word, word) for word in command.split() if word != "..."]
        yield " ".join("results/a.json" if "*" in word else word for word in words)


def test_every_command_of_xverify_in_a_message_is_parsed():
    found = {command for text in shown() if "\n  xverify " not in text for command in of_xverify(text)}
    assert len(found) > 15
    assert {command: why for command in sorted(found) if (why := fault(command))} == {}


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_of_a_help_is_parsed(name):
    example = commands()[name].load().EXAMPLE
    example = re.sub(r"\n +(?=--)", " ", example)  # a long command goes on in the next line
    lines = re.findall(r"^ *(?:example: )?(xverify .*)", example, re.MULTILINE)
    assert lines
    found = [
        each.strip() for line in lines for each in re.split(r"\s{2,}|;| > | \| ", line) if each.startswith("xverify ")
    ]
    assert {command: why for command in found if (why := fault(command))} == {}


def test_every_target_of_make_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = "\n".join(pages())
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", texts, re.MULTILINE | re.DOTALL))
    named = {*re.findall(r"`make ([a-z-]+)`", texts), *re.findall(r"^make ([a-z-]+)", blocks, re.MULTILINE)}
    assert len(named) > 8
    assert named - targets == set()

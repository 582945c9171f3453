"""The documentation as a whole: every command line is parsed, every option described, every link leads somewhere."""

import argparse
import ast
import dataclasses
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from xverify.commands._main import commands, parser, spelled
from xverify.report import terms
from xverify.workload.spec import zoo

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
COMMAND_LINE = "\n".join((ROOT / "docs" / f"command-line{more}.md").read_text() for more in ("", "-tools"))
# A word that stands for a value of the reader's own, where the parser wants a number or a choice.
VALUES = {"N": "1", "S": "1", "X": "0.1"}
MOST_LINES = 340
# Models of the examples, and words that stand for one.
EXAMPLES = ("my_port", "my_llama", "tiny", "MODEL", "NAME")


def pages():
    return pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


# -- command lines ----------------------------------------------------------------------------------------------------


def command_lines(text):
    """Every ``xverify ...`` that a text shows, in code blocks and between backticks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines()]
    shown += [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    shown += re.findall(r"<code>([^<]+)</code>", prose)
    for line in shown:
        found = re.match(r"(?:\$ |source <\()?(?:\w+=\S+ )?(xverify(?: .*|$))", line.strip())
        if found:
            yield re.split(r" # | > |  ", found[1].removesuffix(")"))[0].strip()  # two blanks: what it is for


def known_model(model):
    in_project = Path(__file__).parents[1] / model / "spec.py"
    return model in zoo() or Path(model).name in EXAMPLES or in_project.is_file()


def fault(line):
    """What is wrong with a command line; '' when the real parser takes it."""
    words = spelled([VALUES.get(word, word) for word in shlex.split(line)[1:]])
    if not words:
        return ""
    if words[0] in commands() and len(words) == 1:
        return ""  # the name of the command alone
    try:
        args = parser().parse_args(words)
    except SystemExit as stop:
        return "" if stop.code == 0 else "the parser refuses it"
    models = [args.model] if args.command == "run" else args.models if args.command in ("mutate", "sweep") else []
    strange = [model for model in models if not known_model(model) and Path(model).suffix != ".toml"]
    return f"unknown model {strange[0]}" if strange else ""


@pages()
def test_every_command_line_is_parsed(page, capsys):
    lines = list(command_lines(page.read_text()))
    wrong = {line: why for line in lines if (why := fault(line))}
    assert wrong == {}, capsys.readouterr().err


def test_command_lines_are_found_and_a_wrong_one_is_refused():
    prose = "`xverify run mlp\n--batch N` and `xverify run mlp --bacth 2`\n\n"
    text = f"{prose}```\n$ A=b xverify run mpl\nxverify env crate jax\n```\n"
    found = list(command_lines(text))
    assert found == [
        "xverify run mpl",
        "xverify env crate jax",
        "xverify run mlp --batch N",
        "xverify run mlp --bacth 2",
    ]
    assert [bool(fault(line)) for line in found] == [True, True, False, True]
    assert len({line for page in PAGES for line in command_lines(page.read_text())}) > 40


# -- options ----------------------------------------------------------------------------------------------------------


def options(of, name):
    """Path of every command -> its options, e.g. "xverify env create" -> {"--force", ...}."""
    own, below = set(), {}
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                below |= options(inner, f"{name} {word}")
        own |= {text for text in action.option_strings if text.startswith("--")} - {"--help", "--version"}
    return {name: own, **below}


def sections():
    """Command -> what docs/command-line.md says of it."""
    parts = re.split(r"^## xverify (\w+)\n", COMMAND_LINE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def test_every_command_has_a_section_and_every_section_a_command():
    assert set(sections()) == set(commands())


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_option_is_described_and_every_described_option_exists(command):
    everything, section = options(parser(), "xverify"), sections()[command]
    own = set().union(*(found for name, found in everything.items() if name.split()[1:2] == [command]))
    if command == "sweep":  # whose runs take the options of another command, as its section says
        own -= everything["xverify run"] - set(re.findall(r"`(--[a-z-]+)", section))
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section))
    assert own <= shown, "describe them in docs/command-line.md"
    assert shown <= set().union(*everything.values()), "there are no such options"
    rows = {
        name
        for line in re.findall(r"^\| (`--.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(--[a-z-]+)", line)
    }
    if command == "sweep":
        own -= everything["xverify run"] - rows
    if command not in ("env", "weights"):  # whose tables list their actions
        assert rows == own


# -- links and paths --------------------------------------------------------------------------------------------------


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(text, folder):
    """The relative links and images of a page that lead nowhere."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        file = folder / path if path else None
        missing = file is not None and not file.exists()
        if missing or (anchor and anchor not in anchors(file.read_text() if file else text)):
            yield target


@pages()
def test_every_link_leads_somewhere(page):
    assert list(broken_links(page.read_text(), page.parent)) == []


def test_a_broken_link_is_found():
    text = "# A title: here\n[a](docs/verdict.md) [b](docs/none.md) [c](#a-title-here) [d](#none) [e](docs/verdict.md#none) [f](https://x.org)"
    assert list(broken_links(text, ROOT)) == ["docs/none.md", "#none", "docs/verdict.md#none"]


def test_every_page_is_in_the_index_and_short_enough():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page.name: count for page in PAGES if (count := len(page.read_text().splitlines())) > MOST_LINES} == {}


def missing_paths(text):
    """The files and folders of this repository that a text names between backticks, and that are not there."""
    for path in re.findall(r"`((?:xverify|weights|models|tests|docs|bench)/[\w./-]*)`", text):
        if not (ROOT / path).exists():
            yield path


@pages()
def test_every_named_file_exists(page):
    assert [path for path in missing_paths(page.read_text()) if "NAME" not in path] == []


def named_things(text):
    """(name, file) of every "`name` in `file`" and "`name` and `name` in `file`" of a text."""
    for names, file in re.findall(r"((?:`[\w.]+`(?: and )?)+) in `((?:xverify|weights)/[\w/]+\.py)`", text):
        for name in re.findall(r"`([\w.]+)`", names):
            yield name, file


def is_defined(name, file):
    """Whether a file defines this class, function or constant."""
    return re.search(rf"(def|class) {name}\b|^{name}\b", (ROOT / file).read_text(), re.MULTILINE) is not None


def test_the_things_that_the_architecture_names_are_where_it_says():
    pages = ("architecture", "glossary", "extending", "adding-a-framework")
    found = [each for page in pages for each in named_things((ROOT / "docs" / f"{page}.md").read_text())]
    assert len(found) > 40
    assert [f"{name} in {file}" for name, file in found if not is_defined(name, file)] == []


def packages():
    """The packages and files of the order of imports in pyproject.toml, by their names without ``xverify``."""
    text = (ROOT / "pyproject.toml").read_text()
    [layers] = re.findall(r'^id = "order"\n.*?^layers = \[\n(.*?)^\]', text, re.MULTILINE | re.DOTALL)
    return re.findall(r"[a-z]\w*", layers.replace('"', ""))


def test_the_order_of_packages_names_every_package_and_every_file():
    top = [each for each in (ROOT / "xverify").iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]
    names = {each.stem for each in top if not each.stem.startswith("__")} | {"models", "weights"}
    assert sorted(packages()) == sorted(names)


def test_the_picture_and_the_maps_have_every_package():
    text = (ROOT / "docs" / "architecture.md").read_text()
    picture = text[text.index("┌─ the parent") : text.index("| code | where it runs")]
    inside = "\n".join(line for line in picture.splitlines() if not line.startswith("┌"))
    assert {name: len(re.findall(rf"\b{name}\b", inside)) for name in packages()} == dict.fromkeys(packages(), 1)
    for page in ("docs/architecture.md", "CONTRIBUTING.md"):
        listed = re.findall(r"^(?:\| `)?xverify/(\w+)/(?:`| )", (ROOT / page).read_text(), re.MULTILINE)
        folders = {name for name in packages() if (ROOT / "xverify" / name / "__init__.py").exists()}
        assert set(listed) == folders, page


def test_the_words_of_the_glossary_are_used_in_order_and_once():
    text = (ROOT / "docs" / "glossary.md").read_text()
    others = "\n".join(page.read_text() for page in PAGES if page.name != "glossary.md").lower()
    code = "\n".join(path.read_text() for folder in ("xverify", "weights") for path in (ROOT / folder).rglob("*.py"))
    tables = [re.findall(r"^\| ([^|]+) \| [A-Z]", part, re.MULTILINE) for part in text.split("## ")[1:]]
    assert [len(rows) > 3 for rows in tables] == [True] * 5
    for rows in tables:
        assert rows == sorted(rows, key=str.lower)
    words = [word for rows in tables for row in rows for word in row.split(", ")]
    assert len(set(words)) == len(words)
    assert [word for word in words if word.lower() not in others and word not in code] == []


def test_what_a_page_says_of_a_term_is_the_beginning_of_its_entry_in_the_glossary():
    text = (ROOT / "docs" / "glossary.md").read_text().replace("\\|", "¦").replace("`", "")
    entries = {
        word.replace("¦", "|"): says for word, says in re.findall(r"^\| ([^|]+) \| (.+) \|$", text, re.MULTILINE)
    }
    assert len(terms.TERMS) > 30
    assert [term for term, says in terms.TERMS.items() if not entries.get(term, "").startswith(says)] == []


# -- messages ----------------------------------------------------------------------------------------------


@cache
def texts():
    """Every string that the code can show, with … for what is filled in."""
    found = []
    for file in [*(ROOT / "xverify").rglob("*.py"), *(ROOT / "weights").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                )
    return found


def is_a_message(text):
    """Whether the code holds every fixed part of this message."""
    return all(any(part in shown for shown in texts()) for part in re.split(r"\s*…\s*", text) if len(part) > 1)


def test_every_message_of_the_troubleshooting_page_is_one_of_the_code():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    table = page[page.index("## Messages") :]
    messages = [
        text for row in re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE) for text in re.findall(r"`([^`]+)`", row)
    ]
    assert len(messages) > 25
    assert [text for text in messages if not is_a_message(text)] == []
    assert not is_a_message("… has no spec file: write SPEC")


@pytest.mark.parametrize("command", ["run", "check", "convert"])
def test_the_options_that_python_lacks_are_those_that_the_page_names(command):
    from xverify.checking.options import CheckSettings
    from xverify.conversion.api import SETTINGS
    from xverify.workload.declaration import declared
    from xverify.workload.options import RunArguments, RunSettings

    options = {
        "run": (*declared(RunSettings), *declared(RunArguments)),
        "check": declared(CheckSettings),
        "convert": SETTINGS,
    }
    page = (ROOT / "docs" / "command-line.md").read_text()
    part = re.split(r"^## ", page[page.index(f"## xverify {command}\n") :], maxsplit=2, flags=re.MULTILINE)[1]
    [named] = re.findall(r"the same options, except\s+those that only .*?\((.*?)\)", part, re.DOTALL)
    [sub] = [each for name, _, each in parser().actions() if name == command]
    flags = {flag for action in sub._actions for flag in action.option_strings if flag.startswith("--")} - {"--help"}
    known = {"--json", "--force", *(each.flag for each in options[command])}
    assert sorted(re.findall(r"`(--[\w-]+)`", named)) == sorted(flags - known)


# -- the result file, the report, and adapters ------------------------------------------------------------------------


def test_every_field_of_the_result_file_is_described():
    from xverify.results import conditions, plan, precision, records

    kinds = [
        *(precision.Precision, precision.Quantisation, precision.LayerCost),
        *(plan.Plan, plan.PlannedFile, plan.PlannedLayer),
        *(records.Result, records.Row, records.Error, records.TensorError, records.Layers, records.LayerError),
        *(
            records.Speed,
            records.ProcessRun,
            records.Sample,
            records.Memory,
            records.Training,
            records.Check,
            records.Curve,
            records.EndLosses,
        ),
        *(conditions.Host, conditions.WeightsSummary, conditions.InputsSummary, conditions.ReferenceSummary),
        conditions.NoiseSummary,
    ]
    shown = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "result-file.md").read_text()))
    fields = {each.name for kind in kinds for each in dataclasses.fields(kind)} | set(records.EARLIER_NAMES.values())
    assert fields - shown == set(), "describe them in docs/result-file.md"


def test_every_column_of_a_report_is_described():
    from xverify.report import layers, rows

    text = (ROOT / "docs" / "report.md").read_text().replace("\\|", "|")
    titles = [
        column.title
        for column in (*rows.COLUMNS, *rows.TIMES, *rows.MEMORY, *layers.COLUMNS)
        if column.title != rows.RATE
    ]
    titles += [column.short for column in rows.COLUMNS if column.short]
    heads = {head.strip() for row in re.findall(r"^\| (.+?) \| ", text, re.MULTILINE) for head in row.split(", ")}
    assert [title for title in titles if title not in heads] == []
    assert {"input R", "residual / noise floor"} <= heads


def test_every_name_of_the_adapter_that_is_explained_exists():
    text = "\n".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("extending", "adding-a-framework"))
    part = text[text.index("## Add a mode") :]
    prose = re.sub(r"^```\w*\n.*?^```", "", part, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([A-Za-z_]+)(?:\([\w, ]*\)| = [^`]*)?`", prose)) - {
        "onnxreference",
        "XVERIFY_FRAMEWORKS",
        "forbidden_modules",
    }
    files = [ROOT / "xverify", ROOT / "weights"]
    code = "\n".join(file.read_text() for folder in files for file in folder.rglob("*.py"))
    assert len(named) > 30
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", code)] == []
    modules = ("adapter", "runner", "trains", "dropout", "training")
    interface = [ROOT / "xverify" / "framework" / f"{name}.py" for name in modules]
    adapter = "\n".join(file.read_text() for file in interface)
    assert {name for name in named if re.search(rf"\b{name}\b", adapter)} >= {
        *("graph_count", "default_modes", "implicit_mode", "fused_parameters", "disable_dropout", "release_memory"),
        *("optimizer_state", "set_optimizer_state", "BackwardPass", "Array"),
    }

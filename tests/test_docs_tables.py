"""The tables and files that the documentation shows are those of the code, of the zoo and of the evidence."""

import re
from pathlib import Path

from xverify.commands._main import main

ROOT = Path(__file__).parent.parent


def test_the_table_of_what_runs_what_is_the_command_s(capsys):
    assert main(["list", "--markdown"]) == 0
    text = (ROOT / "docs" / "models.md").read_text()
    [table] = re.findall(r"<!-- xverify list --markdown -->\n(.*?)<!-- end of the table -->", text, re.DOTALL)
    assert table == capsys.readouterr().out, "write the output of `xverify list --markdown` into docs/models.md"


def test_the_table_of_mutations_is_one_that_the_command_prints():
    from xverify.commands.mutate import COLUMNS

    text = (ROOT / "docs" / "evidence.md").read_text()
    [table] = re.findall(r"<!-- xverify mutate -->\n(.*?)\n<!--", text, re.DOTALL)
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert tuple(head) == COLUMNS
    for row in rows:
        planted, caught, fails, drifts, _, _, untested, missed, *_ = map(int, row[1:])
        assert planted == caught + untested + missed
        assert caught == fails + drifts
    assert rows[-1][0] == "all"
    assert [sum(map(int, column)) for column in list(zip(*rows[:-1]))[1:]] == list(map(int, rows[-1][1:]))


def test_the_table_of_keras_layers_has_every_layer_of_the_code():
    from xverify.weights import keras_table

    text = (ROOT / "docs" / "folder-keras.md").read_text()
    table = text[text.index("## Weights of Keras layers") : text.index("## Weights of layers of your own")]
    shown = set(re.findall(r"`(\w+)[`(]", table)) | {"GroupedQueryAttention"}  # Keras exports it as GroupQueryAttention
    known = {*keras_table.LAYERS, *keras_table.RULES}
    assert len(known) > 35
    assert sorted(name for name in known if name not in shown and name.removesuffix("Cell") not in shown) == []


def test_the_page_of_each_framework_shows_a_file_of_the_zoo():
    files = {path.name for path in (ROOT / "models" / "mlp").glob("*.py")} - {"spec.py"}
    pages = sorted((ROOT / "docs").glob("folder-*.md"))
    text = "\n".join(page.read_text() for page in pages)
    shown = [(ROOT / "models" / "mlp" / name).read_text() in text for name in sorted(files)]
    assert shown == [True] * len(pages) + [True]  # JAX and numpy have one page
    assert set(re.findall(r"`models/mlp/(\w+\.py)`", text)) == files - {"numpy.py"}
    linked = re.findall(r"\]\((folder-\w+\.md)\)", (ROOT / "docs" / "model-folder.md").read_text())
    assert {page.name for page in pages} <= set(linked)


def test_the_figures_of_the_readme_are_those_of_the_evidence():
    evidence = (ROOT / "docs" / "evidence.md").read_text()
    [table] = re.findall(r"<!-- xverify mutate -->\n(.*?)\n<!--", evidence, re.DOTALL)
    sums = [cell.strip() for cell in table.splitlines()[-1].strip("| ").split("|")]
    _, planted, caught, *_, untested, _, clean, alarms = sums
    readme = (ROOT / "README.md").read_text()
    assert f"| {alarms} of {clean} | {caught} of {planted} ({untested} UNTESTED) |" in readme
    ports, right, visible, found = re.search(
        r"It has (\d+) ports .*? All (\d+) right rows were EQUAL; of (\d+) faults .*?, (\d+)\s", evidence, re.DOTALL
    ).groups()
    assert f"`make ports`, {ports} ports of other models | 0 of {right} | {found} of {visible} |" in readme

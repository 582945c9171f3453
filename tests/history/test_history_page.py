"""The page of a history, which Chromium opens where it is installed, its text in a terminal, its Markdown, and its CSV."""

import csv
import io
import re
from dataclasses import replace

import pytest
from helpers.historyresults import keep, result, trained
from helpers.htmlpages import Page, check_accessible, check_drawn
from helpers.sampleresults import HOSTILE
from helpers.terminals import in_terminal

from xverify.commands._main import main

pytest.importorskip("duckdb")


def many():
    """Regressions, improvements, gaps and a machine of its own."""
    slower = [
        result(day, ratio=1.1 if day < 15 else 1.3, jittor="1.3.10" if day < 15 else "1.3.11") for day in range(1, 25)
    ]
    quick = [result(day, ratio=1.2, speed=None) for day in (25, 26)]
    wrong = [
        result(27, verdict="DRIFT", rho=5.0, ratio=1.3),
        result(28, verdict="DIFFERENT", rho=900.0, ratio=1.3, device=50.0),
    ]
    better = [result(day, model="resnet50", memory=500.0 if day < 3 else 300.0) for day in range(1, 5)]
    return [*slower, *quick, *wrong, *better, trained(1), trained(2, 9.0), result(1, model="only once")]


def hostile():
    made = []
    for name in (each for each in HOSTILE.values() if "\udcff" not in each):
        made += [
            replace(result(day, model=name, verdict=verdict), xverify=name)
            for day, verdict in ((1, "EQUAL"), (2, "DRIFT"))
        ]
    return made


PAGES = {"many": many, "hostile": hostile, "one": lambda: [result(1)], "nothing": list}


def write_page(name, folder):
    keep(folder / "results", *PAGES[name]())
    assert main(["history", "--results", str(folder / "results"), "--html", str(folder / "page.html")]) in (0, 1, 4)
    return folder / "page.html"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_needs_no_network_and_no_script(name, tmp_path):
    text = write_page(name, tmp_path).read_text()
    found = Page(text, between=" ")
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(found.elements)
    assert not {"src", "style"} & {name for _, name, _ in found.attributes}
    assert "url(" not in text
    assert "@import" not in text
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in found.values("href")} <= set(ids)
    assert "nan" not in " ".join(found.values("d"))


def test_a_page_has_a_chart_for_each_series_and_every_change(tmp_path):
    found = Page(write_page("many", tmp_path).read_text(), between=" ")
    text = " ".join(found.text.split())
    assert "WORSE 1 of 8 series in their newest result: mlp, forward, jittor" in text
    assert found.elements.count("figure") == 8
    assert "time ratio 1.100 (1.080–1.120) → 1.300 (1.280–1.320), 18% slower" in text
    assert "changed at the same time: jittor 1.3.10 → 1.3.11" in text
    assert "verdict DRIFT → DIFFERENT" in text
    assert "peak memory 500 MiB → 300 MiB, 40% less" in text
    assert "time ratio: time / time of torch:eager" in text
    assert "peak memory of the device, MiB" in text
    assert "residual / noise floor, with the limits of EQUAL (3) and DRIFT (10)" in text


def test_the_first_screen_says_what_is_worse_and_charts_without_a_change_are_closed(tmp_path):
    keep(tmp_path / "results", result(1), result(2, verdict="DIFFERENT", rho=900.0))
    assert main(["history", "--results", str(tmp_path / "results"), "--html", str(tmp_path / "page.html")]) == 1
    page = (tmp_path / "page.html").read_text()
    first_screen = " ".join(Page(page, between=" ").text.partition("newest verdict")[0].split())
    assert "mlp, forward, jittor : verdict EQUAL → DIFFERENT; reason: " in first_screen
    assert [part.count("<summary>Its results") for part in page.split("<section")[1:]] == [0, 1]


def test_points_are_inside_of_their_drawing(tmp_path):
    text = write_page("many", tmp_path).read_text()
    places = [(float(x), float(y)) for x, y in re.findall(r"M(-?[0-9.]+) (-?[0-9.]+)", text)]
    assert len(places) > 100
    assert all(0 <= x <= 640 and 0 <= y <= 640 for x, y in places)


def test_a_page_of_many_series_is_of_a_limited_size(tmp_path):
    keep(tmp_path / "results", *(result(day, model=f"m{model}") for model in range(40) for day in (1, 2)))
    page = tmp_path / "page.html"
    assert main(["history", "--results", str(tmp_path / "results"), "--html", str(page)]) == 0
    found = Page(page.read_text(), between=" ")
    assert found.elements.count("figure") == 60
    assert "The first 60 series have a chart" in found.text
    assert len(page.read_text()) < 1_000_000


def test_markdown_and_csv_have_every_change(tmp_path, capsys):
    keep(tmp_path, *many())
    assert main(["history", "--results", str(tmp_path), "--format", "markdown"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("## WORSE: 1 of 8 series in their newest result")
    assert text.index("### Regressions") < text.index("### Improvements") < text.index("### Other changes")
    assert "5 series without a change." in text
    assert main(["history", "--results", str(tmp_path), "--format", "csv", "--all"]) == 1
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["effect"] for row in rows if row["measure"] == "time ratio"] == ["worse"]
    [slower] = [row for row in rows if row["measure"] == "time ratio"]
    assert (slower["newest"], slower["meanwhile"]) == ("False", "jittor 1.3.10 → 1.3.11")
    assert sum(row["measure"] == "" for row in rows) == 5
    assert rows[0]["model"] == "mlp"


def test_the_summary_of_a_workflow_gets_the_markdown(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    main(["history", "--results", str(keep(tmp_path / "r", result(1), result(2)))])
    assert (tmp_path / "summary.md").read_text().startswith("## NOT WORSE: 2 series of 2 results")


def test_quiet_prints_the_last_line_alone_and_all_prints_every_series(tmp_path, capsys):
    keep(tmp_path, *many())
    (tmp_path / "other.json").write_text("{}")
    assert main(["history", "--results", str(tmp_path), "--quiet"]) == 1
    done = capsys.readouterr()
    assert done.out == "WORSE 1 of 8 series in their newest result: mlp, forward, jittor\n"
    assert done.err == ""
    main(["history", "--results", str(tmp_path)])
    assert "5 series without a change" in capsys.readouterr().out
    main(["history", "--results", str(tmp_path), "--all"])
    assert "only once, forward, torch:eager" in capsys.readouterr().out


def test_in_a_terminal_words_are_not_broken_and_names_obey_nothing(tmp_path):
    keep(tmp_path / "results", *hostile()[:12])
    done = in_terminal(tmp_path, "history")
    assert done.code == 1
    assert "\x07" not in done.raw
    assert max(map(len, done.screen)) <= 80
    assert any("WORSE" in line for line in done.screen)


def test_a_long_reading_shows_its_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("xverify.history.update.LONG", 3)
    keep(tmp_path, *(result(day) for day in range(1, 5)))
    main(["history", "--results", str(tmp_path)])
    assert capsys.readouterr().err == "index: reading 4 new or changed files\n"
    main(["history", "--results", str(tmp_path)])
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 1920])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_without_an_error_and_without_scrolling_sideways(name, width, colours, browser, tmp_path):
    file = write_page(name, tmp_path)
    check_drawn(browser, file, width, colours, charts=name != "nothing")


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(name, colours, browser, tmp_path):
    file = write_page(name, tmp_path)
    check_accessible(browser, file, colours)

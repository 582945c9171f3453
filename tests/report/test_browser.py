"""The HTML page in a real browser: no error, no sideways scrolling, every chart drawn. Skipped where there is no Chromium."""

from dataclasses import replace

import pytest
from helpers.htmlpages import check_accessible, check_drawn
from helpers.sampleresults import HOSTILE, LAYERS, RESULT, SPEED, hostile, of_files, unusual

from xverify.report import html
from xverify.results.figures import Figures
from xverify.results.precision import Precision
from xverify.results.records import Error
from xverify.workload.asked import Asked

pytestmark = pytest.mark.slow
PAGES = {
    "one": [RESULT],
    "several": [RESULT, of_files(), *unusual().values()],
    "hostile": [hostile(name) for name in HOSTILE.values()],
    "nothing": [],
}


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 1920])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_without_an_error_and_without_scrolling_sideways(name, width, colours, browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(html.page(PAGES[name]))
    check_drawn(browser, file, width, colours, charts=name != "nothing")


def checked():
    """The check of a float16 file and of an int8 file, with every column."""
    figures = {"logits": Figures(1.0, 1.0, 1.6e-7, 42.2, 0.999955, 1.5e-3)}
    precisions = {
        "float16": Precision(name="float16", weights="float16"),
        "int8 static": Precision(name="int8 static", quantised=True),
    }
    whole = Error("EQUAL", rel_rms=3e-4, max_abs=2e-4, noise_ratio=0.18, detection_limit=0.02, layers=LAYERS)
    rows = [
        replace(row, subject=f"cnn-{name.split()[0]}.onnx", error=whole, precision=precision, figures=figures)
        for name, precision in precisions.items()
        for row in of_files().rows
    ]
    return replace(of_files(), rows=tuple(rows))


@pytest.mark.parametrize(("speed", "columns"), [(None, 15), (SPEED, 17)], ids=["untimed", "timed"])
def test_the_table_of_a_check_needs_no_scrolling_on_a_desk(speed, columns, browser, tmp_path):
    file = tmp_path / "page.html"
    result = checked()
    file.write_text(html.page([replace(result, rows=tuple(replace(row, speed=speed) for row in result.rows))]))
    opened = browser.new_page(viewport={"width": 1280, "height": 800})
    opened.goto(file.as_uri())
    titles = opened.evaluate("[...document.querySelectorAll('.rows thead th')].map(each => each.textContent)")
    assert len(titles) == columns, titles
    wider = opened.evaluate("[...document.querySelectorAll('.wide')].map(each => each.scrollWidth - each.clientWidth)")
    assert set(wider) == {0}
    opened.close()


def test_on_a_phone_a_command_is_not_broken_within_an_option_or_a_name(browser, tmp_path):
    options = {"against": ["/srv/ref.py:build"], "accept": ["sqnr>=50"], "max-weights": ["4"], "input-range": ["x=0,1"]}
    asked = Asked("check", ("cnn-float16.onnx", "cnn-int8.onnx"), options)
    result = replace(of_files(), settings=replace(of_files().settings, asked=asked))
    file = tmp_path / "page.html"
    file.write_text(html.page([result]))
    opened = browser.new_page(viewport={"width": 360, "height": 800})
    opened.goto(file.as_uri())
    words = opened.locator(".facts code .whole")
    assert "--max-weights" in words.all_text_contents()
    lines = words.evaluate_all("all => all.map(each => Math.round(each.getBoundingClientRect().height / 20))")
    assert set(lines) == {1}
    assert opened.locator(".facts code").bounding_box()["height"] > 40, "the command has several lines"
    opened.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(name, colours, browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(html.page(PAGES[name]))
    check_accessible(browser, file, colours)

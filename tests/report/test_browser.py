"""The HTML page in a real browser: no error, no sideways scrolling, every chart drawn. Skipped where there is no Chromium."""

import shutil

import pytest
from sampleresults import HOSTILE, RESULT, hostile, of_files, unusual

from xverify.report import html

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]
PAGES = {
    "one": [RESULT],
    "several": [RESULT, of_files(), *unusual().values()],
    "hostile": [hostile(name) for name in HOSTILE.values()],
    "nothing": [],
}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 1920])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_without_an_error_and_without_scrolling_sideways(name, width, colours, browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(html.page(PAGES[name]))
    opened = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
    problems, requests = [], []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(file.as_uri())
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert problems == []
    assert requests == [file.as_uri()]
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    drawn = opened.evaluate("[...document.querySelectorAll('figure .wide svg')].map(each => each.getBBox().height > 8)")
    assert all(drawn)
    assert bool(drawn) == (name != "nothing")
    small = (
        "[...document.querySelectorAll('figure .wide text')].filter(each => each.getBoundingClientRect().height < 8)"
    )
    assert opened.evaluate(f"{small}.length") == 0
    opened.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(name, colours, browser, tmp_path):
    """By the rules of axe-core. It cannot tell the contrast of text above a drawing, and says so."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    file = tmp_path / "page.html"
    file.write_text(html.page(PAGES[name]))
    opened = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=colours)
    opened.goto(file.as_uri())
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    found = axe.run(opened)
    assert found.violations_count == 0, found.generate_report()
    assert {each["id"] for each in found.response["incomplete"]} <= {"color-contrast"}
    opened.evaluate("document.querySelector('h1').remove()")
    assert axe.run(opened).violations_count > 0, "a page without its title was not found wrong"
    opened.close()

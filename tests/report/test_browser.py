"""The HTML page in a real browser: no error, no sideways scrolling, every chart drawn. Skipped where there is no Chromium."""

import pytest
from helpers.htmlpages import check_accessible, check_drawn
from helpers.sampleresults import HOSTILE, RESULT, hostile, of_files, unusual

from xverify.report import html

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


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(name, colours, browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(html.page(PAGES[name]))
    check_accessible(browser, file, colours)

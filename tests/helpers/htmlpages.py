"""Pages of HTML: what is on one, and whether a real browser draws it well. The browser is a fixture."""

from html.parser import HTMLParser

import pytest

VOID = {"meta", "wbr"}  # HTML has no end tag for them


class Page(HTMLParser):
    """Elements, attributes and texts of a page; every element must be closed where it should be."""

    def __init__(self, text, between=""):
        """between: what stands between two texts in ``text``."""
        super().__init__()
        self.between = between
        self.open, self.elements, self.attributes, self.text, self.struck = [], [], [], "", ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data + self.between
        if "s" in self.open:
            self.struck += data

    def values(self, name):
        return [value for _, attribute, value in self.attributes if attribute == name]


def check_drawn(browser, file, width, colours, charts):
    """The page has no error, needs no other file, does not scroll sideways, and draws its charts.

    charts: whether the page has any.
    """
    opened = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
    problems, requests = [], []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(file.as_uri())
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert problems == [], problems
    assert requests == [file.as_uri()]
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    drawn = opened.evaluate("[...document.querySelectorAll('figure .plot')].map(each => each.getBBox().height > 8)")
    assert all(drawn)
    assert bool(drawn) == charts
    small = "each => each.checkVisibility() && each.getBoundingClientRect().height < 8"
    assert not opened.evaluate(f"[...document.querySelectorAll('figure .plot text')].some({small})")
    opened.close()


def check_accessible(browser, file, colours):
    """By the rules of axe-core. It cannot tell the contrast of text above a drawing, and says so."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    opened = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=colours)
    opened.goto(file.as_uri())
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    found = axe.run(opened)
    assert found.violations_count == 0, found.generate_report()
    assert {each["id"] for each in found.response["incomplete"]} <= {"color-contrast"}
    opened.evaluate("document.querySelector('h1').remove()")
    assert axe.run(opened).violations_count > 0, "a page without its title was not found wrong"
    opened.close()

"""The documentation as a site: it is built without a warning, has every page, and needs no network to be read."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from xverify.commands._main import commands

ROOT = Path(__file__).parent.parent
NEEDED = ("mkdocs", "material", "mkdocstrings")
ADDED = ("overview", "contributing", "changelog", "commands", "python")  # pages that are made for the site
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# What a browser fetches by itself: scripts, styles, fonts, pictures and frames.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(https?:)?//|<link\b[^>]*\bhref=[\"']?(https?:)?//[^>]*>"
)
STYLE = re.compile(r"url\([\"']?(https?:)?//|@import")


def build(place, *more):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place), *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not all(map(find_spec, NEEDED)):
        pytest.skip('mkdocs is not installed: pip install -e ".[docs]"')
    place = tmp_path_factory.mktemp("site")
    done = build(place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def pages():
    return sorted(page.stem for page in (ROOT / "docs").glob("*.md") if page.stem != "README")


def test_the_navigation_has_every_page():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    assert sorted(re.findall(r": ([\w-]+)\.md$", nav, re.MULTILINE)) == sorted([*pages(), "README", *ADDED])


@pytest.mark.slow
def test_every_page_is_built_and_in_the_navigation(site):
    index = (site / "index.html").read_text()
    for name in (*pages(), *ADDED):
        assert (site / f"{name}.html").is_file()
        assert f'href="{name}.html"' in index


@pytest.mark.slow
def test_the_reference_has_every_command_with_its_options(site):
    text = (site / "commands.html").read_text()
    for name in commands():
        assert f">xverify {name}<" in text
    for words in ("--subjects LIST", "--effort EFFORT", "--against REFERENCE", "exit codes:"):
        assert words in text


@pytest.mark.slow
def test_the_reference_of_python_has_the_functions_with_their_options(site):
    text = re.sub(r"<[^>]+>", "", (site / "python.html").read_text())
    for words in ("max_seconds", "framework[:mode],...", "ModelSpec", "a progress listener", "canonical"):
        assert words.lower() in text.lower(), words


def fetched(site):
    """The places in the site where a browser would fetch something from elsewhere."""
    found = [f"{page.name}: {hit[0]}" for page in site.rglob("*.html") for hit in FETCHED.finditer(page.read_text())]
    return found + [
        f"{file.name}: {hit[0]}" for file in site.rglob("*.css") for hit in STYLE.finditer(file.read_text())
    ]


@pytest.mark.slow
def test_the_site_needs_no_network(site, tmp_path):
    canonical = [hit for hit in fetched(site) if 'rel="canonical"' not in hit]
    assert canonical == []
    assert (site / "search" / "search_index.js").is_file(), "a search that reads a file needs no server"
    (tmp_path / "page.html").write_text(
        '<link rel="stylesheet" href="https://fonts.example/css"><script src="//a.b/c.js">'
    )
    assert len(fetched(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_browser_finds_the_definition_of_a_word_first_and_fetches_files_alone(site):
    playwright = pytest.importorskip("playwright.sync_api")
    requests, problems = [], []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto((site / "index.html").as_uri())
        page.locator("input[name=query]").press_sequentially("noise floor")  # the search listens to keys
        page.wait_for_selector(".md-search-result__item a[href*=glossary]", state="attached", timeout=60_000)
        items = page.locator(".md-search-result__item")
        first = [items.nth(number).locator("a").first.get_attribute("href") for number in range(3)]
        browser.close()
    assert problems == []
    names = [Path(urlsplit(place).path).name for place in first]
    assert names[0] == "noise-floor.html"
    assert "glossary.html" in names
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


@pytest.mark.slow
def test_a_broken_link_stops_the_build(site, tmp_path):
    """The same site with a page more, whose link leads nowhere."""
    config, docs = tmp_path / "mkdocs.yml", tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[nowhere](none.md)\n")
    text = (ROOT / "mkdocs.yml").read_text()
    text = re.sub(r"^(hooks|watch|exclude_docs): .*\n(?:  .*\n)*", "", text, flags=re.MULTILINE)
    config.write_text(text[: text.index("\nnav:")])
    done = build(tmp_path / "site", "--config-file", str(config))
    assert done.returncode == 1
    assert "none.md" in done.stdout + done.stderr

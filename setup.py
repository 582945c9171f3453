"""What cannot stand in pyproject.toml, which has the rest: the list of packages, and README.md with links that lead somewhere."""

import re
from pathlib import Path

from setuptools import find_packages, setup

FOLDER = Path(__file__).parent
# Read as text, because Python 3.10 has no parser of TOML.
HOME = re.search(r'^Homepage = "(.*)"$', (FOLDER / "pyproject.toml").read_text("utf-8"), re.MULTILINE)[1]


def absolute(link):
    """A link of Markdown, or an image, whose relative target is a file of the repository, as it is published."""
    image, text, target = link.groups()
    return (
        link[0]
        if re.match(r"\w+:|#", target)
        else f"{image}[{text}]({HOME}/{'raw' if image else 'blob'}/main/{target})"
    )


setup(
    # So a new package cannot be forgotten. models/ and weights/ are outside of xverify/; pyproject.toml says where.
    packages=sorted({*find_packages(include=["xverify", "xverify.*"]), "xverify.models", "xverify.weights"}),
    # Where the wheel is shown, there is no file beside README.md.
    long_description=re.sub(r"(!?)\[([^]]*)\]\(([^)\s]+)\)", absolute, (FOLDER / "README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)

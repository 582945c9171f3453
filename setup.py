"""The list of packages, read from the folders, so that a new package cannot be forgotten. pyproject.toml has the rest."""

from setuptools import find_packages, setup

# models/ and weights/ are outside of xverify/; pyproject.toml says where.
setup(packages=sorted({*find_packages(include=["xverify", "xverify.*"]), "xverify.models", "xverify.weights"}))

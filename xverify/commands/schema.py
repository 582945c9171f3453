from __future__ import annotations

import argparse
import json

from ..results.schema import schema

HELP = "print the JSON Schema of result files"
GROUP = "results"
EXAMPLE = """examples:
  xverify schema
  xverify schema > result-schema.json"""
EXIT_CODES = {0: "printed", 2: "a wrong command line"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are no arguments."""


def main(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(schema(), indent=1))
    return 0

"""Draw docs/images/report.svg: the report on the port that README.md shows, from a real run.

    python docs/images/draw.py [RESULT.json]

It writes the files of the example into a temporary folder, runs them as `xverify run` does, and saves what the terminal shows.
RESULT.json: where to keep the result file as well.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

import xverify
from xverify.report import terminal

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "xverify run ./my_port --subjects torch:eager,tensorflow:graph --layers"


class Picture(Console):
    """A console that breaks long lines, as a terminal does: a picture would cut them off."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        super().print(*objects, soft_wrap=False, **options)


def main() -> None:
    text = (ROOT / "README.md").read_text()
    result_file = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as place:
        for path, code in re.findall(r"^`(my_port/\w+\.py)`.*?```python\n(.*?)```", text, re.MULTILINE | re.DOTALL):
            (Path(place) / path).parent.mkdir(exist_ok=True)
            (Path(place) / path).write_text(code)
        result = xverify.run(Path(place) / "my_port", ["torch:eager", "tensorflow:graph"], json=result_file)
    with open(os.devnull, "w") as nowhere:
        console = Picture(record=True, file=nowhere, width=118, force_terminal=True, color_system="truecolor")
        console.print(f"[bold]$ {COMMAND}[/]", highlight=False)
        terminal.render(result, console, by_layer=True)
        drawn = console.export_svg(title="xverify")
    # rich names a font that is fetched from elsewhere. The picture needs no network without it.
    drawn = re.sub(r"\s*@font-face \{[^}]*\}", "", drawn).replace("Fira Code, ", "")
    (ROOT / "docs" / "images" / "report.svg").write_text(drawn)


main()

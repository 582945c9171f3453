"""What lets pytest load the plugin of this checkout as that of an installed xverify."""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def as_installed(folder):
    """A folder for the search path that declares the entry points of pyproject.toml, as an installed xverify does."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    info = folder / "xverify_entry_points-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xverify-entry-points\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{name} = {at}\n" for name, at in points.items()))
    return folder

"""Print the lowest versions that `pyproject.toml` allows, one requirement a line, as constraints for pip.

`make lowest` installs them and runs tests with them.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("trees", "serve", "sql", "excel")

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
requirements = [*project["dependencies"]]
for extra in EXTRAS:
    requirements += project["optional-dependencies"][extra]
for requirement in requirements:
    name, version = re.findall(r"^([\w.-]+).*?>=([\d.]+)", requirement)[0]
    sys.stdout.write(f"{name}~={version}.0\n" if version.count(".") < 2 else f"{name}=={version}\n")

"""Write src/shortlist/__init__.pyi: what type checkers see of the names that are imported on first use."""

from pathlib import Path

import shortlist

HEAD = '''"""Written by .ci/write_stub.py from the tables in __init__.py; do not edit."""

'''
TAIL = """
MODEL_MODULES: dict[str, str]
__version__: str
"""


def stub() -> str:
    """The text of the stub."""
    pairs = []
    for name, module in shortlist._MODULES.items():
        is_module = shortlist._NAMES.get(module) == ()  # the module itself is the public name
        pairs.append((module.rpartition(".")[0] if is_module else module, name))
    lines = [f"from {module} import {name} as {name}" for module, name in sorted(pairs)]
    return HEAD + "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    Path(shortlist.__file__).with_name("__init__.pyi").write_text(stub(), encoding="utf-8")

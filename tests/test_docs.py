"""Every code block of the README and the pages runs as printed, page by page, in a folder of its own."""

import re
import shlex
from pathlib import Path

import pytest

import shortlist as sl
from shortlist.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL_ONLY = ("make ", "pip ", "git ")  # they set up what the tests already stand on


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of the blocks a reader may paste."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.real
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_blocks_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = sl.load("sample")
    table = data.to_frame()
    table.write_parquet("events.parquet")
    table.rename({"user_id": "buyer", "item_id": "ean"}).write_csv("shop.csv")
    names = {"__name__": "page", "table": table, "csr": data.csr()}  # what a reader has at hand
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), names)
            continue
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and not line.startswith(SHELL_ONLY):
                assert words[0] == "shortlist", f"{page.name} shows a command that no test can run: {line}"
                assert main(words[1:]) == 0, line


def test_links_inside_the_house_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

"""What a release contains: the wheel, the recipe and the workflow agree with pyproject.toml."""

import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DATA = (".py", ".pyi", ".typed", ".toml", ".j2", ".js", ".css", ".html", ".svg")
MAX_BYTES = 4 << 20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel."""
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("dist")
    (path,) = builder.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_every_module_and_nothing_else(wheel):
    names = {
        name for name in wheel.namelist() if not name.startswith(f"shortlist-{PROJECT['version']}.dist-info/")
    }
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert all(name.endswith(DATA) for name in names)
    assert not [name for name in names if "test" in Path(name).parts or name.startswith("tests/")]
    assert sum(info.file_size for info in wheel.infolist()) < MAX_BYTES


def test_metadata(wheel):
    folder = f"shortlist-{PROJECT['version']}.dist-info"
    text = wheel.read(f"{folder}/METADATA").decode()
    for line in ("Name: shortlist", "License-Expression: Apache-2.0", "Requires-Python: >=3.11"):
        assert line in text
    assert "shortlist = shortlist.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()


def test_recipe_has_the_same_version_and_requirements():
    text = (ROOT / "packaging/conda/recipe.yaml").read_text()
    assert f'version: "{PROJECT["version"]}"' in text
    run = text.partition("  run:\n")[2].partition("\n\n")[0]
    required = {line.strip(" -").replace(" ", "") for line in run.splitlines()} - {"python>=3.11"}
    assert required == set(PROJECT["dependencies"])


def test_the_workflow_stores_no_secret_and_signs():
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".github/workflows/release.yml").read_text()
    workflow = yaml.safe_load(text)
    assert "secrets." not in text
    assert workflow["permissions"] == {}
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"]["id-token"] == "write"
    assert publish["needs"] == "build"
    uses = [step.get("uses", "") for step in publish["steps"]]
    assert any("attest-build-provenance" in name for name in uses)
    assert any("attest-sbom" in name for name in uses)


def test_pages_and_messages_name_packages_not_an_index_name():
    for folder, ending in (("src", "*.py"), ("docs", "*.md")):
        for path in (ROOT / folder).rglob(ending):
            text = path.read_text()
            assert "pip install shortlist" not in text, path
            assert "shortlist[" not in text, path

"""Models, cutoffs and metrics of another package, which only its entry points make known."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "benchmarks" / "plugins"

SCRIPT = """
import sys
from pathlib import Path

import shortlist as sl
from shortlist.cli import main

folder = sys.argv[1]
data = sl.load_dataset("sample")
data.to_frame().write_csv(folder + "/events.csv")
model = sl.fit(data, models=["UPCF", "Popularity"], metric="two_hits")
assert type(model).__name__ == "UPCF", model
assert model.selection_.metric == "two_hits"
split = sl.split.last_basket(data)
assert sl.evaluate(model.recommend(N=9), split.test).mean("two_hits") > 0

path = folder + "/shop.shortlist"
words = ["--model", "UPCF", "--cutoff", "PerK", "--metric", "two_hits", "--out", path]
assert main(["fit", folder + "/events.csv", *words, "--json"]) == 0
saved = sl.load_model(path)
assert (type(saved).__name__, type(saved.cutoff_).__name__) == ("UPCF", "PerK")
assert main(["recommend", path, "--user", "u1"]) == 0
assert main(["inspect", "UPCF"]) == 0

from starlette.testclient import TestClient
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.service import Service
from shortlist.serve.tokens import create_token

secret = create_token(Path(folder, "tokens"), "all", ["read", "admin"])
app = create_app(Service(ServeConfig(model=path, token_file=folder + "/tokens")))
headers = {"authorization": f"Bearer {secret}"}
with TestClient(app, base_url="http://127.0.0.1:8000", headers=headers) as client:
    lists = client.post("/v1/recommend", json={"users": ["u1"]}).json()
    assert lists["cutoff"] == "PerK" and lists["lists"][0]["items"], lists
print("all of it works")
"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """Folders of the package and of what an installer writes about it."""
    project = tomllib.loads((PLUGINS / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = [f"{name} = {place}" for name, place in project["entry-points"]["shortlist"].items()]
    return f"{PLUGINS}{os.pathsep}{describe(tmp_path_factory.mktemp('installed'), points)}"


def describe(folder, points):
    """Write the description of an installed package with these entry points."""
    info = folder / "extras-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extras\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[shortlist]", *points, ""]))
    return folder


def run(script, plugins, *words):
    """Run a script in a process that finds the package."""
    path = os.pathsep.join([str(plugins), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", script, *words], env=environment, capture_output=True, text=True, timeout=300
    )


def test_fit_command_line_and_service_offer_them(tmp_path, plugins):
    done = run(SCRIPT, plugins, str(tmp_path))
    assert done.stdout.endswith("all of it works\n"), done.stdout[-2000:] + done.stderr[-3000:]


@pytest.mark.parametrize(
    ("flag", "names"),
    [("--model", ["UPCF"]), ("--cutoff", ["PerK", "FrozenBoundary"]), ("--metric", ["two_hits"])],
)
def test_a_wrong_name_lists_them(plugins, flag, names):
    script = "import sys; from shortlist.cli import main; main(['fit', 'sample', sys.argv[1], 'nothing'])"
    done = run(script, plugins, flag)
    assert f"{flag.removeprefix('--')} must be" in done.stderr
    for name in names:
        assert name in done.stderr


def test_an_entry_point_that_fails_is_a_warning(tmp_path):
    script = "import shortlist as sl; print('Threshold' in sl.cutoff.Cutoff.classes())"
    done = run(script, describe(tmp_path, ["Broken = no_such_module:Thing"]))
    assert done.stdout == "True\n"
    assert "Broken" in done.stderr
    assert "no_such_module" in done.stderr

"""Declared options: one change in one place is found in every façade; wrong names get a suggestion."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest

import shortlist as sl
from shortlist import evaluation
from shortlist.cli import main
from shortlist.core.options import (
    Above,
    AtMost,
    Count,
    Help,
    Only,
    check_options,
    check_value,
    describe_options,
    list_options,
    nearest_name,
)
from shortlist.errors import ConfigError

SOURCE = Path(sl.__file__).parent
ADDED = {  # where options are declared: the beginning of an option, and a new one before it
    "recommend/options.py": (
        "    N: Annotated[",
        '    surprise: Annotated[float, AtLeast(0), AtMost(1), Help("How surprising.", 0.5)] = 0.0\n',
    ),
    "data/read_options.py": (
        "    user_id: Annotated[",
        '    quote: Annotated[str | None, Help("Character around texts.")] = None\n',
    ),
    "serve/config.py": (
        "    start_with: Annotated[",
        '    pause: Annotated[float, AtLeast(0), AtMost(9), Help("Seconds to wait.")] = 0.0\n',
    ),
    "serve/options.py": (
        "    metric: Annotated[",
        '    patience: Annotated[int, AtLeast(1), AtMost(9), Help("Looks to wait.")] = 1\n',
    ),
    "models/ease.py": ("    reg: ", "    calm: Positive = 1.0\n"),
    "cutoff/threshold.py": (
        "    N: ",
        "    from shortlist.core.options import Probability\n\n    calm: Probability = 1.0\n",
    ),
}
CODE = """
import inspect, json
import shortlist as sl
from shortlist.cli.app import flags_of_command
from shortlist.core.options import describe_options
from shortlist.models.base import Recommender
from shortlist.recommend.options import RequestOptions
from shortlist.serve.config import ServeConfig, load_config
from shortlist.serve.schemas import ExperimentBody, RecommendBody

def message(call):
    try:
        call()
    except Exception as error:
        return str(error)

calls = [Recommender.recommend, Recommender.recommend_to_file, Recommender.explain, Recommender.arrow]
calls += [sl.spark.recommend]
print(json.dumps({
    "request": [
        all("surprise" in inspect.signature(call).parameters for call in calls),
        "surprise" in flags_of_command(["recommend"]),
        RecommendBody.model_json_schema()["properties"]["surprise"],
        message(lambda: sl.Popularity().fit(sl.load_dataset("sample")).recommend(surprise=2)),
        [row for row in describe_options(RequestOptions) if row.name == "surprise"],
    ],
    "reader": [
        "quote" in inspect.signature(sl.read_interactions).parameters,
        "quote" in inspect.signature(sl.Interactions.from_frame).parameters,
        all("quote" in flags_of_command([name]) for name in ("check", "fit", "evaluate")),
    ],
    "setting": [
        "pause" in flags_of_command(["serve"]),
        load_config({"model": "m"}, environment={"SHORTLIST_SERVE_PAUSE": "3"}).pause,
        message(lambda: ServeConfig(model="m", pause=10)),
    ],
    "experiment": [
        "patience" in flags_of_command(["experiment"]),
        ExperimentBody.model_json_schema()["properties"]["patience"]["description"],
    ],
    "parameters": [
        message(lambda: sl.EASE(calm=-1)), message(lambda: sl.cutoff.FixedN(N=1, calm=-1)),
        message(lambda: sl.EASE(clam=1)), message(lambda: sl.cutoff.FixedN(N=1, clam=1)),
    ],
}))
"""


@pytest.fixture(scope="module")
def facades(tmp_path_factory):
    """What every façade says in a copy of the package with one new option of each kind."""
    copy = tmp_path_factory.mktemp("copy") / "shortlist"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, line) in ADDED.items():
        text = (copy / name).read_text()
        assert before in text, name
        (copy / name).write_text(text.replace(before, line + before, 1))
    environment = os.environ | {"PYTHONPATH": str(copy.parent)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_option_of_a_request_is_declared_once(facades):
    in_python, as_flag, over_http, error, ((name, rule, default, text),) = facades["request"]
    assert in_python
    assert as_flag
    assert (over_http["minimum"], over_http["maximum"], over_http["description"]) == (0, 1, "How surprising.")
    assert error == "surprise must be a number between 0 and 1, got 2; the default is 0.0."
    assert (name, rule, default, text) == ("surprise", "a number between 0 and 1", "0.0", "How surprising.")


def test_an_option_of_a_reader_is_declared_once(facades):
    assert facades["reader"] == [True, True, True]


def test_a_setting_of_the_service_is_declared_once(facades):
    as_flag, from_environment, error = facades["setting"]
    assert as_flag
    assert from_environment == 3.0
    assert "pause must be a number between 0 and 9, got 10" in error


def test_an_option_of_an_experiment_is_declared_once(facades):
    assert facades["experiment"] == [True, "Looks to wait."]


def test_a_parameter_is_declared_once(facades):
    assert facades["parameters"][:2] == [
        "calm must be a number above 0, got -1; the default is 1.0.",
        "calm must be a number between 0 and 1, got -1; the default is 1.0.",
    ]
    assert all("Did you mean 'calm'?" in error for error in facades["parameters"][2:])


# ---------------------------------------------------------------------- checks
@dataclass
class Sizes:
    """Some options.

    Parameters
    ----------
    rate
        How fast. More is faster.
    """

    rate: Annotated[float, Above(0), AtMost(2)] = 1.0
    n: Annotated[Count | None, Help("How many.")] = None
    kind: Annotated[Literal["a", "b"], Only("flag")] = "a"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0}, "rate must be a number above 0 and at most 2, got 0; the default is 1.0."),
        ({"rate": float("nan")}, "rate must be a number above 0 and at most 2, got nan"),
        ({"rate": True}, "rate must be a number"),
        ({"rate": "1"}, "rate must be a number"),
        ({"n": 2.5}, "n must be a whole number of at least 1, got 2.5; leave it out for the default."),
        ({"n": 2**31}, "n must be a whole number between 1 and 2147483647"),
        ({"kind": "c"}, "kind must be one of a, b, got 'c'; the default is 'a'."),
    ],
)
def test_a_wrong_value_is_one_sentence(values, message):
    with pytest.raises(ConfigError) as caught:
        check_options(Sizes, {"rate": 1.0, "n": None, "kind": "a"} | values)
    assert str(caught.value).startswith(message)
    assert caught.value.parameter == next(iter(values))


def test_scalars_of_numpy_are_numbers():
    check_options(Sizes, {"rate": np.float32(1.5), "n": np.int64(3), "kind": "b"})
    with pytest.raises(ConfigError, match="N must be a whole number"):
        check_value(Count, N=np.float32(1.5))


def test_rows_of_the_docs_have_rule_default_and_help():
    rows = describe_options(Sizes)
    assert rows[0] == ("rate", "a number above 0 and at most 2", "1.0", "How fast.")
    assert rows[1] == ("n", "a whole number of at least 1", "None", "How many.")
    assert list(list_options(Sizes, "flag")) == ["rate", "n", "kind"]
    assert list(list_options(Sizes, "http")) == ["rate", "n"]


def test_declarations_load_neither_arrays_nor_tables_nor_compilers():
    modules = ["recommend.options", "data.read_options", "serve.config", "serve.options"]
    modules += ["core.task_options", "cli.recommend", "cli.flags"]
    lines = ["import sys, shortlist", "assert not {'pydantic', 'cyclopts'} & sys.modules.keys()"]
    lines += [f"import shortlist.{name}" for name in modules]
    lines += ["print([name for name in ('numpy', 'polars', 'numba', 'pydantic') if name in sys.modules])"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# ---------------------------------------------------------------------- wrong names
@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("k", ["N", "cutoff"], "N"),
        ("n_factor", ["n_factors", "lr"], "n_factors"),
        ("learning_rate", ["lr", "reg"], "lr"),
        ("max-items", ["max_items"], "max_items"),
        ("zzz", ["N"], None),
    ],
)
def test_the_nearest_name(name, names, expected):
    assert nearest_name(name, names) == expected


@pytest.mark.parametrize("name", ["read_csv", "read_parquet"])
def test_readers_of_other_libraries(name):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'. Did you mean 'read_interactions'\?"):
        getattr(sl, name)


def public_functions():
    """(name, function) of all public functions with keywords."""
    modules = [sl, evaluation, *(getattr(sl, name) for name in ("split", "cutoff", "spark"))]
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                kinds = inspect.signature(value).parameters.values()
                keywords = [argument.name for argument in kinds if argument.kind == argument.KEYWORD_ONLY]
                if keywords:
                    yield name, value, keywords


@pytest.mark.parametrize(("name", "function", "keywords"), list(public_functions()))
def test_a_wrong_keyword_names_the_nearest_one(name, function, keywords):
    for keyword in keywords:
        wrong = keyword + "x" if len(keyword) > 3 else keyword.swapcase() + "_"
        if nearest_name(wrong, inspect.signature(function).parameters) != keyword:
            continue
        with pytest.raises(TypeError, match=rf"{name}\(\) got .* '{wrong}'. Did you mean '{keyword}'"):
            function(**{wrong: 1})


def test_models_and_cutoffs_name_the_nearest_keyword():
    model = sl.Popularity().fit(sl.load_dataset("sample"))
    for call, near in (
        (lambda: sl.BPRMF(n_factor=3), "n_factors"),
        (lambda: sl.BPRMF(epochs=3), "n_epochs"),
        (lambda: sl.cutoff.ExpectedF1(coverag=0.5), "coverage"),
        (lambda: sl.cutoff.FixedN(k=5), "N"),
        (lambda: model.recommend(k=3), "N"),
        (lambda: model.explain("u1", withheld=3), "n_withheld"),
        (lambda: sl.allocate(model, budgets=3), "budget"),
    ):
        with pytest.raises(TypeError, match=rf"Did you mean '{near}'\?"):
            call()


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["recommend", "shop.shortlist", "--k", "3"], "--N"),
        (["recommend", "shop.shortlist", "--n", "3"], "--N"),
        (["fit", "sample", "--covrage", "0.5"], "--coverage"),
        (["serve", "--prot", "80"], "--port"),
        (["fit", "sample", "--model", "BPRMF", "--set", "n_factor=3"], "'n_factors'"),
    ],
)
def test_flags_get_a_suggestion(words, near, capsys):
    assert main(words) == 2
    assert f"Did you mean {near}?".lower() in capsys.readouterr().err.lower()

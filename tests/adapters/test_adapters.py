"""Adapters against the real libraries; `make rankers` runs those that are not installed here."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shortlist import adapters
from shortlist.adapters import prepare_cutoff
from shortlist.cutoff import Threshold

pytestmark = pytest.mark.filterwarnings("default")  # of the other libraries

SCORES = [0.2, 0.9, 0.7, 0.4]
SHOWN = [1, 2]  # above the threshold, best first


@pytest.fixture(scope="module")
def cutoff(tmp_path_factory):
    return Threshold(threshold=0.5).save(tmp_path_factory.mktemp("cutoff") / "cut.shortlist")


def test_a_cutoff_or_its_file_gives_positions(cutoff):
    for given in (cutoff, str(cutoff), Threshold(threshold=0.5)):
        show = prepare_cutoff(given)
        assert show(SCORES).tolist() == SHOWN
        assert show([]).tolist() == show([0.1, float("nan")]).tolist() == []


def test_libraries_are_imported_only_when_asked_for():
    code = "import sys, shortlist.adapters as a; print(sorted(m for m in sys.modules if m in LIBRARIES))"
    names = ("llama_index", "langchain_core", "haystack", "lenskit", "sklearn", "mlflow")
    done = subprocess.run(
        [sys.executable, "-c", code.replace("LIBRARIES", repr(names))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_llama_index(cutoff):
    schema = pytest.importorskip("llama_index.core.schema")
    from shortlist.adapters.llama_index import CutPostprocessor

    nodes = [schema.NodeWithScore(node=schema.TextNode(text=str(k)), score=s) for k, s in enumerate(SCORES)]
    nodes.append(schema.NodeWithScore(node=schema.TextNode(text="no score"), score=None))
    kept = CutPostprocessor(cutoff).postprocess_nodes(nodes, query_str="a question")
    assert [int(node.node.text) for node in kept] == SHOWN
    assert CutPostprocessor(cutoff).postprocess_nodes([], query_str="a question") == []


def test_langchain(cutoff):
    documents = pytest.importorskip("langchain_core.documents")
    from shortlist.adapters.langchain import CutCompressor

    found = [documents.Document(str(k), metadata={"score": score}) for k, score in enumerate(SCORES)]
    kept = CutCompressor(cutoff).compress_documents([*found, documents.Document("none")], "a question")
    assert [int(document.page_content) for document in kept] == SHOWN
    named = [documents.Document("x", metadata={"relevance_score": 0.8})]
    assert CutCompressor(cutoff, key="relevance_score").compress_documents(named, "q") == named


def test_haystack(cutoff):
    haystack = pytest.importorskip("haystack")
    from shortlist.adapters.haystack import DocumentCutter

    pipeline = haystack.Pipeline()
    pipeline.add_component("cut", DocumentCutter(str(cutoff)))
    again = haystack.Pipeline.loads(
        pipeline.dumps(), callbacks=None, **allow(haystack, "shortlist.adapters.haystack")
    )
    found = [haystack.Document(content=str(k), score=score) for k, score in enumerate(SCORES)]
    for each in (pipeline, again):
        kept = each.run({"cut": {"documents": found}})["cut"]["documents"]
        assert [int(document.content) for document in kept] == SHOWN


def allow(haystack, module):
    """The keyword by which newer versions are told that a module may be loaded."""
    from inspect import signature

    names = signature(haystack.Pipeline.loads).parameters
    return {"allowed_modules": [module]} if "allowed_modules" in names else {}


def test_lenskit(cutoff):
    data = pytest.importorskip("lenskit.data")
    from shortlist.adapters.lenskit import CutRanker

    items = data.ItemList(item_ids=[10, 11, 12, 13], scores=SCORES)
    ended = CutRanker(cutoff=str(cutoff))(items)
    assert ended.ids().tolist() == [11, 12]
    assert ended.ordered


def test_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from shortlist.adapters.sklearn import ListClassifier

    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 400)
    X = np.eye(5)[y] + rng.normal(0, 0.8, (400, 5))
    lists = make_pipeline(StandardScaler(), ListClassifier(LogisticRegression())).fit(X, y).predict(X)
    assert len(lists) == 400
    sure, unsure = np.eye(5)[:1] * 4, np.full((1, 5), 0.2)
    model = ListClassifier(LogisticRegression()).fit(X, np.array(list("abcde"))[y])
    assert model.predict(sure) == [["a"]]
    assert len(model.predict(unsure)[0]) > 1


def test_mlflow(cutoff, tmp_path):
    pyfunc = pytest.importorskip("mlflow.pyfunc")
    pyfunc.save_model(
        str(tmp_path / "model"), loader_module="shortlist.adapters.mlflow", data_path=str(cutoff)
    )
    assert not list((tmp_path / "model").rglob("*.pkl"))
    model = pyfunc.load_model(str(tmp_path / "model"))
    assert model.predict(np.array([SCORES])) == [SHOWN]


def test_each_adapter_is_at_most_25_lines():
    for file in Path(adapters.__path__[0]).glob("*.py"):
        for part in file.read_text(encoding="utf-8").split("\nclass ")[1:]:
            assert len(part.partition("\n\n\n")[0].strip().splitlines()) <= 25, file.name

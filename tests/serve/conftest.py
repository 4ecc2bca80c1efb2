"""A service with a small model, on SQLite."""

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

import shortlist as sl
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.service import Service
from shortlist.serve.tables import lists
from shortlist.serve.tokens import create_token
from tests.serve.browser import browser, models, open_page, server  # noqa: F401 (fixtures)


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """A model with probabilities and a cutoff that sometimes shows nothing."""
    data = sl.load_dataset("sample")
    split = sl.split.last_basket(data)
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=30, filter_seen=False)
    model.set_cutoff(sl.cutoff.ExpectedF1(coverage=0.8).fit(lists, split.valid))
    return model.save(tmp_path_factory.mktemp("model") / "shop.shortlist")


@pytest.fixture
def folder(tmp_path, model_file):
    """A folder with the model."""
    (tmp_path / "shop.shortlist").write_bytes(model_file.read_bytes())
    return tmp_path


@pytest.fixture
def tokens(folder):
    """A token for each scope."""
    path = folder / "tokens"
    return {scope: create_token(path, scope, [scope]) for scope in ("read", "events", "admin")}


def start(folder, **settings):
    """A client of a service in this process."""
    config = ServeConfig(model=str(folder / "shop.shortlist"), **{"poll": 0.02, **settings})
    return TestClient(
        create_app(Service(config)), base_url="http://127.0.0.1:8000", raise_server_exceptions=False
    )


def usual_items(path, users):
    """User → the item that a model puts first for the user."""
    model = sl.load_model(path)
    return {row.user_id: row.items[0] for row in model.recommend(users, N=1, filter_seen=False)}


def logged_lists(store):
    """All rows of the log, oldest first."""
    return store.rows(sa.select(lists).order_by(lists.c.made, lists.c.list_id))


@pytest.fixture
def client(folder):
    """A service without tokens, on loopback."""
    with start(folder) as running:
        yield running


@pytest.fixture
def guarded(folder, tokens):
    """A service with tokens; `guarded.bearer(scope)` gives the header."""
    with start(folder, token_file=str(folder / "tokens")) as running:
        running.bearer = lambda scope: {"authorization": f"Bearer {tokens[scope]}"}
        yield running

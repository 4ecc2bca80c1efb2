"""Fixtures of the tests of the page: a service after some traffic, and Debian's chromium."""

import shutil
from contextlib import ExitStack

import polars as pl
import pytest

import shortlist as sl
from shortlist.serve.tokens import create_token
from tests.postgres import started
from tests.serve.server import Server

CHROMIUM = shutil.which("chromium")
WAIT = 60_000  # milliseconds; a calm machine needs a fraction
HOSTILE_USER = "<img src=x onerror=document.body.remove()>/../\"'&%41"
HOSTILE_NAME = "<script>document.body.remove()</script>"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of the sample; one user and one item have names that try to become HTML."""
    folder = tmp_path_factory.mktemp("page")
    frame = (
        sl.load_dataset("sample")
        .to_frame(names=True)
        .with_columns(
            pl.col("user_id").replace("u7", HOSTILE_USER),
            pl.col("item_name").replace("oats", HOSTILE_NAME),
        )
    )
    data = sl.Interactions.from_frame(frame, item_name="item_name")
    split = sl.split.last_basket(data)
    model = sl.PersonalFrequency().fit(split.train)
    lists = model.recommend(N=30, filter_seen=False)
    model.set_cutoff(sl.cutoff.ExpectedF1(coverage=0.8).fit(lists, split.valid))
    model.save(folder / "earlier.shortlist")
    model.save(folder / "shop.shortlist")
    return folder


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request, models, tmp_path_factory):
    """A service with a token file, in a process of its own, after some traffic."""
    folder = tmp_path_factory.mktemp(request.param)
    shutil.copytree(models, folder, dirs_exist_ok=True)
    token = create_token(folder / "tokens", "page", ["read", "events", "admin"])
    with ExitStack() as stack:
        db = stack.enter_context(started()) if request.param == "postgresql" else ""
        running = Server(folder, db, folder / "tokens", token)
        stack.callback(running.stop)
        users = [f"u{number}" for number in range(1, 61)]
        assert running.call("/v1/recommend", {"users": users}, timeout=60)[0] == 200
        event = {"user_id": "u1", "item_id": "i1"}
        assert running.call("/v1/events", {"events": [event]}, timeout=60)[1]["accepted"] == 1
        yield running


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=2 * WAIT
        )
        yield running
        running.close()


@pytest.fixture
def open_page(browser, server):
    """Opens the page with a token; errors in the console fail the test at its end."""
    problems, contexts = [], []

    def open_at(address="", *, phone=False, dark=False, with_token=True):
        context = browser.new_context(
            viewport=PHONE if phone else DESKTOP,
            is_mobile=phone,
            has_touch=phone,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.goto(server.url + (f"/#token={server.token}" if with_token else "/"))
        if address:
            page.goto(server.url + address)
        page.wait_for_selector("h1")
        page.problems = problems
        return page

    yield open_at
    for context in contexts:
        context.close()
    if problems:
        pytest.fail(f"the console of the browser reports {problems}")

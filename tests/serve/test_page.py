"""The page in a real browser: with a mouse, with the keyboard alone, on a phone, and for screen readers.

Every test fails if the browser's console reports an error, which includes what the Content-Security-Policy
refuses.
"""

import re
from pathlib import Path

import pytest

from tests.serve.browser import CHROMIUM, DESKTOP, HOSTILE_NAME, HOSTILE_USER, PHONE

AUDIT = (Path(__file__).parent / "audit.js").read_text(encoding="utf-8")
FOCUSED = (Path(__file__).parent / "focused.js").read_text(encoding="utf-8")
VIEWS = ("lookup", "experiment", "health", "models")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here (Debian: apt-get install chromium)"
)


def heading(page, text):
    """Wait for the headline of a view."""
    page.locator("h1", has_text=re.compile(text)).wait_for()


def confirm(page, name):
    """Answer the question before a change."""
    page.get_by_role("dialog").get_by_role("button", name=name).click()


def test_look_up_with_a_mouse(open_page):
    page = open_page()
    page.locator("button.chip").first.click()
    page.get_by_role("heading", name="items recommended").wait_for()
    page.get_by_text("The list ends here:").wait_for()
    assert page.locator("tbody.withheld tr").count() == 9  # a heading and eight items
    page.get_by_text("baskets, newest first").wait_for()
    page.get_by_label("Compare with").select_option("3")
    page.get_by_role("heading", name="3 items recommended").wait_for()
    assert page.locator("table.list").count() == 2
    page.get_by_text("Candidates and limits").click()
    page.get_by_label("Only these items").fill("i1, i2, nonsense")
    page.get_by_label("At most").fill("1")
    page.get_by_role("button", name="Show list").click()
    page.get_by_text("1 of 3 items are unknown").first.wait_for()
    assert page.locator("table.list tbody:first-of-type tr").count() <= 2


def test_an_empty_list_and_an_unknown_user_are_explained(open_page, server):
    lists = server.call("/v1/recommend", {"users": [f"u{n}" for n in range(1, 61)]})[1]["lists"]
    empty_user = next(row["user_id"] for row in lists if not row["items"])
    page = open_page()
    page.get_by_label("User id").fill(empty_user)
    page.keyboard.press("Enter")
    page.get_by_text("No list: even the best list has too low an expected utility.").wait_for()
    page.get_by_label("User id").fill("nobody")
    page.keyboard.press("Enter")
    page.get_by_text("The model does not know the user nobody.").wait_for()
    assert page.problems == ["Failed to load resource: the server responded with a status of 404 (Not Found)"]
    page.problems.clear()


def test_names_and_ids_stay_text(open_page, server):
    page = open_page()
    page.get_by_label("User id").fill(HOSTILE_USER)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="History").wait_for()
    assert page.get_by_label("User id").input_value() == HOSTILE_USER
    page.get_by_text("Candidates and limits").click()
    oats = next(
        event["item_id"]
        for number in range(1, 300)
        for event in server.call(f"/v1/users/u{number}")[1].get("events", ())
        if event["name"] == HOSTILE_NAME
    )
    page.get_by_label("Only these items").fill(oats)
    page.get_by_role("button", name="Show list").click()
    page.locator("table.list td", has_text=HOSTILE_NAME).first.wait_for()
    assert page.locator("main script, main img").count() == 0
    page.reload()  # the address holds the id
    page.get_by_role("heading", name="History").wait_for()
    assert page.get_by_label("User id").input_value() == HOSTILE_USER
    page.goto(f"{server.url}/#lookup/%E0%A4%A")  # not a valid encoding
    heading(page, "What does a user get")
    page.get_by_text("The model does not know the user").wait_for()
    assert page.problems == ["Failed to load resource: the server responded with a status of 404 (Not Found)"]
    page.problems.clear()


def test_activation_and_roll_back_with_a_mouse(open_page, server):
    page = open_page()
    before = server.call("/v1/model")[1]
    page.get_by_role("link", name="Models").click()
    page.get_by_role("button", name="Activate earlier").click()
    confirm(page, "Cancel")
    assert server.call("/v1/model")[1]["activations"] == before["activations"]
    page.get_by_role("button", name="Activate earlier").click()
    confirm(page, "Activate")
    heading(page, "In service: earlier")
    page.locator("#model-name", has_text="earlier").wait_for()
    page.get_by_role("button", name="Roll back to shop").first.click()
    confirm(page, "Roll back")
    heading(page, "In service: shop")
    assert server.call("/v1/model")[1]["cutoff_description"] == before["cutoff_description"]


def test_without_a_token_file_nothing_looks_changeable(open_page, server):
    page = open_page()

    def without_tokens(route):
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"can_change": False})

    page.route("**/v1/model", without_tokens)
    hint = "Start the service with --token_file; shortlist service token creates one."
    page.get_by_role("link", name="Models").click()
    page.get_by_text(hint).wait_for()
    assert page.get_by_role("button", name="Activate earlier").is_disabled()


def test_health_says_what_to_do(open_page, server):
    page = open_page("/#health")
    page.clock.install()
    page.reload()
    heading(page, "Act now|watch|Everything is in order")
    names = page.locator(".check h2 span:first-child").all_inner_texts()
    wanted = {"Event store", "Lists", "Failed requests", "Latency", "Empty lists", "List lengths"}
    assert wanted | {"Unknown users", "Events", "Age of the data"} <= set(names)
    states = [card.get_attribute("data-state") for card in page.locator(".check").all()]
    assert states == sorted(states, key=["bad", "warning", "ok", "unknown"].index)
    page.locator('.check[data-state="ok"] summary').first.click()
    page.locator(".check details[open] p").first.wait_for()
    for title in ("Lists per minute", "Events per minute", "Time to answer", "List lengths"):
        page.locator("section", has=page.get_by_role("heading", name=title)).locator(
            "svg[role=img]"
        ).wait_for()
    red = {
        "name": "A new check",
        "state": "bad",
        "value": "42",
        "sentence": "It is red.",
        "action": "Run `this`.",
    }
    status = server.call("/v1/status")[1]
    status["checks"].append(red)
    page.route("**/v1/status", lambda route: route.fulfill(json=status))
    page.clock.fast_forward(10_000)
    heading(page, "Act now.*A new check")
    first = page.locator(".check").first
    assert "What to do: Run this." in first.inner_text()
    page.unroute("**/v1/status")
    page.route("**/v1/status", lambda route: route.abort())
    page.clock.fast_forward(10_000)
    page.get_by_role("alert").get_by_text("The service cannot be reached.").wait_for()
    assert {text.split(":")[-1] for text in page.problems} == {"ERR_FAILED"}
    page.problems.clear()


def focused(page):
    """Name of the element with the focus, which must be visible."""
    return page.evaluate(FOCUSED)


def tab_to(page, name):
    """Press Tab until an element has the focus; the end of the page leads back to its beginning."""
    for _ in range(60):
        page.keyboard.press("Tab")
        now = focused(page)
        assert not now.startswith("INVISIBLE"), now
        if now.startswith(name):
            return
    pytest.fail(f"{name} cannot be reached with Tab")


def follow(page, name, headline):
    """Open a view with the keyboard; its headline gets the focus."""
    tab_to(page, name)
    page.keyboard.press("Enter")
    heading(page, headline)
    page.wait_for_function("() => document.activeElement.localName === 'h1'")


def test_everything_with_the_keyboard_alone(open_page, server):
    page = open_page()
    page.get_by_text("For example").wait_for()
    tab_to(page, "Skip to content")
    page.keyboard.press("Enter")
    tab_to(page, "User id")
    page.keyboard.type("u10")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="items recommended").wait_for()
    tab_to(page, "Compare with")
    page.keyboard.press("ArrowDown")  # the cutoff in service
    page.keyboard.press("ArrowDown")  # three items
    page.get_by_role("heading", name="3 items recommended").wait_for()
    follow(page, "Health", "Act now|watch|Everything is in order")
    tab_to(page, "Update every 10 seconds")
    page.keyboard.press("Space")
    assert not page.get_by_role("checkbox").is_checked()
    tab_to(page, "If this turns red")
    page.keyboard.press("Enter")
    page.locator(".check details[open]").wait_for()
    follow(page, "Models", "In service: shop")
    tab_to(page, "Activate earlier")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert focused(page) == "Activate earlier"
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Enter")
    heading(page, "In service: earlier")
    tab_to(page, "Roll back to shop")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Enter")
    heading(page, "In service: shop")
    assert "back to activation" in server.call("/v1/model")[1]["activations"][0]["note"]


def test_an_answer_belongs_to_the_question_that_is_open(open_page):
    """A question that is asked again at once, before the browser reports that the first was closed."""
    page = open_page()
    page.evaluate(
        """async () => {
            const { confirmed } = await import("/page/dom.js");
            const first = confirmed("First?", "Yes");
            document.getElementById("confirm-dialog").close();
            window.answers = Promise.all([first, confirmed("Second?", "Yes")]);
        }"""
    )
    page.wait_for_timeout(200)  # the report of the first closing arrives
    confirm(page, "Yes")
    assert page.evaluate("() => window.answers") == [False, True]


def test_everything_on_a_phone(open_page):
    page = open_page(phone=True)
    page.locator("button.chip").first.tap()
    page.get_by_text("The list ends here:").wait_for()
    page.get_by_text("Candidates and limits").tap()
    page.get_by_label("At most").fill("2")
    page.get_by_role("button", name="Show list").tap()
    page.get_by_role("heading", name="2 items recommended").wait_for()
    assert page.evaluate(AUDIT) == []
    page.get_by_role("link", name="Health").tap()
    page.locator(".check").first.wait_for()
    page.get_by_role("link", name="Models").tap()
    heading(page, "In service: shop")
    page.get_by_role("button", name="Activate earlier").tap()
    assert page.evaluate(AUDIT) == []
    page.get_by_role("dialog").get_by_role("button", name="Cancel").tap()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_audit_finds_nothing(open_page, server, dark):
    page = open_page("/#lookup/u10", dark=dark)
    page.get_by_text("The list ends here:").wait_for()
    page.get_by_label("Compare with").select_option("5")
    page.get_by_role("heading", name="5 items recommended").wait_for()
    page.get_by_text("Candidates and limits").click()
    findings = {"lookup": page.evaluate(AUDIT)}
    for view in VIEWS[1:]:
        page.goto(f"{server.url}/#{view}")
        page.locator(f'nav a[href="#{view}"][aria-current=page]').wait_for()
        page.locator("main section").first.wait_for()
        findings[view] = page.evaluate(AUDIT)
    page.get_by_role("button", name="Access token").click()
    findings["token"] = page.evaluate(AUDIT)
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        page.goto(f"{server.url}/docs")
        page.locator("main section").first.wait_for()
        findings[f"docs {size['width']}"] = page.evaluate(AUDIT)
    assert {view: found for view, found in findings.items() if found} == {}


def test_the_audit_notices(open_page):
    page = open_page("/#models")
    page.locator("main section").first.wait_for()
    page.evaluate(
        """() => {
          const main = document.getElementById("main");
          const wrong = { img: {}, input: {}, h4: {}, button: { id: "main" }, p: { class: "pale" } };
          for (const [name, attributes] of Object.entries(wrong)) {
            const one = document.createElement(name);
            for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
            if (["h4", "p"].includes(name)) one.textContent = "text";
            main.append(one);
          }
          const sheet = new CSSStyleSheet();
          sheet.replaceSync(".pale { color: #999; }");
          document.adoptedStyleSheets = [sheet];
        }"""
    )
    text = "\n".join(page.evaluate(AUDIT))
    for finding in (
        "no alt",
        "no label: <input",
        "heading out of order: <h4>",
        "ids occur twice: main",
        "no name: <button",
        "contrast 2.",
    ):
        assert finding in text


def test_a_token_is_asked_for_and_kept_out_of_the_address(open_page, server):
    page = open_page("/#models", with_token=False)
    page.get_by_role("alert").get_by_text("A valid bearer token is needed.").wait_for()
    page.get_by_role("button", name="Enter a token").click()
    page.get_by_label("Token", exact=True).fill("wrong")
    page.get_by_role("button", name="Use").click()
    page.get_by_role("button", name="Enter a token").click()
    page.get_by_label("Token", exact=True).fill(server.token)
    page.get_by_role("button", name="Use").click()
    heading(page, "In service: shop")
    page.goto(f"{server.url}/#token={server.token}")
    heading(page, "What does a user get")
    assert page.url == f"{server.url}/#lookup"
    assert page.problems
    assert all("401" in text for text in page.problems)
    page.problems.clear()


def test_the_policy_refuses_inline_style_and_script(open_page):
    page = open_page()
    page.evaluate(
        """() => {
          const one = document.createElement("p");
          one.setAttribute("style", "color: red");
          document.body.append(one, Object.assign(document.createElement("script"), { textContent: "1" }));
        }"""
    )
    page.wait_for_timeout(200)
    assert len(page.problems) == 2
    assert all("Content Security Policy" in text for text in page.problems)
    page.problems.clear()


def test_an_experiment_is_shown_and_stopped(open_page, server):
    arms = [{"name": "three", "share": 0.5, "options": {"N": 3}}, {"name": "dynamic", "share": 0.5}]
    assert server.call("/v1/experiment", {"name": "spring", "arms": arms})[0] == 200
    server.call("/v1/recommend", {"users": [f"u{k}" for k in range(1, 20)]})
    page = open_page("/#experiment")
    page.get_by_role("heading", name="Experiment spring: not yet").wait_for()
    assert page.get_by_role("row").count() == 3
    assert page.evaluate(AUDIT) == []
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    page.get_by_role("heading", name="Put an arm into service").wait_for()

"""The service through its routes: lists, events, models, errors."""

import time

import pytest

import shortlist as sl
from tests.serve.conftest import logged_lists


def wait_for(condition, seconds=120):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.01)


class TestLists:
    def test_lists_are_those_of_the_library(self, client, folder):
        model = sl.load_model(folder / "shop.shortlist")
        users = model.users_.values[:20].to_list()
        expected = model.recommend(users)
        answer = client.post("/v1/recommend", json={"users": users}).json()
        assert answer["model"] == "shop"
        assert answer["cutoff"] == "ExpectedF1"
        for user, one in zip(users, answer["lists"], strict=True):
            assert one["user_id"] == user
            assert [item["item_id"] for item in one["items"]] == expected[user].items
            assert one["reason"] == expected[user].reason
            assert [item["score"] for item in one["items"]] == pytest.approx(expected[user].scores.tolist())
            probabilities = [item["probability"] for item in one["items"]]
            assert probabilities == pytest.approx(expected[user].probabilities.tolist())
        assert {len(one["items"]) for one in answer["lists"]} >= {0}

    def test_every_list_has_its_own_id(self, client):
        answer = client.post("/v1/recommend", json={"users": ["u1", "u1", "u2"]}).json()
        assert len({one["list_id"] for one in answer["lists"]}) == 3

    def test_unknown_user_gets_an_empty_list(self, client):
        one = client.post("/v1/recommend", json={"users": ["nobody"]}).json()["lists"][0]
        assert one["items"] == []
        assert one["reason"] == "unknown_user"

    def test_session(self, client, folder):
        model = sl.load_model(folder / "shop.shortlist")
        answer = client.post("/v1/recommend", json={"history": {"s": ["i1", "i2", "no such item"]}}).json()
        expected = model.recommend(history={"s": ["i1", "i2"]})["s"]
        assert [item["item_id"] for item in answer["lists"][0]["items"]] == expected.items
        assert answer["notes"] == ["history: 1 of 3 items are unknown and were ignored"]

    def test_a_session_of_unknown_items_is_not_called_a_user(self, client):
        one = client.post("/v1/recommend", json={"history": {"s": ["no such item"]}}).json()["lists"][0]
        assert one["reason"] == "unknown_user"
        assert one["explanation"] == "the session has no item that the model knows"

    def test_candidates_exclude_and_limits(self, client):
        body = {"users": ["u1"], "candidates": ["i1", "i2", "i3"], "exclude": ["i2"], "N": 5}
        one = client.post("/v1/recommend", json=body).json()["lists"][0]
        assert {item["item_id"] for item in one["items"]} == {"i1", "i3"}
        one = client.post("/v1/recommend", json={"users": ["u1"], "min_items": 4, "max_items": 4}).json()
        assert len(one["lists"][0]["items"]) == 4

    def test_withheld_candidates_continue_the_list(self, client, folder):
        ranked = sl.load_model(folder / "shop.shortlist").recommend(["u1"], N=30)["u1"].items
        one = client.post("/v1/recommend", json={"users": ["u1"], "withheld": 5}).json()["lists"][0]
        shown = [item["item_id"] for item in one["items"]]
        assert shown + [item["item_id"] for item in one["withheld"]] == ranked[: len(shown) + 5]

    def test_explain(self, client):
        one = client.post("/v1/recommend", json={"users": ["u1"], "N": 3, "explain": True}).json()["lists"][0]
        for item in one["items"]:
            assert sum(amount for _, amount in item["contributions"]) == pytest.approx(
                item["score"], abs=1e-3
            )

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({}, "either users or history"),
            ({"users": ["u1"], "history": {}}, "either users or history"),
            ({"users": [7]}, "users must be a text"),
            ({"users": ["u1"], "N": -1}, "N"),
            ({"users": ["u1"], "K": 3}, "K"),
            ({"users": "u1"}, "users"),
            ({"users": ["u1"], "at": "tomorrow"}, "at"),
            ({"users": ["u1", "u2"], "explain": True}, "explain works for one user"),
            ({"users": ["u1"], "min_items": 5, "max_items": 2}, "min_items"),
            ({"users": ["u"] * 1001}, "users may have 1,000 entries"),
        ],
    )
    def test_wrong_requests_are_answered_with_a_rule_and_a_hint(self, client, body, words):
        answer = client.post("/v1/recommend", json=body)
        assert answer.status_code == 422
        assert answer.json().keys() == {"error", "rule", "hint"}
        assert words in answer.json()["rule"]

    @pytest.mark.parametrize(
        ("body", "rule", "hint"),
        [
            ({"user": 200001}, "unknown field 'user'", "did you mean 'users'?"),
            ({"users": ["u1"], "n": 3}, "unknown field 'n'", "did you mean 'N'?"),
            (
                {"history": ["SKU"]},
                "history must be an object",
                'for example {"history":{"session-1":["i1","i10"]}}',
            ),
            ({"users": "u1"}, "users must be a list", 'for example {"users":["u1","u2"]}'),
            ({"users": [1.5]}, "users.0 must be a text or an integer", 'for example {"users":["u1","u2"]}'),
            ({"users": ["u1"], "N": "3"}, "N must be an integer", "see /docs"),
        ],
    )
    def test_wrong_fields_are_answered_with_the_right_ones(self, client, body, rule, hint):
        answer = client.post("/v1/recommend", json=body).json()
        assert (answer["rule"], answer["hint"]) == (rule, hint)

    def test_an_unknown_field_deep_in_a_body_is_compared_with_its_neighbors(self, client):
        lists = [{"user_id": "u1", "items": [{"itemid": "i1", "score": 1.0}]}]
        answer = client.post("/v1/cut", json={"lists": lists, "cutoff": "x"}).json()
        assert (answer["rule"], answer["hint"]) == ("unknown field 'itemid'", "did you mean 'item_id'?")


class TestEvents:
    def test_events_reach_the_lists(self, client):
        before = client.post("/v1/recommend", json={"users": ["newcomer"]}).json()["lists"][0]
        assert before["reason"] == "unknown_user"
        events = [{"user_id": "newcomer", "item_id": item, "time": "2025-01-01"} for item in ("i1", "i2")]
        answer = client.post("/v1/events", json={"events": events})
        counts = {"accepted": 2, "duplicates": 0}
        assert answer.json() == {**counts, "rejected": [], "new_items": []}
        wait_for(lambda: client.get("/v1/users/newcomer").status_code == 200)
        known = client.get("/v1/users/newcomer").json()["events"]
        assert {event["time"] for event in known} == {"2025-01-01T00:00:00Z"}
        one = client.post("/v1/recommend", json={"users": ["newcomer"], "N": 2}).json()["lists"][0]
        assert {item["item_id"] for item in one["items"]} == {"i1", "i2"}

    def test_events_with_a_known_id_are_stored_once(self, client):
        event = {"user_id": "u1", "item_id": "i1", "event_id": "order-7"}
        assert client.post("/v1/events", json={"events": [event]}).json()["accepted"] == 1
        other = {**event, "item_id": "i2"}
        answer = client.post("/v1/events", json={"events": [event, other]}).json()
        counts = {"accepted": 0, "duplicates": 2}
        assert answer == {**counts, "rejected": [], "new_items": []}

    def test_items_that_the_model_does_not_know_are_named(self, client):
        """A mistyped id looks like a new item."""
        items = ["i1", "i1x", "new", "i1x", *(f"more{n}" for n in range(20))]
        events = [{"user_id": "u1", "item_id": item, "time": "2025-01-01"} for item in items]
        answer = client.post("/v1/events", json={"events": events}).json()
        assert answer["accepted"] == 23
        assert answer["new_items"] == ["i1x", "new", *(f"more{n}" for n in range(8))]

    def test_an_unknown_field_is_rejected_with_the_known_ones(self, client):
        events = [{"user_id": "u1", "item_id": "i1", "quantity": 2}]
        rejected = client.post("/v1/events", json={"events": events}).json()["rejected"]
        assert rejected[0]["reason"].startswith(
            "unknown field 'quantity'; the fields are user_id, item_id, time"
        )
        assert "weight" in rejected[0]["reason"]

    def test_wrong_events_are_rejected_and_the_rest_is_stored(self, client):
        events = [
            {"user_id": "u1", "item_id": "i1"},
            {"user_id": 5, "item_id": "i1"},
            {"user_id": "u1"},
            {"user_id": "u1", "item_id": "i1", "time": "yesterday"},
            {"user_id": "u1", "item_id": "i1", "time": "2999-01-01"},
            "not an event",
            {"user_id": "u\x1b[31m", "item_id": "i1"},
        ]
        answer = client.post("/v1/events", json={"events": events}).json()
        assert answer["accepted"] == 1
        assert [one["index"] for one in answer["rejected"]] == [1, 2, 3, 4, 5, 6]
        assert all(one["reason"] for one in answer["rejected"])

    def test_one_event_per_line(self, client):
        body = b'{"user_id": "u1", "item_id": "i1"}\n\n{"user_id": "u2", "item_id": "i2"}\nnonsense\n'
        answer = client.post("/v1/events", content=body, headers={"content-type": "application/x-ndjson"})
        assert answer.json()["accepted"] == 2
        assert answer.json()["rejected"][0]["index"] == 2

    def test_too_many_events_are_refused(self, client):
        events = [{"user_id": "u1", "item_id": "i1"}] * 10_001
        assert client.post("/v1/events", json={"events": events}).status_code == 422


class TestCut:
    def lists(self, n=40):
        return [
            {
                "user_id": f"u{user}",
                "items": [{"item_id": f"i{i}", "score": 1 / (1 + i) + 0.001 * (user % 7)} for i in range(10)],
            }
            for user in range(n)
        ]

    def test_unknown_cutoff(self, client):
        answer = client.post("/v1/cut", json={"lists": self.lists(1), "cutoff": "none"})
        assert answer.status_code == 404


class TestModels:
    def test_activation_swaps_the_model_and_can_be_undone(self, guarded, folder):
        data = sl.load_dataset("sample")
        sl.Popularity().fit(data).set_cutoff(sl.cutoff.FixedN(N=3)).save(folder / "popular.shortlist")
        admin, read = guarded.bearer("admin"), guarded.bearer("read")
        answer = guarded.post("/v1/model", json={"name": "popular"}, headers=admin)
        assert answer.json()["name"] == "popular"
        one = guarded.post("/v1/recommend", json={"users": ["u1"]}, headers=read).json()
        assert one["model"] == "popular"
        assert len(one["lists"][0]["items"]) == 3
        first = answer.json()["activations"][-1]
        body = {"name": "shop", "activation": first["number"]}
        assert guarded.post("/v1/model", json=body, headers=admin).json()["name"] == "shop"

    def test_a_model_that_cannot_serve_is_refused_and_the_old_one_stays(self, guarded, folder):
        sl.Popularity().fit(sl.load_dataset("sample")).save(folder / "bare.shortlist")
        content = bytearray((folder / "shop.shortlist").read_bytes())
        content[-1] ^= 1
        (folder / "damaged.shortlist").write_bytes(content)
        admin, read = guarded.bearer("admin"), guarded.bearer("read")
        for name in ("bare", "damaged"):
            answer = guarded.post("/v1/model", json={"name": name}, headers=admin)
            assert answer.status_code == 409
        assert guarded.post("/v1/recommend", json={"users": ["u1"]}, headers=read).json()["model"] == "shop"

    @pytest.mark.parametrize("name", ["../shop", "/etc/passwd", "shop.shortlist", "", "none"])
    def test_names_are_not_paths(self, guarded, name):
        answer = guarded.post("/v1/model", json={"name": name}, headers=guarded.bearer("admin"))
        assert answer.status_code == 422

    def test_only_a_service_with_tokens_can_be_changed(self, guarded, folder):
        from tests.serve.conftest import start

        assert guarded.get("/v1/model", headers=guarded.bearer("read")).json()["can_change"] is True
        with start(folder) as without:
            assert without.get("/v1/model").json()["can_change"] is False

    def test_restart_serves_the_last_activated_model_with_all_events(self, folder, tokens):
        from tests.serve.conftest import start

        settings = {"token_file": str(folder / "tokens")}
        bearer = {scope: {"authorization": f"Bearer {secret}"} for scope, secret in tokens.items()}
        data = sl.load_dataset("sample")
        sl.Popularity().fit(data).set_cutoff(sl.cutoff.FixedN(N=3)).save(folder / "popular.shortlist")
        with start(folder, **settings) as first:
            first.post("/v1/model", json={"name": "popular"}, headers=bearer["admin"])
            event = {"user_id": "newcomer", "item_id": "i1", "time": "2025-01-01"}
            first.post("/v1/events", json={"events": [event]}, headers=bearer["events"])
        with start(folder, **settings) as second:
            assert second.get("/v1/model", headers=bearer["read"]).json()["name"] == "popular"
            assert second.get("/v1/users/newcomer", headers=bearer["read"]).json()["n_events"] == 1


class TestAccess:
    ROUTES = (
        ("POST", "/v1/recommend", {"users": ["u1"]}, "read"),
        ("POST", "/v1/cut", {"lists": [], "cutoff": "x"}, "read"),
        ("POST", "/v1/events", {"events": []}, "events"),
        ("GET", "/v1/users/u1", None, "read"),
        ("DELETE", "/v1/users/u1", None, "admin"),
        ("GET", "/v1/model", None, "read"),
        ("POST", "/v1/model", {"name": "none"}, "admin"),
        ("GET", "/v1/status", None, "read"),
        ("GET", "/v1/experiment", None, "read"),
        ("POST", "/v1/experiment", {"name": "spring", "arms": []}, "admin"),
        ("POST", "/v1/experiment/stop", {"name": "spring"}, "admin"),
        ("GET", "/metrics", None, "read"),
    )
    OPEN = ("/health", "/ready", "/", "/page/main.js", "/docs", "/openapi.json")

    @pytest.mark.parametrize("scope", ["none", "wrong", "read", "events", "admin"])
    def test_matrix(self, guarded, scope):
        wrong = {"authorization": "Bearer wrong"}
        headers = {} if scope == "none" else wrong if scope == "wrong" else guarded.bearer(scope)
        for method, path, body, needed in self.ROUTES:
            status = guarded.request(method, path, json=body, headers=headers).status_code
            if scope in ("none", "wrong"):
                assert status == 401, path
            elif scope == needed:
                assert status not in (401, 403), path
            else:
                assert status == 403, path
        for path in self.OPEN:
            assert guarded.get(path, headers=headers).status_code == 200, path

    def test_without_tokens_nothing_can_be_changed(self, client):
        for method, path, body, needed in self.ROUTES:
            status = client.request(method, path, json=body).status_code
            assert (status == 403) == (needed == "admin"), path

    def test_every_route_declares_the_scope_that_it_needs(self, client):
        paths = client.get("/openapi.json").json()["paths"]
        declared = {
            (method.upper(), path): [
                scope for scheme in about.get("security", ()) for scope in scheme["HTTPBearer"]
            ]
            for path, methods in paths.items()
            for method, about in methods.items()
        }
        assert [path for (_, path), scopes in declared.items() if not scopes] == ["/health", "/ready"]
        names = {"/v1/users/u1": "/v1/users/{user_id}"}
        tested = {(method, names.get(path, path)): [needed] for method, path, _, needed in self.ROUTES}
        assert {key: scopes for key, scopes in declared.items() if scopes} == tested

    def test_other_host_names_are_refused_without_tokens(self, client):
        answer = client.post("/v1/recommend", json={"users": ["u1"]}, headers={"host": "evil.example"})
        assert answer.status_code == 403


class TestGate:
    def test_security_headers_and_request_id(self, client):
        headers = client.get("/").headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert len(headers["x-request-id"]) == 16
        assert "access-control-allow-origin" not in headers

    def test_large_bodies_are_refused(self, folder):
        from tests.serve.conftest import start

        with start(folder, max_body=2_000) as small:
            body = {"users": ["u" * 3_000]}
            assert small.post("/v1/recommend", json=body).status_code == 413

            def chunks():
                for _ in range(10):
                    yield b" " * 1_000

            answer = small.post(
                "/v1/recommend", content=chunks(), headers={"content-type": "application/json"}
            )
            assert answer.status_code == 413
            assert answer.json()["error"] == "too_large"

    def test_other_content_types_are_refused(self, client):
        answer = client.post("/v1/recommend", content=b"{}", headers={"content-type": "text/plain"})
        assert answer.status_code == 415

    def test_unknown_paths_and_methods(self, client):
        assert client.get("/v1/recommend").status_code == 405
        assert client.get("/../../etc/passwd").status_code == 404
        assert client.get("/page/..%2fapp.py").status_code == 404

    def test_internal_errors_tell_nothing(self, client, monkeypatch, capsys):
        from shortlist.serve import app as routes

        def fail(*_):
            raise RuntimeError("secret path /srv/private")

        monkeypatch.setattr(routes, "_describe_models", fail)
        answer = client.get("/v1/model")
        assert answer.status_code == 500
        assert answer.json()["error"] == "internal_error"
        assert "secret" not in answer.text
        assert answer.headers["x-request-id"] in capsys.readouterr().err


class TestOperation:
    def test_metrics_count_lists_and_events(self, client):
        client.post("/v1/recommend", json={"users": ["u1", "u2", "nobody"]})
        client.post("/v1/events", json={"events": [{"user_id": "u1", "item_id": "i1"}, {}]})
        text = client.get("/metrics").text
        assert "shortlist_lists_total 3.0" in text
        assert "shortlist_unknown_users_total 1.0" in text
        assert 'shortlist_events_total{result="accepted"} 1.0' in text
        assert 'shortlist_events_total{result="rejected"} 1.0' in text

    def test_status_has_a_sentence_for_every_check(self, client):
        status = client.get("/v1/status").json()
        assert all(check["sentence"] for check in status["checks"])
        assert {check["state"] for check in status["checks"]} <= {"ok", "warning", "bad", "unknown"}

    def test_logged_lists_hold_what_was_shown(self, client, folder):
        from shortlist.serve.store import EventStore

        one = client.post("/v1/recommend", json={"users": ["u1"], "N": 2}).json()["lists"][0]
        path = folder / "shop.events.sqlite"
        store = EventStore(f"sqlite:///{path}")
        wait_for(lambda: logged_lists(store))
        row = logged_lists(store)[0]
        assert row.list_id == one["list_id"]
        assert row.user_id == "u1"
        assert row.items == '["' + '","'.join(item["item_id"] for item in one["items"]) + '"]'
        store.close()

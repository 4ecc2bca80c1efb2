"""Small requests for lists, which are answered without ASGI: the same answers, however they are sent."""

import json
import socket
import threading
import time

import pytest
import uvicorn

from shortlist.serve import lists
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.gate import Gate
from shortlist.serve.run import LimitedProtocol
from shortlist.serve.service import Service
from tests.serve.conftest import logged_lists
from tests.serve.server import free_port

USERS = {"users": ["u1", "u2"], "N": 3}


class LiveService:
    """A service in a thread, and which requests were answered without ASGI."""

    def __init__(self, folder, monkeypatch, **settings):
        self.service = Service(ServeConfig(model=str(folder / "shop.shortlist"), **settings))
        self.port, self.began = free_port(), []
        begin = Gate.begin

        def note(gate, *arguments):
            self.began.append(begin(gate, *arguments))
            return self.began[-1]

        monkeypatch.setattr(Gate, "begin", note)
        config = uvicorn.Config(
            create_app(self.service),
            port=self.port,
            http=LimitedProtocol,
            log_level="critical",
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        end = time.monotonic() + 60
        while not self.server.started:
            assert time.monotonic() < end
            time.sleep(0.01)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def stop(self):
        self.server.should_exit = True
        self.thread.join()


@pytest.fixture
def live(folder, monkeypatch):
    started = LiveService(folder, monkeypatch)
    yield started
    started.stop()


def request_bytes(body, **changed):
    """A request for lists; `changed` are headers."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {
        "host": "127.0.0.1",
        "content_type": "application/json",
        "content_length": len(content),
    } | changed
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return b"POST /v1/recommend HTTP/1.1\r\n" + lines.encode() + b"\r\n", content


def read_answer(client):
    """(status, headers, body) of the next answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += client.recv(1)
    first, *lines = received.decode().removesuffix("\r\n\r\n").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = b""
    while len(body) < int(headers["content-length"]):
        body += client.recv(int(headers["content-length"]) - len(body))
    return int(first.split()[1]), headers, json.loads(body)


def comparable(answer):
    """An answer without what is new in each."""
    status, headers, body = answer
    headers = {name: value for name, value in headers.items() if name != "x-request-id"}
    return status, headers, {**body, "lists": [{**each, "list_id": ""} for each in body.get("lists", [])]}


def send(live, parts, pause=0.0):
    """The answer to a request in these parts."""
    with live.connect() as client:
        for part in parts:
            client.sendall(part)
            time.sleep(pause)
        return read_answer(client)


@pytest.mark.parametrize("body", [USERS, {"users": ["u3"]}, {"users": ["nobody"], "fallback": "popular"}])
def test_answers_are_those_of_the_application(live, monkeypatch, body):
    head, content = request_bytes(body)
    direct = send(live, [head + content])
    in_parts = send(live, [head, content[:5], content[5:]], pause=0.005)
    assert live.began == [True, True]
    monkeypatch.setattr(Gate, "is_direct", lambda gate, scope: False)
    expected = send(live, [head + content])
    assert len(live.began) == 2
    assert expected[0] == 200
    assert comparable(direct) == comparable(in_parts) == comparable(expected)
    assert len(direct[2]["lists"]) == len(body["users"])


def test_a_slow_body_is_answered_by_the_application(live):
    head, content = request_bytes(USERS)
    assert send(live, [head, content], pause=0.2)[0] == 200
    assert live.began == []


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        (b"{", {}, 422, "invalid_request"),
        ({"users": ["u1"], "n": 3}, {}, 422, "invalid_request"),
        ({"users": [7]}, {}, 422, "invalid_request"),
        (USERS, {"host": "example.org"}, 403, "host_refused"),
        (USERS, {"content_type": "text/plain"}, 415, "content_type"),
    ],
)
def test_errors_have_the_usual_form(live, body, headers, status, error):
    got, _, content = send(live, [b"".join(request_bytes(body, **headers))])
    assert (got, content["error"]) == (status, error)
    assert True not in live.began


def test_several_requests_in_one_piece_are_answered_in_order(live):
    users = ["u1", "u2", "u3", "u4"]
    with live.connect() as client:
        client.sendall(b"".join(b"".join(request_bytes({"users": [user], "N": 2})) for user in users))
        answers = [read_answer(client) for _ in users]
    assert [answer[2]["lists"][0]["user_id"] for answer in answers] == users


def test_a_client_may_want_its_connection_closed(live):
    with live.connect() as client:
        client.sendall(b"".join(request_bytes(USERS, connection="close")))
        _, headers, _ = read_answer(client)
        assert headers["connection"] == "close"
        assert client.recv(1) == b""
    assert live.began == [True]


def test_lists_are_counted_and_logged(live):
    send(live, [b"".join(request_bytes(USERS))])
    end = time.monotonic() + 20
    while not (logged := logged_lists(live.service.store)):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert {row.user_id for row in logged} == {"u1", "u2"}  # ids of the same second are in no order
    assert b"shortlist_lists_total 2.0" in live.service.metrics.text()
    assert b'route="/v1/recommend",status="200"} 1.0' in live.service.metrics.text()


@pytest.fixture
def slow(folder, monkeypatch):
    """A service with a short deadline that takes long for all lists but those of u1."""
    computed = []
    answer_jobs = lists.answer_jobs

    def delay(jobs):
        computed.extend(user for job in jobs for user in job.users)
        if any(job.users != ("u1",) for job in jobs):
            time.sleep(1)
        return answer_jobs(jobs)

    monkeypatch.setattr("shortlist.serve.service.answer_jobs", delay)
    started = LiveService(folder, monkeypatch, timeout=0.4)
    started.computed = computed
    yield started
    started.stop()


def test_an_answer_that_takes_too_long_is_an_error(slow):
    status, headers, body = send(slow, [b"".join(request_bytes({"users": ["u2"], "N": 3}))])
    assert (status, body["error"], headers["retry-after"]) == (503, "timeout", "2")
    assert slow.began == [True]
    time.sleep(1)
    assert logged_lists(slow.service.store) == []


def test_nothing_is_computed_for_a_client_that_has_gone(slow):
    with slow.connect() as first, slow.connect() as second:
        first.sendall(b"".join(request_bytes({"users": ["u2"], "N": 3})))
        time.sleep(0.1)  # it is being computed
        second.sendall(b"".join(request_bytes({"users": ["u3"], "N": 3})))
        time.sleep(0.1)
        second.close()
        time.sleep(1.5)
    assert slow.began == [True, True]
    assert "u3" not in slow.computed


class ParsedRequests:
    """Counts the requests that the HTTP parser sees."""

    def __init__(self, monkeypatch):
        self.n = 0
        begin = LimitedProtocol.on_message_begin

        def count(protocol):
            self.n += 1
            begin(protocol)

        monkeypatch.setattr(LimitedProtocol, "on_message_begin", count)


def ask(client, body, **headers):
    """The answer to a request on an open connection."""
    client.sendall(b"".join(request_bytes(body, **headers)))
    return read_answer(client)


def test_requests_with_the_same_headers_are_parsed_twice_at_most(live, monkeypatch):
    parsed, users = ParsedRequests(monkeypatch), ["u1", "u2", "u3", "u4", "u5", "u6"]
    with live.connect() as client:
        answers = [ask(client, {"users": [user], "N": 2}) for user in users]
    assert parsed.n == 2
    assert live.began == [True] * 6
    monkeypatch.setattr(Gate, "is_direct", lambda gate, scope: False)
    expected = [send(live, [b"".join(request_bytes({"users": [user], "N": 2}))]) for user in users]
    assert [comparable(answer) for answer in answers] == [comparable(answer) for answer in expected]


def test_repeated_headers_with_another_body_are_answered_as_they_ask(live):
    """Bodies of the same length: other options, an error, an unknown user."""
    bodies = [
        b'{"users":["u1"],"N":3}',
        b'{"users":["u2"],"N":3}',
        b'{"users":["u2"],"N":2}',
        b'{"users":["u2"],"M":2}',
        b'{"users":["zz"],"N":2}',
        b'{"users":[true],"N":2}',
        b'{"users":["u3"],"N":4}',
    ]
    with live.connect() as client:
        statuses, _, answers = zip(*(ask(client, body) for body in bodies), strict=True)
    assert statuses == (200, 200, 200, 422, 200, 422, 200)
    lengths = [len(answers[at]["lists"][0]["items"]) for at in (0, 1, 2, 4, 6)]
    assert lengths == [3, 3, 2, 0, 4]
    assert answers[4]["lists"][0]["reason"] == "unknown_user"


def test_repeated_headers_with_a_body_in_pieces_or_two_requests_in_one(live):
    head, content = request_bytes({"users": ["u1"], "N": 2})
    with live.connect() as client:
        for _ in range(3):
            assert ask(client, content)[0] == 200
        client.sendall(head + content[:5])
        time.sleep(0.02)
        client.sendall(content[5:])
        in_pieces = read_answer(client)
        client.sendall(head + content + head + content.replace(b"u1", b"u2"))
        both = [read_answer(client) for _ in range(2)]
        again = ask(client, content)
    assert [answer[2]["lists"][0]["user_id"] for answer in (in_pieces, *both, again)] == [
        "u1",
        "u1",
        "u2",
        "u1",
    ]


def test_a_revoked_token_is_refused_on_an_open_connection(folder, tokens, monkeypatch):
    monkeypatch.setattr("shortlist.serve.tokens.LOOK_SECONDS", 0.0)
    parsed = ParsedRequests(monkeypatch)
    live = LiveService(folder, monkeypatch, token_file=str(folder / "tokens"))
    bearer = {"authorization": f"Bearer {tokens['read']}"}
    with live.connect() as client:
        for _ in range(4):
            assert ask(client, {"users": ["u1"], "N": 2}, **bearer)[0] == 200
        assert parsed.n == 2
        lines = (folder / "tokens").read_text().splitlines(keepends=True)
        (folder / "tokens").write_text("".join(line for line in lines if "read" not in line))
        assert ask(client, {"users": ["u1"], "N": 2}, **bearer)[0] == 401
    live.stop()


def test_settings_are_those_of_the_model_in_service(live, folder):
    (folder / "other.shortlist").write_bytes((folder / "shop.shortlist").read_bytes())
    with live.connect() as client:
        for name in ("shop", "other", "shop"):
            for _ in range(3):
                assert ask(client, {"users": ["u1"]})[2]["model"] == live.service.deployment.served.name
            live.service.activate("other" if name == "shop" else "shop", None, None)


def test_idle_connections_are_closed(live, monkeypatch):
    with live.connect() as client:
        for _ in range(3):
            ask(client, {"users": ["u1"], "N": 2})
        [protocol] = live.server.server_state.connections
        monkeypatch.setattr("shortlist.serve.run.HEADER_SECONDS", 0.2)
        monkeypatch.setattr(protocol, "timeout_keep_alive", 0.2)
        ask(client, {"users": ["u1"], "N": 2})
        started = time.monotonic()
        assert client.recv(1) == b""
        assert time.monotonic() - started < 10


def test_long_headers_are_not_remembered(live, monkeypatch):
    parsed = ParsedRequests(monkeypatch)
    with live.connect() as client:
        for _ in range(5):
            assert ask(client, {"users": ["u1"], "N": 2}, x_note="y" * 5000)[0] == 200
        [protocol] = live.server.server_state.connections
        assert protocol._repeated == {}
        for at in range(20):  # headers that differ
            assert ask(client, {"users": ["u1"], "N": 2}, x_note=str(at))[0] == 200
        assert 0 < len(protocol._repeated) <= 8
    assert parsed.n == 25

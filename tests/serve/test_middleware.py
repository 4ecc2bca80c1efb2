"""Requests over real connections: the same answers however they are sent, limits, and what is refused."""

import json
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest
import uvicorn
from starlette.testclient import TestClient

from shortlist.serve import app as routes
from shortlist.serve import lists
from shortlist.serve.app import create_app
from shortlist.serve.config import ServeConfig
from shortlist.serve.run import GuardedProtocol
from shortlist.serve.service import Service
from tests.serve.conftest import logged_lists
from tests.serve.server import Server, free_port

USERS = {"users": ["u1", "u2"], "N": 3}


class LiveService:
    """A service in a thread."""

    def __init__(self, folder, **settings):
        self.service = Service(ServeConfig(model=str(folder / "shop.shortlist"), **settings))
        self.port = free_port()
        config = uvicorn.Config(
            create_app(self.service),
            port=self.port,
            http=GuardedProtocol,
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
def run(folder):
    """Starts services with settings; they end with the test."""
    with ExitStack() as stack:

        def started(**settings):
            live = LiveService(folder, **settings)
            stack.callback(live.stop)
            return live

        yield started


@pytest.fixture
def live(run):
    return run()


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
    """An answer without what is new in each; its headers in any order."""
    status, headers, body = answer
    headers = sorted(pair for pair in headers.items() if pair[0] != "x-request-id")
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
    """However a request arrives, and if FastAPI answers it."""
    head, content = request_bytes(body)
    whole = send(live, [head + content])
    in_parts = send(live, [head, content[:5], content[5:]], pause=0.02)
    chunked = request_bytes(body, content_length="", transfer_encoding="chunked")[0].replace(
        b"content-length: \r\n", b""
    )
    in_chunks = send(live, [chunked, b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)])
    assert whole[0] == 200
    assert len(whole[2]["lists"]) == len(body["users"])
    assert comparable(whole) == comparable(in_parts) == comparable(in_chunks)
    monkeypatch.setattr(routes, "answer_beside", lambda app, service: app)
    with TestClient(create_app(live.service), base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/recommend", json=body)
    expected = answer.status_code, dict(answer.headers), answer.json()
    assert comparable(whole) == comparable(expected)


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        (b"{", {}, 422, "invalid_request"),
        ({"users": ["u1"], "n": 3}, {}, 422, "invalid_request"),
        ({"users": [7]}, {}, 422, "invalid_request"),
        (USERS, {"host": "example.org"}, 403, "host_refused"),
        (USERS, {"content_type": "text/plain"}, 415, "content_type"),
        (USERS, {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c"}, 400, "upgrade_refused"),
    ],
)
def test_errors_have_the_usual_form(live, body, headers, status, error):
    got, _, content = send(live, [b"".join(request_bytes(body, **headers))])
    assert (got, content["error"]) == (status, error)


def test_several_requests_in_one_piece_are_answered_in_order(live):
    users = ["u1", "u2", "u3", "u4"]
    with live.connect() as client:
        client.sendall(b"".join(b"".join(request_bytes({"users": [user], "N": 2})) for user in users))
        answers = [read_answer(client) for _ in users]
    assert [answer[2]["lists"][0]["user_id"] for answer in answers] == users


def test_a_client_that_pipelines_is_not_cut_off(run, monkeypatch):
    """Its second request waits, half sent, for longer than headers and bodies may take."""
    monkeypatch.setattr("shortlist.serve.run.HEADER_SECONDS", 0.3)
    answer_jobs = lists.answer_jobs
    monkeypatch.setattr(
        "shortlist.serve.lists.answer_jobs", lambda jobs: time.sleep(1.5) or answer_jobs(jobs)
    )
    live = run()
    first, second = (b"".join(request_bytes({"users": [user], "N": 2})) for user in ("u1", "u2"))
    with live.connect() as client:
        client.sendall(first + second[:-5])
        time.sleep(1)
        client.sendall(second[-5:])
        users = [read_answer(client)[2]["lists"][0]["user_id"] for _ in range(2)]
    assert users == ["u1", "u2"]


def test_a_client_may_want_its_connection_closed(live):
    with live.connect() as client:
        client.sendall(b"".join(request_bytes(USERS, connection="close")))
        _, headers, _ = read_answer(client)
        assert headers["connection"] == "close"
        assert client.recv(1) == b""


def test_lists_are_counted_and_logged(live):
    send(live, [b"".join(request_bytes(USERS))])
    end = time.monotonic() + 20
    while not (logged := logged_lists(live.service.store)):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert {row.user_id for row in logged} == {"u1", "u2"}  # ids of the same second are in no order
    assert b"shortlist_lists_total 2.0" in live.service.metrics.text()
    assert b'route="/v1/recommend",status="200"} 1.0' in live.service.metrics.text()


def slow_down(monkeypatch, seconds):
    """Let all lists but those of u1 take so long."""
    answer_jobs = lists.answer_jobs

    def delay(jobs):
        if any(job.users != ["u1"] for job in jobs):
            time.sleep(seconds)
        return answer_jobs(jobs)

    monkeypatch.setattr("shortlist.serve.lists.answer_jobs", delay)


def test_an_answer_that_takes_too_long_is_an_error(run, monkeypatch):
    slow_down(monkeypatch, 1)
    live = run(timeout=0.4)
    status, headers, body = send(live, [b"".join(request_bytes({"users": ["u2"], "N": 3}))])
    assert (status, body["error"], headers["retry-after"]) == (503, "timeout", "2")
    time.sleep(1)
    assert logged_lists(live.service.store) == []


def test_a_full_queue_is_refused_at_once_but_not_health(run, monkeypatch):
    blocked, answer_group = threading.Event(), lists.answer_group
    monkeypatch.setattr(lists, "answer_group", lambda jobs: blocked.wait(20) and answer_group(jobs))
    live = run(max_requests=2)
    with live.connect() as first, live.connect() as second:
        for client in (first, second):
            client.sendall(b"".join(request_bytes({"users": ["u2"], "withheld": 1})))
        time.sleep(0.2)
        status, headers, body = send(live, [b"".join(request_bytes({"users": ["u1"]}))])
        assert (status, body["error"], headers["retry-after"]) == (503, "overloaded", "2")
        for path in (b"/health", b"/ready", b"/v1/model"):
            assert send(live, [b"GET " + path + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"])[0] == 200
        blocked.set()
        assert [read_answer(client)[0] for client in (first, second)] == [200, 200]
    assert send(live, [b"".join(request_bytes({"users": ["u1"]}))])[0] == 200


def test_a_revoked_token_is_refused_on_an_open_connection(run, folder, tokens, monkeypatch):
    monkeypatch.setattr("shortlist.serve.tokens.LOOK_SECONDS", 0.0)
    live = run(token_file=str(folder / "tokens"))
    content = b"".join(request_bytes(USERS, authorization=f"Bearer {tokens['read']}"))
    with live.connect() as client:
        client.sendall(content)
        assert read_answer(client)[0] == 200
        lines = (folder / "tokens").read_text().splitlines(keepends=True)
        (folder / "tokens").write_text("".join(line for line in lines if "read" not in line))
        client.sendall(content)
        assert read_answer(client)[0] == 401


def test_a_token_in_a_trailer_is_ignored(run, folder, tokens):
    """It neither authorizes a request nor replaces the one in the headers."""
    live = run(token_file=str(folder / "tokens"))
    body = b'5\r\n{"use\r\n%x\r\nrs":["u1"]}\r\n0\r\n' % len('rs":["u1"]}')
    for given, trailer, expected in (("wrong", "read", 401), ("read", "wrong", 200), (None, "read", 401)):
        bearers = [f"Bearer {tokens.get(name, name)}" for name in (given, trailer)]
        headers = {"host": "127.0.0.1", "content-type": "application/json", "transfer-encoding": "chunked"}
        if given:
            headers["authorization"] = bearers[0]
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
        content = b"POST /v1/recommend HTTP/1.1\r\n" + lines + b"\r\n" + body
        content += f"authorization: {bearers[1]}\r\n\r\n".encode()
        assert send(live, [content])[0] == expected, given


def test_a_bare_server_gives_up_slow_and_endless_requests(folder):
    """What no proxy protects: slow headers, endless headers and slow bodies; others are answered."""
    server = Server(folder, timeout=1)
    head, _ = request_bytes(USERS)

    def drip(data, seconds):
        """(what was received, seconds) while a byte is sent every 50 ms."""
        started, received = time.monotonic(), b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as client:
            try:
                for byte in data:
                    client.sendall(byte)
                    try:
                        received += client.recv(1000)
                        if not received or b"}" in received:
                            break
                    except TimeoutError:
                        pass
                    assert time.monotonic() - started < seconds
            except ConnectionError:
                pass
        return received, time.monotonic() - started

    def endless(begin):
        yield begin
        while True:
            yield b"x"

    try:
        received, seconds = drip(endless(b"POST / HTTP/1.1\r\nx: "), 30)
        assert received == b""
        assert 9 < seconds < 30
        received, seconds = drip(endless(head.replace(b"content-length: 31", b"content-length: 9999")), 20)
        assert b"408 Request Timeout" in received
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nx: ")
            sent = 0
            with suppress(ConnectionError):
                while sent < 10_000_000:
                    client.sendall(b"y" * 10_000)
                    sent += 10_000
            assert sent < 10_000_000
        assert server.call("/v1/recommend", USERS)[0] == 200
    finally:
        assert server.stop() in (0, -15)

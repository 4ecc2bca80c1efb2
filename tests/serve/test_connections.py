"""Connections that send nothing, too little or too much, without any token."""

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest
import uvicorn

from shortlist.serve import run
from tests.serve.server import free_port

LARGE = 20 << 20
WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def answer(scope, receive, send):
    """Read the body, then answer."""
    if scope["type"] != "http":
        return
    while scope["path"] != "/refused" and (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.5 if scope["path"] == "/slow" else 0)
    body = b" " * LARGE + b"ok" if scope["path"] == "/large" else b"ok"
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


port_of = {}  # the server of each port


@pytest.fixture
def port(monkeypatch):
    """A server with short limits."""
    monkeypatch.setattr(run, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(run.GuardedProtocol, "max_connections", 20)
    chosen = free_port()
    config = uvicorn.Config(
        answer,
        port=chosen,
        http=run.GuardedProtocol,
        lifespan="off",
        log_level="critical",
        loop="asyncio",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    end = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < end
        time.sleep(0.01)
    port_of[chosen] = server
    yield chosen
    server.should_exit = True
    thread.join()


@pytest.fixture
def connect(port):
    """Opens connections and sends the first bytes; closes them at the end."""
    with ExitStack() as stack:

        def opened(data=b""):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            client.sendall(data)
            return client

        yield opened


def is_closed(client):
    """Whether the server closes the connection within the time limit."""
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


def is_answered(client):
    """Whether the whole answer arrives."""
    received = b""
    while not received.endswith(b"ok"):
        more = client.recv(1 << 16)
        if not more:
            return False
        received += more
    return b"200 OK" in received


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nhost: x\r\n",
        b"\r\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000,
    ],
)
def test_a_request_that_does_not_arrive_is_given_up(connect, data):
    started = time.monotonic()
    assert is_closed(connect(data))
    assert time.monotonic() - started < 5


def test_endless_trailers_are_given_up(connect):
    client = connect(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx: ")
    sent = 0
    with suppress(ConnectionError):
        while sent < 10_000_000:
            client.sendall(b"y" * 10_000)
            sent += 10_000
    assert sent < 10_000_000


def test_a_half_sent_second_request_is_given_up(connect):
    client = connect(WHOLE)
    assert is_answered(client)
    client.sendall(b"GET / HT")
    assert is_closed(client)


def test_a_slow_answer_is_waited_for(connect):
    client = connect(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
    assert is_answered(client)


def test_a_whole_request_in_small_pieces_is_answered(connect):
    client = connect()
    for at in range(0, len(WHOLE), 7):
        client.sendall(WHOLE[at : at + 7])
        time.sleep(0.01)
    assert is_answered(client)


@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_closes_its_side_gets_its_answers(connect, n):
    """And then the connection is closed; one that has gone is not kept for longer than a second."""
    client = connect(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n" + (n - 1) * WHOLE)
    client.shutdown(socket.SHUT_WR)
    received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert received.count(b"200 OK") == n
    assert received.endswith(b"ok")


def test_a_client_that_closes_its_side_in_the_middle_of_a_request_is_given_up(connect):
    client = connect(WHOLE[:10])
    client.shutdown(socket.SHUT_WR)
    started = time.monotonic()
    assert is_closed(client)
    assert time.monotonic() - started < 0.3


def test_idle_connections_make_room_for_others(connect):
    busy = connect(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
    for _ in range(60):
        connect()
    assert is_answered(connect(WHOLE))
    assert is_answered(busy)


def test_half_sent_bodies_make_room_for_others(connect):
    for _ in range(60):
        connect(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc")
    assert is_answered(connect(WHOLE))


def test_answers_that_nobody_takes_are_bounded(connect, port, monkeypatch):
    """The oldest one is given up, the latest one is delivered."""
    monkeypatch.setattr(run, "UNREAD_BYTES", LARGE)
    clients = []
    for _ in range(4):
        clients.append(connect(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n"))
        time.sleep(0.2)
    with suppress(ConnectionError):  # where the system tells
        assert not is_answered(clients[0])
    assert is_answered(clients[-1])


def test_a_client_that_takes_nothing_is_given_up(connect, port, monkeypatch):
    monkeypatch.setattr(run, "UNREAD_SECONDS", 1)
    connect(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
    open_ones = port_of[port].server_state.connections
    end = time.monotonic() + 30
    while not open_ones and time.monotonic() < end:
        time.sleep(0.01)
    assert open_ones
    while open_ones and time.monotonic() < end:
        time.sleep(0.05)
    assert not open_ones


def test_a_body_that_goes_on_after_the_answer_is_given_up(connect):
    """The application has refused the request by its headers, and nobody reads on."""
    client = connect(b"POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n\r\n")
    assert is_answered(client)
    started = time.monotonic()
    with suppress(ConnectionError):
        while time.monotonic() - started < 10:
            client.sendall(b"x")
            time.sleep(0.05)
    assert time.monotonic() - started < 10


def test_an_idle_connection_is_closed(connect, monkeypatch):
    monkeypatch.setattr(run, "IDLE_SECONDS", 0.5)
    client = connect(WHOLE)
    assert is_answered(client)
    client.sendall(b"\r\n")  # starts no request, but uvicorn waits again
    started = time.monotonic()
    assert is_closed(client)
    assert time.monotonic() - started < 5

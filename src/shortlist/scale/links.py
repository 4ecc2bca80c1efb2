"""Direct connections between workers, over which ranges of item parameters travel.

A range takes about a tenth of a millisecond this way; as a task with an object in Ray's store it took ten.
Connections are authenticated with a key that is drawn for every fit. Only raw numbers are sent.
"""

import os
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

from shortlist.types import Floats

Address = tuple[str, int]
CONNECT_SECONDS = 120.0


class PeerLostError(Exception):
    """Another worker has ended, or cannot be reached."""


class Links:
    """The connections of one worker to the others, one for each direction."""

    def __init__(self, rank: int, key: bytes, host: str) -> None:
        self.rank, self.key = rank, key
        self.listener = Listener((host, 0), backlog=256, authkey=key)
        self.incoming: dict[int, Connection] = {}
        self.outgoing: dict[int, Connection] = {}
        self.arrived = threading.Condition()
        self.sender = ThreadPoolExecutor(
            1
        )  # sends in the background, so that two workers cannot wait for each other
        self.sent: list[Future[None]] = []
        self.bytes_received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> Address:
        """Where other workers can connect."""
        host, port = self.listener.address
        return str(host), int(port)

    def connect(self, addresses: list[Address], send_to: Iterable[int], receive_from: Iterable[int]) -> None:
        """Connect to the workers that get something from this one; wait for those that send to it."""
        for rank in send_to:
            try:
                link = Client(addresses[rank], authkey=self.key)
                _send_at_once(link)
                link.send_bytes(self.rank.to_bytes(4, "little"))
            except (OSError, EOFError, AuthenticationError) as error:
                raise PeerLostError(f"worker {rank} cannot be reached: {error}") from None
            self.outgoing[rank] = link
        expected = set(receive_from)
        with self.arrived:
            if not self.arrived.wait_for(lambda: expected <= set(self.incoming), CONNECT_SECONDS):
                raise PeerLostError(f"workers {sorted(expected - set(self.incoming))} did not connect")

    def send(self, rank: int, array: Floats) -> None:
        """Send a copy of the array; return before it has arrived."""
        self.sent = [one for one in self.sent if not _succeeded(one)]
        self.sent.append(self.sender.submit(self._send, rank, array.tobytes()))

    def receive(self, rank: int, out: Floats) -> None:
        """Wait for an array from a worker and write it to `out`, which is contiguous."""
        try:
            size = self.incoming[rank].recv_bytes_into(out.reshape(-1).view(np.uint8).data)
        except (OSError, EOFError) as error:
            raise PeerLostError(f"worker {rank} is gone: {error}") from None
        if size != out.nbytes:
            raise PeerLostError(f"worker {rank} sent {size} bytes instead of {out.nbytes}")
        self.bytes_received += size

    def flush(self) -> None:
        """Wait until everything has been sent."""
        for one in self.sent:
            one.result()
        self.sent = []

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self.outgoing[rank].send_bytes(data)
        except OSError as error:
            raise PeerLostError(f"worker {rank} is gone: {error}") from None

    def _accept(self) -> None:
        while True:
            try:
                link = self.listener.accept()
                rank = int.from_bytes(link.recv_bytes(4), "little")
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # not one of the workers, or one that has ended
            except OSError:
                return  # the listener was closed
            with self.arrived:
                self.incoming[rank] = link
                self.arrived.notify_all()


def _succeeded(one: "Future[None]") -> bool:
    """Whether the array was sent; raises if the receiver is gone."""
    if not one.done():
        return False
    one.result()
    return True


def _send_at_once(link: Connection) -> None:
    """Do not wait for more data before a packet is sent."""
    with socket.socket(fileno=os.dup(link.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

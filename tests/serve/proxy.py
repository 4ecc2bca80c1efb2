"""A small HTTP proxy that takes turns between servers, as a load balancer does; for tests and benchmarks."""

import asyncio
import threading
import time
from collections import defaultdict

LOOK_SECONDS = 0.2  # between two looks at /ready
POOLED_SECONDS = 10.0  # a connection that was not used for longer is not used again
BROKEN = b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"


class Proxy:
    """Listens on loopback; a request goes to the next server that is ready, and is never sent twice."""

    def __init__(self, ports):
        self.ports, self.ready = list(ports), dict.fromkeys(ports, False)
        self.broken = []  # (port, time) of requests whose connection broke after they were sent
        self._turn = 0
        self._pool = defaultdict(list)
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    def close(self):
        """Stop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.looks = [self._loop.create_task(self._look(port)) for port in self.ports]
        started.set()
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for writer in [writer for pool in self._pool.values() for _, writer, _ in pool]:
            writer.close()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0.05))  # connections end
        self._loop.close()

    async def _look(self, port):
        """Ask a server again and again whether it is ready."""
        while True:
            writer = None
            try:
                async with asyncio.timeout(2):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                    self.ready[port] = (await reader.readline()).split()[1:2] == [b"200"]
            except (OSError, TimeoutError):
                self.ready[port] = False
            finally:
                if writer is not None:
                    writer.close()
            await asyncio.sleep(LOOK_SECONDS)

    async def _serve(self, reader, writer):
        """Pass the requests of one client on."""
        try:
            while True:
                request = await read_message(reader)
                writer.write(await self._forward(request))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # it ends with the proxy
            pass
        finally:
            writer.close()

    async def _forward(self, request):
        """The answer of a server; 502 if its connection breaks."""
        for _ in self.ports:
            self._turn += 1
            port = self.ports[self._turn % len(self.ports)]
            if not self.ready[port]:
                continue
            try:
                server = await self._connect(port)
            except OSError:  # nothing was sent: another server can have it
                self.ready[port] = False
                continue
            mark = b"x-server: %d\r\n\r\n" % port
            try:
                server[1].write(request)
                answer = await read_message(server[0])
            except (OSError, asyncio.IncompleteReadError):
                server[1].close()
                self.broken.append((port, time.monotonic()))
                return BROKEN + mark + b"{}"
            head, _, body = answer.partition(b"\r\n\r\n")
            if b"connection: close" in head.lower():
                server[1].close()
            else:
                self._pool[port].append((*server, time.monotonic()))
            return head + b"\r\n" + mark + body
        return BROKEN + b"x-server: 0\r\n\r\n{}"

    async def _connect(self, port):
        """A connection that was used before, as load balancers do, or a new one."""
        while self._pool[port]:
            reader, writer, used = self._pool[port].pop()
            if time.monotonic() - used < POOLED_SECONDS and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", port)


async def read_message(reader):
    """A request or an answer, with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    return head + await reader.readexactly(int(fields.get(b"content-length", 0)))

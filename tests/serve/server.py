"""A service in a process of its own, for tests that need a real one."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`shortlist serve` on loopback; ready when it is built, unless `wait` is false."""

    def __init__(
        self, folder, db="", token_file="", token="", workers=1, log=subprocess.DEVNULL, *, wait=True, **more
    ):
        self.port, self.token = more.pop("port", None) or free_port(), token
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "shortlist", "serve", str(folder / "shop.shortlist")]
        command += ["--port", str(self.port), *(["--db", db] if db else [])]
        command += ["--token_file", str(token_file)] if token_file else []
        command += ["--workers", str(workers)] if workers > 1 else []
        settings = {f"SHORTLIST_SERVE_{name.upper()}": str(value) for name, value in more.items()}
        environment = os.environ | {"SHORTLIST_SERVE_DRAIN": "0"} | settings
        self.process = subprocess.Popen(command, stderr=log, env=environment)
        if wait:
            self.wait()

    def wait(self):
        """Wait until it is ready."""
        end = time.monotonic() + 300
        while self.call("/ready")[0] != 200:
            assert time.monotonic() < end, "the service did not start"
            assert self.process.poll() is None, "the service ended"
            time.sleep(0.05)

    def call(self, path, body=None, timeout=20):
        """(status, answer); status 0 if there is none."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data else {}
        headers |= {"authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self.url + path, data, headers), timeout=timeout
            ) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except (OSError, ValueError, http.client.HTTPException):  # also if it is killed while it answers
            return 0, None

    def kill(self):
        """Give it no chance to finish anything."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ask it to stop; its return code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

"""Starts `shortlist refit` once a day in a process of its own."""

import os
import subprocess
import sys
import threading
from datetime import datetime, timedelta

from shortlist.errors import ShortlistError
from shortlist.serve.config import PREFIX, ServeConfig, parse_refit_time
from shortlist.serve.gate import write_log
from shortlist.serve.store import EventStore

LONGEST_WAIT = 30.0  # seconds; a clock that was set is noticed


class RefitSchedule:
    """Waits for the time of day; one worker of all starts the refit."""

    def __init__(self, config: ServeConfig, store: EventStore) -> None:
        self._config, self._store = config, store
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="refit-schedule", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop waiting; a refit that runs is ended, the model in service stays."""
        self._stop.set()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self._thread.join()

    def _run(self) -> None:
        due = next_time(self._config.refit, datetime.now())
        while not self._stop.is_set():
            left = (due - datetime.now()).total_seconds()
            if left > 0:
                self._stop.wait(min(left, LONGEST_WAIT))
                continue
            try:
                if self._store.claim("refit turn", int(due.timestamp())):
                    self._refit()
            except ShortlistError as error:
                write_log({"level": "error", "task": "refit", "problem": str(error)})
            due = next_time(self._config.refit, datetime.now())

    def _refit(self) -> None:
        """Run the command to its end; the address of the store is passed in the environment."""
        command = [sys.executable, "-m", "shortlist", "refit", self._config.model, "--json"]
        environment = {**os.environ, f"{PREFIX}DB": self._config.db}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = self._process.communicate()
        text = (out if self._process.returncode == 0 else err).decode(errors="replace")
        level = "info" if self._process.returncode == 0 else "error"
        write_log({"level": level, "task": "refit", "result": " ".join(text.split())[-500:]})


def next_time(setting: str, now: datetime) -> datetime:
    """The next time of "daily@HH:MM" after now, in the time of this machine."""
    hour, minute = parse_refit_time(setting)
    found = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return found if found > now else found + timedelta(days=1)

"""The systemd unit, the image and the compose file.

No container daemon is needed: the steps of the Dockerfile are run as shell commands in an empty virtual
environment, in a folder that stands for the root of the image. Because that takes minutes, only
`make packaging` does it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.postgres import started
from tests.serve.server import free_port

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"


def instructions():
    """(name, arguments) of each step of the Dockerfile."""
    text = (PACKAGING / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def last(name):
    """The arguments of the last step of a kind."""
    return [arguments for kind, arguments in instructions() if kind == name][-1]


class TestUnit:
    def test_systemd_accepts_the_unit(self, tmp_path):
        if shutil.which("systemd-analyze") is None:
            pytest.skip("no systemd-analyze here (Debian: apt-get install systemd)")
        text = (PACKAGING / "shortlist.service").read_text()
        command = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)[1]
        assert command.endswith("/bin/shortlist")
        unit = tmp_path / "shortlist.service"
        unit.write_text(text.replace(command, shutil.which("true")))  # nothing is installed at its path
        found = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
        )
        assert (found.returncode, found.stderr.strip()) == (0, "")

    def test_the_service_is_not_root_and_may_write_only_its_folders(self):
        text = (PACKAGING / "shortlist.service").read_text()
        for line in ("User=shortlist", "ProtectSystem=strict", "NoNewPrivileges=yes"):
            assert line in text.splitlines()

    def test_the_unit_exposes_little(self):
        if shutil.which("systemd-analyze") is None:
            pytest.skip("no systemd-analyze here (Debian: apt-get install systemd)")
        command = ["systemd-analyze", "security", "--offline=true", "--threshold=30"]
        unit = str(PACKAGING / "shortlist.service")
        found = subprocess.run([*command, unit], capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stdout[-200:]


class TestImage:
    def test_the_image_is_slim_not_root_and_has_a_health_check(self):
        assert "-slim" in last("FROM")
        assert last("USER") == "shortlist"
        assert "/ready" in last("HEALTHCHECK")
        kinds = [kind for kind, _ in instructions()]
        assert kinds.index("USER") > max(at for at, kind in enumerate(kinds) if kind == "RUN")
        assert any("shortlist warmup" in arguments for kind, arguments in instructions() if kind == "RUN")

    def test_everything_that_is_fetched_is_named_by_its_content(self):
        """Tags can be moved to other content; digests and commits cannot."""
        compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
        images = [arguments.split()[0] for kind, arguments in instructions() if kind == "FROM"]
        images.append(compose["services"]["database"]["image"])
        for image in images:
            assert re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
            for action in re.findall(r"uses: (.+)", path.read_text()):
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action), action

    def test_listening_on_all_addresses_needs_tokens(self):
        compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
        for command in (json.loads(last("CMD")), compose["services"]["shortlist"]["command"]):
            assert command[command.index("--host") + 1] == "0.0.0.0"
            assert "--token_file" in command

    def test_the_compose_file_publishes_on_this_machine_only_and_waits_for_the_database(self):
        compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
        service = compose["services"]["shortlist"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["depends_on"]["database"]["condition"] == "service_healthy"
        assert "ports" not in compose["services"]["database"]
        assert (PACKAGING / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).exists()


class Image:
    """The steps of the Dockerfile, in a folder instead of a container."""

    def __init__(self, room):
        self.room, self.place = room, room
        kept = ("PATH", "HOME", "LANG", "PIP_", "SSL_", "REQUESTS_CA")
        self.environment = {k: v for k, v in os.environ.items() if k.startswith(kept)}
        self.steps = []

    def inside(self, text):
        """A text whose absolute paths lie in the folder."""
        text = re.sub(r"(?<![\w.])/(opt/shortlist|models|source)\b", rf"{self.room}/\1", text)
        return text.replace("$PATH", self.environment["PATH"])

    def build(self):
        """Run all steps; those about users, sources and ports need a container."""
        for kind, arguments in instructions():
            if kind == "WORKDIR":
                self.place = Path(self.inside(arguments))
                self.place.mkdir(parents=True, exist_ok=True)
            elif kind == "ENV":
                pairs = dict(pair.split("=", 1) for pair in shlex.split(arguments))
                self.environment |= {name: self.inside(value) for name, value in pairs.items()}
            elif kind == "COPY" and not arguments.startswith("--from"):
                *sources, target = arguments.split()
                for source in sources:
                    self.run(f"cp -r {shlex.quote(str(ROOT / source))} {target}")
            elif kind == "RUN" and not arguments.startswith("useradd"):
                self.run(re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", self.inside(arguments)))
            elif kind == "VOLUME":
                Path(self.inside(arguments)).mkdir()

    def run(self, command, seconds=900):
        """Run a shell command."""
        self.steps.append(command)
        found = subprocess.run(
            ["sh", "-euc", command],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert found.returncode == 0, f"{command}\n{found.stderr[-2000:]}"
        return found.stdout


@pytest.mark.skipif(not os.environ.get("SHORTLIST_PACKAGING"), reason="`make packaging` runs it")
def test_the_steps_of_the_image_and_of_the_compose_file_work(tmp_path):
    image = Image(tmp_path)
    image.build()

    def kernels():
        return len(list((tmp_path / "opt/shortlist/kernels").rglob("*.nbc")))

    assert kernels() > 20
    models = tmp_path / "models"
    image.run(f"shortlist fit sample --quick --out {models}/shop.shortlist")
    printed = image.run(f"shortlist token {models}/tokens --name a --scope read --scope events")
    compiled = kernels()
    compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]["shortlist"]
    assert set(compose["environment"]) == {"SHORTLIST_SERVE_DB"}
    port = free_port()
    command = [*json.loads(last("ENTRYPOINT")), *map(image.inside, compose["command"]), "--port", str(port)]
    command[0] = str(tmp_path / "opt/shortlist/bin" / command[0])
    with started() as database:
        environment = image.environment | {"SHORTLIST_SERVE_DB": database}
        process = subprocess.Popen(command, env=environment, cwd=tmp_path)
        try:
            check = json.loads(last("HEALTHCHECK").split("CMD", 1)[1].replace(":8000", f":{port}"))
            end = time.monotonic() + 120
            while subprocess.run(check, env=environment, stderr=subprocess.DEVNULL).returncode:
                assert process.poll() is None, "the service ended"
                assert time.monotonic() < end, "the service did not start"
                time.sleep(0.2)
            lists = post(port, printed.split()[-1], "/v1/recommend", {"users": ["u1"]})
            assert lists["lists"][0]["user_id"] == "u1"
            event = {"user_id": "u1", "item_id": "i1"}
            assert post(port, printed.split()[-1], "/v1/events", {"events": [event]})["accepted"] == 1
            time.sleep(3)  # the event reaches the model
        finally:
            process.terminate()
            process.wait(timeout=60)
    assert kernels() == compiled, "kernels were compiled while the service ran"


def post(port, token, path, body):
    """The answer to a request."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())

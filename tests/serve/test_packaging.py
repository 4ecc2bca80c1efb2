"""The systemd unit, the image, the compose file and the Kubernetes manifest.

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
from dataclasses import fields
from pathlib import Path

import kubernetes_validate
import pytest
import sqlalchemy as sa
import yaml

from shortlist.serve.app import router
from shortlist.serve.config import ServeConfig
from shortlist.serve.run import SHUTDOWN_SECONDS
from tests.postgres import running, started
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


UNITS = ("shortlist.service", "shortlist-refit.service")


class TestUnits:
    @pytest.mark.parametrize("name", UNITS)
    def test_systemd_accepts_the_unit(self, tmp_path, name):
        if shutil.which("systemd-analyze") is None:
            pytest.skip("no systemd-analyze here (Debian: apt-get install systemd)")
        text = (PACKAGING / name).read_text()
        command = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)[1]
        assert command.endswith("/bin/shortlist")
        unit = tmp_path / name
        unit.write_text(text.replace(command, shutil.which("true")))  # nothing is installed at its path
        timer = PACKAGING / "shortlist-refit.timer"
        units = [str(unit), *([str(timer)] if name == UNITS[1] else [])]
        found = subprocess.run(
            ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60
        )
        assert (found.returncode, found.stderr.strip()) == (0, "")

    @pytest.mark.parametrize("name", UNITS)
    def test_the_service_is_not_root_and_may_write_only_its_folders(self, name):
        text = (PACKAGING / name).read_text()
        for line in ("User=shortlist", "ProtectSystem=strict", "NoNewPrivileges=yes"):
            assert line in text.splitlines()

    @pytest.mark.parametrize("name", UNITS)
    def test_the_unit_exposes_little(self, name):
        if shutil.which("systemd-analyze") is None:
            pytest.skip("no systemd-analyze here (Debian: apt-get install systemd)")
        command = ["systemd-analyze", "security", "--offline=true", "--threshold=30"]
        unit = str(PACKAGING / name)
        found = subprocess.run([*command, unit], capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stdout[-200:]


class TestImage:
    def test_the_image_is_slim_not_root_and_has_a_health_check(self):
        assert "-slim" in last("FROM")
        assert last("USER") == "shortlist"
        assert "/ready" in last("HEALTHCHECK")
        kinds = [kind for kind, _ in instructions()]
        assert kinds.index("USER") > max(at for at, kind in enumerate(kinds) if kind == "RUN")
        assert any(
            "warmup.compile_kernels()" in arguments for kind, arguments in instructions() if kind == "RUN"
        )

    def test_everything_that_is_fetched_is_named_by_its_content(self):
        """Tags can be moved to other content; digests and commits cannot."""
        images = [arguments.split()[0] for kind, arguments in instructions() if kind == "FROM"]
        images += [compose()[name]["image"] for name in ("database", "proxy")]
        for image in images:
            assert re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
            for action in re.findall(r"uses: (.+)", path.read_text()):
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action), action

    def test_listening_on_all_addresses_needs_tokens(self):
        for command in (json.loads(last("CMD")), compose()["server-1"]["command"], container()["args"]):
            assert command[command.index("--host") + 1] == "0.0.0.0"
            assert "--token_file" in command


class TestSeveralServers:
    def test_the_compose_file_has_servers_that_only_the_proxy_shows_to_this_machine(self):
        services = compose()
        servers = {name: service for name, service in services.items() if name.startswith("server-")}
        assert len(servers) == 2
        assert all(port.startswith("127.0.0.1:") for port in services["proxy"]["ports"])
        assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
        for server in servers.values():
            assert (PACKAGING / server["build"]["context"]).resolve() == ROOT
            assert (ROOT / server["build"]["dockerfile"]).exists()
            assert int(server["stop_grace_period"].removesuffix("s")) > DRAIN + SHUTDOWN_SECONDS
        proxy = (PACKAGING / "haproxy.cfg").read_text()
        assert re.findall(r"server \w+ ([\w-]+):8000", proxy) == list(servers)
        assert services["proxy"]["volumes"] == ["./haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro"]
        assert int(re.search(r"inter (\d+)ms", proxy)[1]) < DRAIN * 1000

    def test_every_container_is_confined(self):
        for service in compose().values():
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert service["mem_limit"]
            assert service["pids_limit"]

    def test_a_password_of_any_characters_reaches_the_database(self, monkeypatch):
        """It is a variable that PostgreSQL's client reads, and no piece of an address."""
        password, server = "p@ss/w0rd:%", compose()["server-1"]["environment"]
        assert "POSTGRES_PASSWORD" not in server["SHORTLIST_SERVE_DB"]
        with running() as database:
            database.execute(f"ALTER USER shop PASSWORD '{password}'")
            database.execute(f"COPY (SELECT 'local all all scram-sha-256') TO '{database.data}/pg_hba.conf'")
            database.execute("SELECT pg_reload_conf()")
            engine = sa.create_engine(ServeConfig(model="shop.shortlist", db=database.uri).database)
            with pytest.raises(sa.exc.OperationalError, match="password"):
                engine.connect()
            replaced = re.sub(r"\$\{POSTGRES_PASSWORD:\?[^}]*\}", password, server["PGPASSWORD"])
            monkeypatch.setenv("PGPASSWORD", replaced)
            with engine.connect() as connection:
                assert connection.scalar(sa.text("SELECT 1")) == 1
            engine.dispose()

    def test_tokens_are_not_in_the_folder_that_servers_write(self):
        for command in (json.loads(last("CMD")), compose()["server-1"]["command"], container()["args"]):
            assert not command[command.index("--token_file") + 1].startswith("/models")

    def test_haproxy_accepts_its_file(self):
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
        if program is None:
            pytest.skip("no haproxy here (Debian: apt-get install haproxy)")
        command = [program, "-c", "-q", "-f", str(PACKAGING / "haproxy.cfg")]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (found.returncode, found.stderr) == (0, "")

    def test_kubernetes_accepts_the_manifest(self):
        """Every object is checked against the schema of its kind; unknown fields are errors."""
        for entry in manifest().values():
            kubernetes_validate.validate(entry, "1.33", strict=True)

    def test_what_the_manifest_promises_is_what_the_service_does(self):
        objects, pod = manifest(), manifest()["Deployment"]["spec"]["template"]
        assert set(objects) == {
            "Deployment",
            "Service",
            "PodDisruptionBudget",
            "PersistentVolumeClaim",
            "CronJob",
        }
        labels = pod["metadata"]["labels"]
        assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == labels
        assert objects["Service"]["spec"]["selector"] == labels
        assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
        assert (
            objects["PodDisruptionBudget"]["spec"]["minAvailable"] < objects["Deployment"]["spec"]["replicas"]
        )
        paths = {route.path for route in router.routes}
        probes = {name: container()[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
        assert {probe["httpGet"]["path"] for probe in probes.values()} == {"/ready", "/health"} <= paths
        ready = probes["readiness"]
        assert ready["periodSeconds"] * ready["failureThreshold"] < DRAIN
        assert pod["spec"]["terminationGracePeriodSeconds"] > DRAIN + SHUTDOWN_SECONDS
        assert {mount["name"] for mount in container()["volumeMounts"]} == {
            volume["name"] for volume in pod["spec"]["volumes"]
        }
        for variable in container()["env"]:
            name = variable["name"].removeprefix("SHORTLIST_SERVE_").lower()
            assert name in {field.name for field in fields(ServeConfig)}

    def test_servers_read_the_models_that_the_refit_writes(self):
        objects = manifest()
        claim = objects["PersistentVolumeClaim"]
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
        job = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        pod = objects["Deployment"]["spec"]["template"]["spec"]
        for spec, reads_only in ((pod, True), (job, False)):
            [volume] = [each for each in spec["volumes"] if each["name"] == "models"]
            [mount] = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "models"]
            assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
            assert (mount.get("readOnly", False), mount["mountPath"]) == (reads_only, "/models")
        refit = job["containers"][0]
        assert refit["args"] == ["service", "refit", container()["args"][0]]
        assert refit["image"] == container()["image"]
        assert refit["env"] == container()["env"]


DRAIN = ServeConfig.drain


def compose():
    """The services of the compose file."""
    return yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]


def manifest():
    """The objects of the Kubernetes manifest by kind."""
    entries = yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text())
    return {entry["kind"]: entry for entry in entries}


def container():
    """The container of the Kubernetes manifest."""
    return manifest()["Deployment"]["spec"]["template"]["spec"]["containers"][0]


class Image:
    """The steps of the Dockerfile, in a folder instead of a container."""

    def __init__(self, room):
        self.room, self.place = room, room
        kept = ("PATH", "HOME", "LANG", "PIP_", "SSL_", "REQUESTS_CA")
        self.environment = {k: v for k, v in os.environ.items() if k.startswith(kept)}
        self.steps = []

    def inside(self, text):
        """A text whose absolute paths lie in the folder."""
        text = re.sub(r"(?<![\w.])/(opt/shortlist|models|source|run/secrets)\b", rf"{self.room}/\1", text)
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
    tokens = tmp_path / "run/secrets/tokens"
    tokens.parent.mkdir(parents=True)
    printed = image.run(f"shortlist service token {tokens} --name a --scope read --scope events")
    compiled = kernels()
    server = compose()["server-1"]
    assert set(server["environment"]) == {"SHORTLIST_SERVE_DB", "PGPASSWORD"}
    port = free_port()
    command = [*json.loads(last("ENTRYPOINT")), *map(image.inside, server["command"]), "--port", str(port)]
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

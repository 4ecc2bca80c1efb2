"""Settings and tokens of the service."""

import pytest

from shortlist.errors import ConfigError
from shortlist.serve.config import ServeConfig, load_config
from shortlist.serve.schemas import check_id
from shortlist.serve.tokens import create_token, find_token, read_tokens


class TestConfig:
    def test_flag_over_environment_over_file(self, tmp_path):
        file = tmp_path / "serve.toml"
        file.write_text('port = 1111\nworkers = 3\nmodel = "a.shortlist"\n')
        environment = {
            "SHORTLIST_SERVE_PORT": "2222",
            "SHORTLIST_SERVE_TIMEOUT": "2.5",
            "SHORTLIST_OTHER": "x",
        }
        found = load_config({"port": 3333, "workers": None}, file=file, environment=environment)
        assert (found.port, found.workers, found.timeout, found.model) == (3333, 3, 2.5, "a.shortlist")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("prot = 1\n", "unknown setting 'prot'; did you mean 'port'"),
            ('port = "many"\n', "port must be a whole number between 1 and 65535, got 'many'"),
            ("port = true\n", "port must be a whole number"),
            ("port = 0\n", "port must be a whole number between 1 and 65535, got 0"),
            ("port = [\n", "not valid TOML"),
        ],
    )
    def test_wrong_files(self, tmp_path, text, words):
        file = tmp_path / "serve.toml"
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_config({"model": "a.shortlist"}, file=file, environment={})

    def test_a_model_is_needed(self):
        with pytest.raises(ConfigError, match="needs a model file"):
            load_config({}, environment={})

    @pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "shop.example"])
    def test_other_machines_need_a_token(self, host):
        with pytest.raises(ConfigError, match="token file is needed"):
            ServeConfig(model="a.shortlist", host=host)
        assert ServeConfig(model="a.shortlist", host=host, token_file="tokens").host == host

    def test_default_store_is_beside_the_model(self, tmp_path):
        config = ServeConfig(model=str(tmp_path / "shop.shortlist"))
        assert config.database == f"sqlite:///{tmp_path.resolve() / 'shop.events.sqlite'}"
        assert ServeConfig(model="x", db="postgresql://u@h/d").database == "postgresql+psycopg://u@h/d"


class TestTokens:
    def test_only_hashes_are_stored(self, tmp_path):
        path = tmp_path / "tokens"
        secret = create_token(path, "shop", ["read", "events"])
        assert secret not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
        found = find_token(read_tokens(path), secret)
        assert found.name == "shop"
        assert found.scopes == {"read", "events"}
        assert find_token(read_tokens(path), secret + "x") is None
        assert find_token(read_tokens(path), "") is None

    def test_a_second_token_keeps_the_first(self, tmp_path):
        path = tmp_path / "tokens"
        first, second = create_token(path, "a", ["read"]), create_token(path, "b", ["admin"])
        assert [find_token(read_tokens(path), one).name for one in (first, second)] == ["a", "b"]
        with pytest.raises(ConfigError, match="already has a token named 'a'"):
            create_token(path, "a", ["read"])

    @pytest.mark.parametrize("line", ["shop read", "shop read plain-secret", "shop write sha256:" + "0" * 64])
    def test_wrong_lines_are_refused_without_showing_them(self, tmp_path, line):
        path = tmp_path / "tokens"
        path.write_text(line + "\n")
        with pytest.raises(ConfigError) as caught:
            read_tokens(path)
        assert "plain-secret" not in str(caught.value)


class TestIds:
    @pytest.mark.parametrize(("given", "expected"), [(7, 7), ("7", 7), ("-3", -3)])
    def test_integers_may_be_written_as_text(self, given, expected):
        import shortlist as sl

        assert check_id(given, sl.IdMap.of([1, 2]), "user_id") == expected

    @pytest.mark.parametrize("given", ["007", "7.0", "", "x", 7.0, True, None, 2**63, str(2**63), "٣"])
    def test_other_values_are_no_integers(self, given):
        import shortlist as sl
        from shortlist.errors import DataError

        with pytest.raises(DataError, match="user_id must be an integer"):
            check_id(given, sl.IdMap.of([1, 2]), "user_id")

    @pytest.mark.parametrize("given", [7, "", "x" * 257, "a\x1b[0m", "a\u202eb", None])
    def test_other_values_are_no_texts(self, given):
        import shortlist as sl
        from shortlist.errors import DataError

        with pytest.raises(DataError, match="user_id must be a text"):
            check_id(given, sl.IdMap.of(["a"]), "user_id")


def test_a_port_in_use_is_an_error_before_anything_is_said(tmp_path, capsys):
    import socket

    import shortlist as sl
    from shortlist.cli import main

    model = sl.Popularity().fit(sl.load_dataset("sample")).save(tmp_path / "m.shortlist")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(model), "--port", str(port)]) == 2
    out = capsys.readouterr()
    assert "serves" not in out.out + out.err
    assert f"cannot listen at 127.0.0.1:{port}" in out.err
    assert out.err.count("--port") == 1
    assert "pass another --port or --host" in out.err


@pytest.mark.parametrize("name", ["nope.shortlist", "shop.csv"])
def test_no_address_is_printed_for_a_file_that_cannot_be_served(tmp_path, capsys, name):
    from shortlist.cli import main
    from tests.serve.server import free_port

    (tmp_path / "shop.csv").write_text("user_id,item_id\n1,2\n")
    assert main(["serve", str(tmp_path / name), "--port", str(free_port())]) == 2
    out = capsys.readouterr()
    assert "http://" not in out.out + out.err
    assert name in out.err


def test_the_service_says_when_it_is_ready_where_events_go_and_that_it_has_stopped(folder):
    import signal
    import subprocess
    import sys
    import urllib.request

    from tests.serve.server import free_port

    port = free_port()
    model = folder / "shop.shortlist"
    command = [sys.executable, "-m", "shortlist", "serve", str(model), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert (
                process.stderr.readline() == f"shortlist serves shop.shortlist at http://127.0.0.1:{port}/\n"
            )
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=60) as answer:
                assert answer.status == 200
            assert process.stderr.readline() == f"events are stored in {folder / 'shop.events.sqlite'}\n"
            process.send_signal(signal.SIGINT)
            assert process.stderr.read() == "stopped\n"
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()

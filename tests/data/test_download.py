"""Downloads: every failure of a source is reported, without URLs."""

import http.server
import os
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from shortlist.data import datasets as download
from shortlist.data.datasets import SourceError, download_file, download_wheel, extract, sha256, verify


@pytest.fixture
def site(tmp_path):
    """A web server for a temporary folder; pages under /slow never answer."""
    root = tmp_path / "site"
    root.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(root))

        def do_GET(self):
            if self.path.startswith("/slow"):
                time.sleep(1)
                return
            super().do_GET()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root.joinpath("file.zip").write_bytes(b"payload")
        yield root, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestPage:
    def test_file_is_downloaded(self, site, tmp_path):
        download_file(f"{site[1]}/file.zip", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b"payload"

    def test_missing_page(self, site, tmp_path):
        with pytest.raises(SourceError, match=r"127.0.0.1 did not send the file \(HTTP status 404\)"):
            download_file(f"{site[1]}/none.zip", tmp_path / "got")

    def test_page_that_sends_nothing(self, site, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "READ_TIMEOUT", 0.2)
        with pytest.raises(SourceError, match="did not send the file"):
            download_file(f"{site[1]}/slow", tmp_path / "got")

    def test_slow_page(self, site, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "PAGE_TIMEOUT", -1.0)
        with pytest.raises(SourceError, match="too slow"):
            download_file(f"{site[1]}/file.zip", tmp_path / "got")

    def test_no_server(self, tmp_path):
        with pytest.raises(SourceError, match="connection refused"):
            download_file("http://127.0.0.1:1/file.zip", tmp_path / "got")


class TestIndex:
    @pytest.fixture(autouse=True)
    def no_pip(self, monkeypatch):
        """Neither the pip of this environment nor its configuration."""
        monkeypatch.setattr(download, "_pip_commands", list)
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
            monkeypatch.delenv(name)

    def fake_pip(self, monkeypatch, code):
        monkeypatch.setattr(download, "_pip_commands", lambda: [[sys.executable, "-c", code]])

    def test_pip_downloads_only_the_wheel(self, tmp_path, monkeypatch):
        self.fake_pip(
            monkeypatch,
            "import sys, pathlib\n"
            "at = sys.argv.index('--dest')\n"
            "assert sys.argv[1:3] == ['download', '--no-deps'] and sys.argv[-1] == 'thing==1.0'\n"
            "pathlib.Path(sys.argv[at + 1], 'thing-1.0-py3-none-any.whl').write_text('wheel')",
        )
        assert download_wheel("thing==1.0", tmp_path).read_text() == "wheel"

    def test_error_of_pip_contains_no_url(self, tmp_path, monkeypatch):
        self.fake_pip(
            monkeypatch,
            "import sys; sys.exit('WARNING: x\\nERROR: No match for thing at https://me:secret@host/simple')",
        )
        with pytest.raises(SourceError, match="No match for thing at …") as caught:
            download_wheel("thing==1.0", tmp_path)
        assert "secret" not in str(caught.value)

    def test_missing_wheel_is_reported(self, tmp_path, monkeypatch):
        self.fake_pip(monkeypatch, "pass")
        with pytest.raises(SourceError, match="sent no wheel"):
            download_wheel("thing==1.0", tmp_path)

    def test_missing_pip_is_reported(self, tmp_path):
        with pytest.raises(SourceError, match="pip is not installed"):
            download_wheel("thing==1.0", tmp_path)

    def test_pip_that_cannot_start_is_reported(self, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "_pip_commands", lambda: [[str(tmp_path / "nothing")]])
        with pytest.raises(SourceError, match=r"pip failed \(no such file or directory\)"):
            download_wheel("thing==1.0", tmp_path)

    @pytest.mark.parametrize(
        ("configured", "expected"),
        [
            ({}, None),
            ({"UV_DEFAULT_INDEX": "corp=https://a.example/simple?k=v"}, "https://a.example/simple?k=v"),
            ({"UV_INDEX_URL": "https://b.example/simple"}, "https://b.example/simple"),
            (
                {"UV_INDEX_URL": "https://b.example", "PIP_INDEX_URL": "https://c.example"},
                "https://c.example",
            ),
        ],
    )
    def test_pip_uses_the_index_of_uv_unless_it_has_its_own(self, monkeypatch, configured, expected):
        for name, value in configured.items():
            monkeypatch.setenv(name, value)
        assert download._environment().get("PIP_INDEX_URL") == expected


class TestBundledPip:
    def test_environment_without_pip_uses_the_bundled_copy(self, monkeypatch):
        find = download.importlib.util.find_spec
        monkeypatch.setattr(
            download.importlib.util, "find_spec", lambda name: None if name == "pip" else find(name)
        )
        run = subprocess.run(
            [*next(download._pip_commands()), "--version"], capture_output=True, text=True, check=True
        )
        assert run.stdout.startswith("pip ")


def test_pip_is_available_here():
    assert list(download._pip_commands())


class TestFiles:
    def test_nested_archive_is_extracted(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
            archive.writestr("data.csv", "x")
        with zipfile.ZipFile(tmp_path / "outer.whl", "w") as archive:
            archive.write(tmp_path / "inner.zip", "pkg/inner.zip")
        extract(tmp_path / "outer.whl", "pkg/inner.zip!data.csv", tmp_path / "got")
        assert (tmp_path / "got").read_text() == "x"

    @pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut"])
    def test_damaged_archive_is_reported(self, tmp_path, content):
        (tmp_path / "a.zip").write_bytes(content)
        with pytest.raises(SourceError, match=r"a.zip is damaged"):
            extract(tmp_path / "a.zip", "data.csv", tmp_path / "got")

    def test_missing_member_is_reported(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("other.csv", "x")
        with pytest.raises(SourceError, match=r"a.zip is damaged"):
            extract(tmp_path / "a.zip", "data.csv", tmp_path / "got")

    def test_other_bytes_are_rejected(self, tmp_path):
        (tmp_path / "a").write_bytes(b"abc")
        verify(tmp_path / "a", sha256(tmp_path / "a"))
        with pytest.raises(SourceError, match="not the published file"):
            verify(tmp_path / "a", "0" * 64)

"""Fetching: every source may fail, in every way, and says so without naming more than the home page."""

import http.server
import json
import os
import sys
import threading
import time
import zipfile

import pytest

from shortlist.data import download
from shortlist.data.download import SourceError, extract, from_index, from_page, sha256, verify


@pytest.fixture
def site(tmp_path):
    """A web server over a folder of the test's own; pages under /slow never answer."""
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

        def guess_type(self, path):
            return "application/vnd.pypi.simple.v1+json" if "json" in str(path) else "text/html"

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root.joinpath("file.zip").write_bytes(b"payload")
        yield root, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestPage:
    def test_a_file_arrives_whole(self, site, tmp_path):
        from_page(f"{site[1]}/file.zip", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b"payload"

    def test_missing_page(self, site, tmp_path):
        with pytest.raises(SourceError, match=r"127.0.0.1 did not answer"):
            from_page(f"{site[1]}/none.zip", tmp_path / "got")

    def test_silent_page(self, site, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "PATIENCE", 0.2)
        with pytest.raises(SourceError, match="did not answer"):
            from_page(f"{site[1]}/slow", tmp_path / "got")

    def test_trickling_page(self, site, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "HOME_LIMIT", -1.0)
        with pytest.raises(SourceError, match="too slow"):
            from_page(f"{site[1]}/file.zip", tmp_path / "got")

    def test_no_server(self, tmp_path):
        with pytest.raises(SourceError, match="connection refused"):
            from_page("http://127.0.0.1:1/file.zip", tmp_path / "got")


class TestIndex:
    @pytest.fixture(autouse=True)
    def no_pip(self, monkeypatch, tmp_path):
        """Neither this environment's pip nor its configuration."""
        monkeypatch.setattr(download, "_pips", list)
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setattr(download, "SYSTEM_CONFIG", str(tmp_path / "pip.conf"))

    def fake_pip(self, monkeypatch, code):
        monkeypatch.setattr(download, "_pips", lambda: [[sys.executable, "-c", code]])

    def test_pip_is_asked_for_the_wheel_alone(self, tmp_path, monkeypatch):
        self.fake_pip(
            monkeypatch,
            "import sys, pathlib\n"
            "at = sys.argv.index('--dest')\n"
            "assert sys.argv[1:3] == ['download', '--no-deps'] and sys.argv[-1] == 'thing==1.0'\n"
            "pathlib.Path(sys.argv[at + 1], 'thing-1.0-py3-none-any.whl').write_text('wheel')",
        )
        assert from_index("thing==1.0", tmp_path).read_text() == "wheel"

    def test_what_pip_says_loses_its_addresses(self, tmp_path, monkeypatch):
        self.fake_pip(
            monkeypatch,
            "import sys; sys.exit('WARNING: x\\nERROR: No match for thing at https://me:secret@host/simple')",
        )
        with pytest.raises(SourceError, match="No match for thing at …") as caught:
            from_index("thing==1.0", tmp_path)
        assert "secret" not in str(caught.value)

    def test_pip_that_sends_nothing(self, tmp_path, monkeypatch):
        self.fake_pip(monkeypatch, "pass")
        with pytest.raises(SourceError, match="sent no wheel"):
            from_index("thing==1.0", tmp_path)

    def test_without_pip_and_index(self, tmp_path):
        with pytest.raises(SourceError, match="no pip was found and no index is configured"):
            from_index("thing==1.0", tmp_path)

    def serve(self, root, kind):
        (root / "packages").mkdir()
        (root / "packages" / "some_thing-1.0-py3-none-any.whl").write_bytes(b"wheel")
        page = root / kind / "some-thing"
        page.mkdir(parents=True)
        links = ["../../packages/some_thing-0.9-py3-none-any.whl", "../../packages/some_thing-1.0.tar.gz"]
        links.append("../../packages/some_thing-1.0-py3-none-any.whl#sha256=00")
        if kind == "json":
            body = json.dumps({"files": [{"url": link} for link in links]})
        else:
            body = "".join(f'<a href="{link}">file</a>' for link in links)
        (page / "index.html").write_text(body)

    @pytest.mark.parametrize("kind", ["html", "json"])
    def test_the_simple_api_of_an_index_in_the_environment(self, site, tmp_path, monkeypatch, kind):
        self.serve(site[0], kind)
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"corp={site[1]}/{kind}")
        assert from_index("some-thing==1.0", tmp_path).read_bytes() == b"wheel"

    def test_the_simple_api_of_an_index_in_pips_file(self, site, tmp_path):
        self.serve(site[0], "html")
        (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {site[1]}/html/\n")
        assert from_index("some-thing==1.0", tmp_path).read_bytes() == b"wheel"

    def test_an_index_without_the_wheel(self, site, tmp_path, monkeypatch):
        self.serve(site[0], "html")
        monkeypatch.setenv("PIP_INDEX_URL", f"{site[1]}/html")
        with pytest.raises(SourceError, match=r"some-thing==2\.0 is not on the configured package index"):
            from_index("some-thing==2.0", tmp_path)
        with pytest.raises(SourceError, match="did not answer"):
            from_index("nothing==2.0", tmp_path)


def test_this_environment_has_a_way_to_run_pip():
    assert list(download._pips())


class TestFiles:
    def test_nested_archives_open(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
            archive.writestr("data.csv", "x")
        with zipfile.ZipFile(tmp_path / "outer.whl", "w") as archive:
            archive.write(tmp_path / "inner.zip", "pkg/inner.zip")
        extract(tmp_path / "outer.whl", "pkg/inner.zip!data.csv", tmp_path / "got")
        assert (tmp_path / "got").read_text() == "x"

    @pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut"])
    def test_damaged_archives_are_told(self, tmp_path, content):
        (tmp_path / "a.zip").write_bytes(content)
        with pytest.raises(SourceError, match=r"a.zip is damaged"):
            extract(tmp_path / "a.zip", "data.csv", tmp_path / "got")

    def test_missing_member_is_told(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("other.csv", "x")
        with pytest.raises(SourceError, match=r"a.zip is damaged"):
            extract(tmp_path / "a.zip", "data.csv", tmp_path / "got")

    def test_other_bytes_are_refused(self, tmp_path):
        (tmp_path / "a").write_bytes(b"abc")
        verify(tmp_path / "a", sha256(tmp_path / "a"))
        with pytest.raises(SourceError, match="not the published file"):
            verify(tmp_path / "a", "0" * 64)

"""scripts/get-cifar against a server on this machine that behaves and misbehaves.

  get_cifar.py SCRIPT [unittest's options]
"""

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SCRIPT = sys.argv.pop(1)
FOLDER, PART = "cifar-10-batches-bin", "cifar-10-binary.tar.gz.unfinished"


def packed(seed):
    """A .tar.gz of a folder with one file, which hardly compresses."""
    content = b"".join(hashlib.sha512(f"{seed} {i}".encode()).digest() for i in range(2000))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo(f"{FOLDER}/test_batch.bin")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return content, out.getvalue()


CONTENT, ARCHIVE = packed("this")


class Server:
    """Serves one file. Cuts each answer after `cut` bytes, and honours requests for a range only if `ranges`."""

    def __init__(self, content=ARCHIVE, cut=None, ranges=True, status=None):
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.headers.get("Range"))
                wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "") if ranges else None
                first = int(wanted[1]) if wanted else 0
                missing = wanted and first >= len(content)
                self.send_response(status or (416 if missing else 206 if wanted else 200))
                if wanted:
                    there = "*" if missing else f"{first}-{len(content) - 1}"
                    self.send_header("Content-Range", f"bytes {there}/{len(content)}")
                self.send_header("Content-Length", str(len(content[first:])))
                self.end_headers()
                self.wfile.write(content[first:][:cut])

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/set.tar.gz"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


class GetCifar(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name) / "da ta"

    def get(self, url, *more, content=ARCHIVE):
        words = [SCRIPT, "cifar10", str(self.folder), "--url", url, "--md5", hashlib.md5(content).hexdigest(), *more]
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return ended.returncode, ended.stdout + ended.stderr

    def start_with(self, part):
        self.folder.mkdir()
        (self.folder / PART).write_bytes(part)

    def assert_set(self, outcome):
        self.assertEqual(outcome[0], 0, outcome[1])
        self.assertEqual(os.listdir(self.folder), [FOLDER])
        self.assertEqual((self.folder / FOLDER / "test_batch.bin").read_bytes(), CONTENT)

    def assert_no_set(self, outcome, said, *left):
        self.assertEqual(outcome[0], 1, outcome[1])
        self.assertIn(said, outcome[1])
        self.assertEqual(os.listdir(self.folder), list(left))

    def test_a_set_is_downloaded_once_and_unpacked(self):
        with Server() as server:
            outcome = self.get(server.url)
            self.assert_set(outcome)
            quoted = str(self.folder).replace(" ", chr(92) + " ")
            self.assertIn(f"keel train --source cifar10 --path {quoted} ", outcome[1])
            self.assert_set(self.get(server.url))
            self.assertEqual(server.asked, [None])

    def test_a_file_will_do(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(ARCHIVE)
            file.flush()
            self.assert_set(self.get(f"file://{file.name}"))

    def test_broken_connections_are_continued(self):
        with Server(cut=len(ARCHIVE) // 3 + 1) as server:
            self.assert_set(self.get(server.url))
            self.assertEqual(len(server.asked), 3)

    def test_an_interrupted_download_is_continued(self):
        self.start_with(ARCHIVE[:1000])
        with Server() as server:
            self.assert_set(self.get(server.url))
            self.assertEqual(server.asked, ["bytes=1000-"])

    def test_a_complete_download_needs_no_server(self):
        self.start_with(ARCHIVE)
        self.assert_set(self.get("http://127.0.0.1:9/"))

    def test_a_part_of_another_file_is_replaced(self):
        for size in (1000, len(ARCHIVE), 10 * len(ARCHIVE)):
            for ranges in (True, False):
                with self.subTest(size=size, ranges=ranges), Server(ranges=ranges) as server:
                    self.setUp()
                    self.start_with((b"x" * size))
                    self.assert_set(self.get(server.url))

    def test_what_is_kept_when_nothing_comes(self):
        self.start_with(ARCHIVE[:1000])
        said = "could not be downloaded; the same command continues"
        self.assert_no_set(self.get("http://127.0.0.1:9/"), said, PART)
        with Server(status=500) as server:
            self.assert_no_set(self.get(server.url), said, PART)
        with Server(cut=0) as server:
            self.assert_no_set(self.get(server.url, "--timeout", "5"), said, PART)
        self.assertEqual((self.folder / PART).read_bytes(), ARCHIVE[:1000])

    def test_a_wrong_file_is_refused(self):
        for wrong in (b"<html>please log in</html>", packed("another")[1]):
            with Server(content=wrong) as server:
                self.assert_no_set(self.get(server.url), f"got {hashlib.md5(wrong).hexdigest()} ({len(wrong)} bytes)")

    def test_half_an_unpacking_is_not_a_set(self):
        (self.folder / f"{FOLDER}.unfinished").mkdir(parents=True)
        (self.folder / f"{FOLDER}.unfinished" / "test_batch.bin").write_bytes(CONTENT[:5])
        with Server() as server:
            self.assert_set(self.get(server.url))
        broken = ARCHIVE[: len(ARCHIVE) // 2]
        self.setUp()
        with Server(content=broken) as server:
            self.assertNotEqual(self.get(server.url, content=broken)[0], 0)
        self.assertFalse((self.folder / FOLDER).exists())

    def test_wrong_words_are_explained(self):
        for words in ([], ["mnist", "x"], ["cifar10", "x", "--md6", "1"], ["cifar10", "x", "--url"]):
            ended = subprocess.run([SCRIPT, *words], capture_output=True, text=True)
            self.assertEqual(ended.returncode, 2)
            self.assertIn("get-cifar cifar10|cifar100 FOLDER", ended.stderr)


if __name__ == "__main__":
    unittest.main()

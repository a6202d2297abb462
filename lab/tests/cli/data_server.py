"""A server on this machine that has a small CIFAR-10 to download, and ways for it to misbehave."""

import hashlib
import io
import re
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLDER = "cifar-10-batches-bin"
NAMES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def files_of(seed):
    """A CIFAR-10 of ten images a file, whose pixels hardly compress."""
    files = {"batches.meta.txt": "\n".join(NAMES).encode() + b"\n\n", "readme.html": b"<html>"}
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        pixels = b"".join(hashlib.sha512(f"{seed} {name} {i}".encode()).digest() for i in range(480))
        files[name] = b"".join(bytes([i]) + pixels[3072 * i : 3072 * (i + 1)] for i in range(10))
    return files


def packed(entries):
    """A .tar.gz of (name, bytes or a function that changes its TarInfo)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if callable(content):
                content(info)
                content = b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def packed_set(seed=0, prefix=FOLDER + "/"):
    return packed([(prefix + name, content) for name, content in files_of(seed).items()])


ARCHIVE = packed_set()


def md5(content):
    return hashlib.md5(content).hexdigest()


class Server:
    """Serves one archive. `behave(handler)` may answer in its own way, and returns whether it did."""

    def __init__(self, content=ARCHIVE, behave=None, ranges=True):
        server = self
        server.content, server.behave, server.ranges, server.asked = content, behave, ranges, []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.headers.get("Range"))
                try:
                    if not (server.behave and server.behave(self)):
                        self.serve()
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def begin(self):
                """Status and headers of an honest answer; what its body is to be."""
                asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
                first = int(asked[1]) if asked and server.ranges else 0
                whole = len(server.content)
                if first >= whole:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{whole}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return b""
                self.send_response(206 if asked and server.ranges else 200)
                if asked and server.ranges:
                    self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
                self.send_header("Content-Length", str(whole - first))
                self.end_headers()
                return server.content[first:]

            def serve(self):
                self.wfile.write(self.begin())

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in {"Content_Length": len(body), **headers}.items():
                    if value is not None:
                        self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                self.wfile.write(body)
                return True

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_port}/cifar.tar.gz"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


def stall(handler, after):
    """Sends so many bytes, and then nothing."""
    handler.wfile.write(handler.begin()[:after])
    handler.wfile.flush()
    time.sleep(30)
    return True


def cut(handler, after):
    handler.wfile.write(handler.begin()[:after])
    return True

"""`keel data --get` against a server on this machine that behaves and misbehaves: what is written, what is said, and
the exit code.

  get_data.py KEEL TESTS [unittest's options]

TESTS is keel_cli_test, which does a command without the half second that KEEL takes to start.

77 where KEEL was built without libcurl or libarchive, after a look at how it says so.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
from pathlib import Path

from data_server import ARCHIVE, FOLDER, Server, cut, files_of, md5, packed, packed_set, stall

KEEL, TESTS = sys.argv[1:3]
del sys.argv[1:3]
DONE, MACHINE, USAGE, INPUT, INTERRUPTED, DOWNLOAD = 0, 1, 2, 3, 5, 7  # exit codes of keel
RECORD = 3073
OFFICIAL = 170052171  # bytes
PART = "cifar-10-binary.tar.gz.unfinished"


def words_of(url, folder, checksum=md5(ARCHIVE), source="cifar10", timeout=5):
    words = [KEEL, "data", "--get", source, "--path", str(folder), "--url", url, "--timeout", str(timeout)]
    return words + (["--md5", checksum] if checksum else [])


def run(words, **more):
    """The exit code, and what was printed to either side."""
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, **more)
    return ended.returncode, ended.stdout, ended.stderr


class Forks:
    """Runs commands as run() does, each in a fork of one process that has started already."""

    def __init__(self):
        self.process = subprocess.Popen([TESTS, "forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, words):
        with tempfile.TemporaryDirectory() as name:
            out, error = Path(name) / "out", Path(name) / "error"
            patience = threading.Timer(120, self.process.kill)
            patience.start()
            self.process.stdin.write("".join(f"{part}\t" for part in [out, error, *words[1:]]) + "\n")
            self.process.stdin.flush()
            code = self.process.stdout.readline()
            patience.cancel()
            assert code, f"no end of {words}"
            return int(code), out.read_text(), error.read_text()


def get(url, folder, checksum=md5(ARCHIVE), more=None, **how):
    """`more`: what the process itself is started with."""
    words = words_of(url, folder, checksum, **how)
    return forks.run(words) if more is None else run(words, **more)


class GetData(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name) / "data"

    def assert_set(self, seed=0):
        """All of it, and nothing else."""
        for name, content in files_of(seed).items():
            if name != "readme.html":
                self.assertEqual((self.folder / FOLDER / name).read_bytes(), content, name)
        self.assertEqual(os.listdir(self.folder), [FOLDER])
        self.assertEqual(len(os.listdir(self.folder / FOLDER)), 7)

    def assert_no_set(self, *left):
        there = sorted(os.listdir(self.folder)) if self.folder.exists() else []
        self.assertEqual(there, sorted(left))

    def test_a_set_is_downloaded_unpacked_and_read(self):
        with Server() as server:
            code, out, error = get(server.url, self.folder, more={})
            self.assertEqual(code, DONE, error)
            self.assertIn("CIFAR-10: 50 training and 10 test images of 32 x 32, 10 classes", out)
            self.assertIn("airplane", out)
            self.assertIn(f"keel train --source cifar10 --path {self.folder} ", out)
            self.assert_set()
            # Once more: nobody is asked.
            code, out, error = get(server.url, self.folder)
            self.assertEqual(code, DONE, error)
            self.assertIn("is already there", error)
            self.assertIn("keel train", out)
            self.assertEqual(server.asked, [None])
        # The folder itself is good too, and the command that is printed trains.
        self.assertEqual(get("http://127.0.0.1:9/", self.folder / FOLDER)[0], DONE)
        code, _, error = run(
            [KEEL, *f"train --source cifar10 --path {self.folder} --norm zca".split()]
            + "--model resnet_small --batch 10 --epochs 1 --device cpu --threads 1 --run".split()
            + [str(self.folder / "run")]
        )
        self.assertEqual(code, DONE, error)

    def test_cifar100_has_both_kinds_of_names(self):
        image = bytes([3, 42]) + bytes(3072)
        files = {"train.bin": image * 4, "test.bin": image}
        for kind, count in (("fine", 100), ("coarse", 20)):
            files[f"{kind}_label_names.txt"] = "".join(f"{kind}{i}\n" for i in range(count)).encode()
        archive = packed([("cifar-100-binary/" + name, content) for name, content in files.items()])
        with Server(archive) as server:
            code, out, error = get(server.url, self.folder, md5(archive), source="cifar100")
        self.assertEqual(code, DONE, error)
        self.assertIn("fine42", out)
        code, out, error = forks.run([KEEL, *f"data --source cifar100 --labels coarse --path {self.folder}".split()])
        self.assertEqual(code, DONE, error)
        self.assertIn("20 classes", out)
        self.assertIn("coarse3", out)

    def test_a_file_is_an_address_too(self):
        file = self.folder.parent / "cifar.tar.gz"
        file.write_bytes(ARCHIVE)
        self.folder.mkdir()
        (self.folder / PART).write_bytes(ARCHIVE[:1000])
        code, _, error = get(f"file://{file}", self.folder)
        self.assertEqual(code, DONE, error)
        self.assert_set()
        self.assertTrue(file.exists())

    def test_the_folder_may_have_any_name(self):
        self.folder = self.folder.parent / "a b 'c'"
        with Server() as server:
            code, out, error = get(server.url, self.folder)
        self.assertEqual(code, DONE, error)
        command = out.splitlines()[-1].strip()
        words = subprocess.run(["bash", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True).stdout
        self.assertIn(str(self.folder), words.splitlines())

    def test_a_broken_connection_is_taken_up_where_it_ended(self):
        breaks = iter([1000, 20000])
        with Server(behave=lambda h: (n := next(breaks, None)) and cut(h, n)) as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DONE, error)
            self.assertEqual(server.asked, [None, "bytes=1000-", "bytes=21000-"])
            self.assertIn("going on from there", error)
        self.assert_set()

    def test_what_an_earlier_call_left_is_taken_up(self):
        self.folder.mkdir()
        (self.folder / PART).write_bytes(ARCHIVE[:5000])
        with Server() as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual((code, server.asked), (DONE, ["bytes=5000-"]), error)
        self.assert_set()

    def test_a_whole_archive_of_an_earlier_call_is_unpacked(self):
        self.folder.mkdir()
        (self.folder / PART).write_bytes(ARCHIVE)
        half = self.folder / f"{FOLDER}.unfinished"  # killed while it wrote the files
        half.mkdir()
        (half / "data_batch_1.bin").write_bytes(b"half")
        with Server() as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual((code, len(server.asked)), (DONE, 1), error)
        self.assert_set()

    def test_a_server_without_ranges_starts_again(self):
        self.folder.mkdir()
        (self.folder / PART).write_bytes(b"\x1f\x8bsomething")
        with Server(ranges=False) as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual((code, len(server.asked)), (DONE, 1), error)
        self.assert_set()

    def test_half_of_another_version_is_started_again_once(self):
        other = packed_set(seed=1)
        self.folder.mkdir()
        (self.folder / PART).write_bytes(other[:5000])
        with Server() as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DONE, error)
            self.assertEqual(server.asked, ["bytes=5000-", None])
            self.assertIn("starting again", error)
        self.assert_set()

    def test_more_than_the_whole_is_started_again(self):
        self.folder.mkdir()
        (self.folder / PART).write_bytes(b"\x1f\x8b" + bytes(len(ARCHIVE) + 10))
        with Server() as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DONE, error)
        self.assert_set()

    def test_a_wrong_checksum_is_refused(self):
        with Server() as server:
            code, _, error = get(server.url, self.folder, "0" * 32)
            self.assertEqual(code, INPUT, error)
            self.assertIn("expected an archive with MD5 " + "0" * 32 + ", got " + md5(ARCHIVE), error)
            self.assertEqual(len(server.asked), 1)
        self.assert_no_set()
        self.assertFalse(self.folder.exists())  # which this call had made

    def test_the_set_has_one_size(self):
        with Server() as server:  # without --md5 a mirror has the makers' archive
            code, _, error = get(server.url, self.folder, None)
        self.assertEqual(code, DOWNLOAD, error)
        self.assertIn(f"expected {OFFICIAL} bytes, the server has {len(ARCHIVE)}", error)

    def test_an_endless_answer_ends(self):
        def pour(handler):
            handler.answer(200, ARCHIVE[:2], Content_Length=None)
            block = bytes(1 << 20)
            for _ in range(OFFICIAL // len(block) + 2):
                handler.wfile.write(block)
            time.sleep(30)

        with Server(behave=pour) as server:
            code, _, error = get(server.url, self.folder, None)
        self.assertEqual(code, DOWNLOAD, error)
        self.assertIn(f"sends more than {OFFICIAL} bytes", error)

    def test_a_short_answer_is_named(self):
        with Server(behave=lambda h: cut(h, 100 if h.headers.get("Range") is None else 0)) as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DOWNLOAD, error)
            self.assertIn(f"ended after 100 of {len(ARCHIVE)} bytes", error)
            self.assertEqual(len(server.asked), 2)  # the second brought nothing
        self.assert_no_set(PART)

    def test_a_short_answer_of_no_length_is_named(self):
        with Server(behave=lambda h: h.answer(200, ARCHIVE[:100], Content_Length=None)) as server:
            code, _, error = get(server.url, self.folder, None)
        self.assertEqual(code, DOWNLOAD, error)
        self.assertIn(f"ended after 100 of {OFFICIAL} bytes", error)

    def test_an_empty_answer_is_named(self):
        with Server(behave=lambda h: h.answer(200)) as server:
            code, _, error = get(server.url, self.folder)
        self.assertEqual(code, DOWNLOAD, error)
        self.assertIn("an empty answer", error)

    def test_an_error_page_of_status_200_is_no_archive(self):
        page = b"<!DOCTYPE html><title>Please log in</title>"
        for there in (b"", ARCHIVE[:5000]):
            self.folder.mkdir(exist_ok=True)
            (self.folder / PART).write_bytes(there)
            with Server(behave=lambda h: h.answer(200, page, Content_Type="text/html")) as server:
                code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DOWNLOAD, error)
            self.assertIn("expected an archive, the server sent something else (text/html)", error)
            if there:
                self.assertEqual((self.folder / PART).read_bytes(), there)  # not given up for that
            else:
                self.assert_no_set()

    def test_a_status_is_named(self):
        for status in (403, 404, 500, 503):
            with Server(behave=lambda h: h.answer(status, b"no")) as server:
                code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DOWNLOAD, error)
            self.assertIn(f"the server answers with status {status}", error)
            self.assertNotIn("\n", error.strip())

    def test_redirections_are_followed(self):
        with Server() as server:
            ways = {"/a": server.url, "/b": server.url.replace("cifar", "../cifar")}
            ways["/c"] = "/a"

            def go(h):
                return h.path in ways and h.answer(302, b"moved", Location=ways[h.path])

            with Server(behave=go) as other:
                code, _, error = get(other.url.replace("/cifar.tar.gz", "/c"), self.folder)
        self.assertEqual(code, DONE, error)
        self.assert_set()

    def test_redirections_end_and_lead_to_no_file(self):
        file = self.folder.parent / "cifar.tar.gz"
        file.write_bytes(ARCHIVE)
        for target in ("/cifar.tar.gz", f"file://{file}", "ftp://127.0.0.1/x"):
            with Server(behave=lambda h: h.answer(302, Location=target)) as server:
                code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DOWNLOAD, error)
        self.assert_no_set()

    def test_a_server_that_stops_sending_is_given_up(self):
        with Server(behave=lambda h: stall(h, 100 if h.headers.get("Range") is None else 0)) as server:
            code, _, error = get(server.url, self.folder, timeout=1)
            self.assertEqual(code, DOWNLOAD, error)
            self.assertIn("nothing came for 1 s", error)
        self.assertEqual((self.folder / PART).read_bytes(), ARCHIVE[:100])

    def test_a_server_that_never_answers_is_given_up(self):
        with Server(behave=lambda h: time.sleep(30)) as server:
            code, _, error = get(server.url, self.folder, timeout=1)
        self.assertEqual(code, DOWNLOAD, error)
        self.assertIn("nothing came for 1 s", error)

    def test_nobody_listens(self):
        with Server() as server:
            url = server.url
        code, _, error = get(url, self.folder)
        self.assertEqual(code, DOWNLOAD, error)
        self.assertIn(url, error)

    def test_another_part_than_asked_for_is_refused(self):
        def shifted(handler):
            whole = len(ARCHIVE)
            return handler.answer(206, ARCHIVE[10:], Content_Range=f"bytes 10-{whole - 1}/{whole}")

        self.folder.mkdir()
        (self.folder / PART).write_bytes(ARCHIVE[:5000])
        with Server(behave=shifted) as server:
            code, _, error = get(server.url, self.folder)
        self.assertEqual(code, DOWNLOAD, error)
        self.assertIn("another part", error)
        self.assertEqual((self.folder / PART).read_bytes(), ARCHIVE[:5000])

    def test_odd_headers_are_no_surprise(self):
        for value in ("bytes", "bytes x-y/z", "bytes 99999999999999999999-/1", "bytes -5-3/2", "lines 0-1/2", "/"):
            self.folder.mkdir(exist_ok=True)
            (self.folder / PART).write_bytes(ARCHIVE[:5000])
            with Server(behave=lambda h: h.answer(206, ARCHIVE[5000:], Content_Range=value)) as server:
                code, _, error = get(server.url, self.folder)
            self.assertEqual(code, DOWNLOAD, error)

    def test_ctrl_c_and_termination_leave_what_has_come(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Server(behave=lambda h: stall(h, 3000)) as server:
                words = words_of(server.url, self.folder, timeout=25)
                process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
                part = self.folder / PART
                while process.poll() is None and not (part.exists() and part.stat().st_size == 3000):
                    time.sleep(0.02)
                process.send_signal(number)
                _, error = process.communicate(timeout=20)
            self.assertEqual(process.returncode, INTERRUPTED, error)
            self.assertIn("the same command continues", error)
            with Server() as server:
                code, _, error = get(server.url, self.folder)
                self.assertEqual((code, server.asked), (DONE, ["bytes=3000-"]), error)
            self.assert_set()
            subprocess.run(["rm", "-r", str(self.folder)], check=True)

    def test_a_full_disk_is_named_and_nothing_is_lost(self):
        # Writing beyond a limit fails as on a full disk.
        def limited(size):
            def prepare():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            return {"preexec_fn": prepare, "restore_signals": False}

        with Server() as server:
            code, _, error = get(server.url, self.folder, more=limited(10000))
            self.assertEqual(code, MACHINE, error)
            self.assertIn(PART, error)
            self.assertIn("the same command continues", error)
            self.assertEqual((self.folder / PART).read_bytes(), ARCHIVE[:10000])
            code, _, error = get(server.url, self.folder)
            self.assertEqual((code, server.asked), (DONE, [None, "bytes=10000-"]), error)
        self.assert_set()

    @unittest.skipUnless(os.geteuid() == 0, "mounts a small disk")
    def test_a_disk_that_holds_the_archive_alone(self):
        self.folder.mkdir()
        size = len(ARCHIVE) + 60000
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(self.folder)]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("may not mount")
        try:
            with Server() as server:
                code, _, error = get(server.url, self.folder)
                self.assertEqual(code, MACHINE, error)
                self.assertIn("No space left on device", error)
                self.assertFalse((self.folder / FOLDER).exists())
                subprocess.run(["mount", "-o", f"remount,size={4 * size}", str(self.folder)], check=True)
                code, _, error = get(server.url, self.folder)
                self.assertEqual((code, len(server.asked)), (DONE, 2), error)
            self.assert_set()
        finally:
            subprocess.run(["umount", str(self.folder)], check=True)

    def test_hostile_archives_are_refused_whole(self):
        good = [(f"{FOLDER}/{name}", content) for name, content in files_of(0).items()]

        def link(kind, target):
            def change(info):
                info.type, info.linkname = kind, target

            return change

        hostile = {
            "paths inside": [("../outside", b"x")],
            "paths inside the": [(f"{FOLDER}/../../outside", b"x")],
            "paths inside the archive": [(str(self.folder.parent / "outside"), b"x")],
            "a link to '/etc'": [(FOLDER + "/x", link(tarfile.SYMTYPE, "/etc"))],
            "a link to 'data_batch_1.bin'": [(FOLDER + "/x", link(tarfile.LNKTYPE, "data_batch_1.bin"))],
            "a device or a pipe": [(FOLDER + "/x", link(tarfile.FIFOTYPE, ""))],
            "one test_batch.bin, got two": [(FOLDER + "/test_batch.bin", b"x")],
        }
        for words, entries in hostile.items():
            for archive in (packed(entries + good), packed(good + entries)):
                with Server(archive) as server:
                    code, _, error = get(server.url, self.folder, md5(archive))
                self.assertEqual(code, INPUT, error)
                self.assertIn(words, error)
                self.assert_no_set()
                self.assertFalse((self.folder.parent / "outside").exists())

    def test_an_archive_of_something_else_is_refused(self):
        for archive, words in [
            (packed([("README", b"x")]), f"expected {FOLDER}/data_batch_1.bin in it, got none"),
            (packed_set(prefix="other/"), f"expected {FOLDER}/data_batch_1.bin in it, got none"),
            (ARCHIVE[: len(ARCHIVE) // 2], "expected a whole .tar.gz"),
            (b"\x1f\x8b" + bytes(3000), "expected a whole .tar.gz"),
        ]:
            with Server(archive) as server:
                code, _, error = get(server.url, self.folder, md5(archive))
            self.assertEqual(code, INPUT, error)
            self.assertIn(words, error)
            self.assert_no_set()

    def test_another_packing_is_good(self):
        archive = packed_set(prefix=f"./{FOLDER}/")
        with Server(archive) as server:
            code, _, error = get(server.url, self.folder, md5(archive))
        self.assertEqual(code, DONE, error)
        self.assert_set()

    def test_a_users_own_files_stay(self):
        (self.folder / FOLDER).mkdir(parents=True)
        (self.folder / FOLDER / "test_batch.bin").write_bytes(b"mine")
        with Server() as server:
            code, _, error = get(server.url, self.folder)
            self.assertEqual((code, server.asked), (INPUT, []), error)
        self.assertIn("got a folder without data_batch_1.bin", error)
        self.assertEqual((self.folder / FOLDER / "test_batch.bin").read_bytes(), b"mine")

    def test_two_at_once_do_not_mix(self):
        with Server(behave=lambda h: stall(h, 3000)) as server:
            words = words_of(server.url, self.folder, timeout=25)
            first = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            while not (self.folder / PART).exists():
                time.sleep(0.02)
            code, _, error = get(server.url, self.folder)
            first.kill()
            first.wait()
        self.assertEqual(code, INPUT, error)
        self.assertIn("another process is writing to", error)

    def test_a_proxy_is_not_asked_for_this_machine(self):
        with Server() as server, Server(behave=lambda h: h.answer(502)) as proxy:
            names = {name: proxy.url for name in "http_proxy https_proxy all_proxy HTTP_PROXY ALL_PROXY".split()}
            for number, more in enumerate(({}, {"no_proxy": "example.org"}, {"no_proxy": "*"})):
                environment = {"env": {**os.environ, **names, **more}}
                code, _, error = get(server.url, self.folder / str(number), more=environment)
                self.assertEqual(code, DONE, error)
            self.assertEqual((proxy.asked, len(server.asked)), ([], 3))

    def test_the_command_line_is_checked(self):
        good = words_of("http://127.0.0.1:9/", self.folder)
        for words, part in [
            (good[:3] + ["mnist"] + good[4:], "mnist"),
            (good[:4] + good[6:], "expected --path"),
            (good[:7] + ["gopher://x"] + good[8:], "expected an address with http://"),
            (good[:-1] + ["xyz"], "expected 32 digits"),
            (good + ["--source", "cifar10"], "--source"),
            (good[:2] + good[4:], "--get"),
            (good[:6] + good[8:], "--url"),
        ]:
            code, _, error = forks.run(words)
            self.assertEqual(code, USAGE, (words, error))
            self.assertIn(part, error)

    def test_a_folder_that_cannot_be_made(self):
        self.folder.write_text("a file")
        code, _, error = get("http://127.0.0.1:9/", self.folder / "sub")
        self.assertEqual(code, INPUT, error)
        self.assertIn("expected a folder to write to", error)


def skip_without_libraries():
    with tempfile.TemporaryDirectory() as folder:
        code, _, error = get("http://127.0.0.1:9/", folder)
        if "built without" not in error:
            return
        assert code == MACHINE and re.search(r"built without libcurl.*Debian: lib.*127.0.0.1", error), error
    print("skipped: " + error.strip())
    sys.exit(77)


if __name__ == "__main__":
    forks = Forks()
    skip_without_libraries()
    unittest.main()

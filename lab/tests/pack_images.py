"""scripts/pack-images, and what `keel data` finds in its files.

  pack_images.py SCRIPT KEEL [unittest's options]
"""

import json
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)
SCRIPT, KEEL = sys.argv.pop(1), sys.argv.pop(1)


class PackImages(unittest.TestCase):
    def setUp(self):
        own = tempfile.TemporaryDirectory()
        self.addCleanup(own.cleanup)
        self.folder, self.file = Path(own.name) / "pets", Path(own.name) / "pets.pack"

    def draw(self, name, colour=(0, 0, 0), size=(4, 4), mode="RGB"):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, colour).save(file)
        return file

    def pack(self, *more):
        words = [sys.executable, SCRIPT, self.folder, self.file, *more]
        return subprocess.run(words, capture_output=True, text=True)

    def tensors(self):
        content = self.file.read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + length])
        about = header.pop("__metadata__")
        data = content[8 + length :]
        return about, {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}

    def test_keel_reads_the_pixels_and_classes(self):
        for part in ("train", "val"):
            self.draw(f"{part}/cat/a.png", (250, 10, 20))
            self.draw(f"{part}/dog/b.png", (30, 40, 50), size=(20, 8))  # its middle is scaled
        Image.effect_noise((64, 64), 50).convert("RGB").save(self.folder / "train/dog/c.jpg")
        self.draw("train/dog/d.png", (9, 9, 9, 0), mode="RGBA")  # on white
        self.draw("train/dog/e.png", 77 * 257, mode="I;16")
        self.assertEqual(self.pack("--size", "4").returncode, 0)
        about, tensors = self.tensors()
        self.assertEqual(json.loads(about["classes"]), ["cat", "dog"])
        self.assertEqual(struct.unpack("<5q", tensors["train.labels"]), (0, 1, 1, 1, 1))
        pixels = tensors["train.pixels"]
        self.assertEqual(len(pixels), 5 * 48)
        for image, colour in ((0, (250, 10, 20)), (1, (30, 40, 50)), (3, (255,) * 3), (4, (77,) * 3)):
            for plane, value in enumerate(colour):
                begin = 48 * image + 16 * plane
                self.assertEqual(pixels[begin : begin + 16], bytes([value] * 16), (image, plane))
        mean = sum(pixels[48 * i + k] for i in range(5) for k in range(16)) / 80 / 255
        self.assertAlmostEqual(json.loads(about["mean"])[0], mean)
        words = [KEEL, "data", "--source", "packed", "--path", self.file, "--size", "0"]
        told = subprocess.run(words, capture_output=True, text=True)
        self.assertIn("pets: 5 training and 2 test images of 4 x 4, 2 classes", told.stdout, told.stderr)

    def test_a_tenth_of_each_class_is_kept_for_testing(self):
        for name in ("cat", "dog"):
            for i in range(20):
                self.draw(f"{name}/{i}.png", (i, i, i))
        self.assertIn("36 images to train on, 4 to test on", self.pack().stdout)
        first = self.tensors()[1]
        self.pack()
        self.assertEqual(self.tensors()[1], first)  # the same each time
        images = [{data[i : i + 1024] for i in range(0, len(data), 3072)}
                  for data in (first["train.pixels"], first["test.pixels"])]
        self.assertEqual(len(images[0] | images[1]), 20)

    def test_errors_name_the_file_and_leave_none(self):
        def refused(*parts):
            told = self.pack()
            self.assertEqual(told.returncode, 1)
            for part in parts:
                self.assertIn(part, told.stderr)
            self.assertFalse(self.file.exists())

        refused("pets")
        self.draw("cat/a.png")
        refused("cat", "at least 2 images")
        broken = self.folder / "cat/b.png"
        Image.effect_noise((64, 64), 50).save(broken)
        broken.write_bytes(broken.read_bytes()[:2000])
        refused("cat/b.png")
        broken.write_text("no image")
        refused("cat/b.png", "cannot identify")
        (self.folder / "dog").mkdir()
        refused("dog", "found none")
        self.folder = self.folder / "cat"
        refused("expected a folder for each class")
        self.folder = self.folder.parent
        for part in ("train/cat", "train/dog", "test/cat"):
            self.draw(f"{part}/a.png")
        refused("test", "expected the classes of")


if __name__ == "__main__":
    unittest.main()

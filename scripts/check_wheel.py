"""Says what is in a wheel, and fails where something of the machine that built it is: absolute search paths, names of
folders, links to libraries that only it has.

    python3 scripts/check_wheel.py dist/keel-0.1.0+torch2.11.cu130-py3-none-linux_x86_64.whl
"""

import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Libraries of every Linux, of torch, and of the packages that torch installs.
KNOWN = re.compile(
    r"lib(keel_core|torch|torch_cpu|torch_cuda|c10|c10_cuda|cudart|cusolver|gomp|stdc\+\+|m|gcc_s|c|pthread|dl|rt)[.-]"
    r"|ld-linux"
)


def dynamic_section(library):
    text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", text)
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", text)
    return needed, [path for entry in paths for path in entry.split(":") if path]


def sizes_by_gpu(content):
    """Bytes of machine code and PTX for each GPU, in the fat binaries of a library."""
    sizes = Counter()
    at = content.find(b"\x50\xed\x55\xba")
    while at >= 0:
        _, header, size = struct.unpack_from("<HHQ", content, at + 4)
        entry, end = at + header, at + header + size
        while entry + 64 <= end:
            kind, _, length, payload = struct.unpack_from("<HHIQ", content, entry)
            (gpu,) = struct.unpack_from("<I", content, entry + 28)
            sizes[f"{'PTX' if kind == 1 else 'GPU'} {gpu // 10}.{gpu % 10}"] += length + payload
            entry += length + payload
        at = content.find(b"\x50\xed\x55\xba", end)
    return sizes


def main():
    wheel = Path(sys.argv[1])
    wrong = []
    # Where it was built.
    places = {str(ROOT), str(Path(os.environ.get("KEEL_BUILD", ROOT)).resolve().parent), str(Path.home())} - {"/"}
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MB")
        for file in sorted(Path(folder).rglob("*")):
            if not file.is_file():
                continue
            content, name = file.read_bytes(), file.relative_to(folder)
            wrong += [f"{name} names {place}" for place in places if place.encode() in content]
            if ".so" not in file.name:
                continue
            needed, paths = dynamic_section(file)
            wrong += [f"{name} looks for libraries in {path}" for path in paths if not path.startswith("$ORIGIN")]
            wrong += [f"{name} needs {library}" for library in needed if not KNOWN.match(library)]
            print(f"  {name}: {len(content) / 2**20:.1f} MB")
            for what, size in sorted(sizes_by_gpu(content).items()):
                print(f"    {what}: {size / 2**20:.2f} MB")
    for what in wrong:
        print(f"check_wheel: {what}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

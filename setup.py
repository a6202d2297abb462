"""Builds the C++ libraries with CMake, against the torch of this interpreter, and packs them into
keel/lib. KEEL_BUILD names a build folder to take them from instead of building. With a CUDA torch and nvcc
at hand the CUDA kernels are built too; KEEL_CUDA=ON or OFF in the environment decides otherwise.

    pip install --no-build-isolation .
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
VERSION = re.search(
    r'#define KEEL_VERSION "(.+)"', (ROOT / "include/keel/version.h").read_text()
).group(1)


def cmake(*arguments):
    print("cmake", *arguments, flush=True)
    subprocess.run(["cmake", *map(str, arguments)], check=True)


def torch_arguments():
    """This interpreter's own LibTorch where its torch brings one; else CMake finds the system's."""
    import torch

    config = Path(torch.utils.cmake_prefix_path) / "Torch"
    return [f"-DTorch_DIR={config}"] if (config / "TorchConfig.cmake").is_file() else []


def cuda_arguments():
    import torch

    compiler = shutil.which("nvcc") or Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/nvcc")
    there = torch.version.cuda is not None and Path(compiler).is_file()
    wanted = os.environ.get("KEEL_CUDA", "ON" if there else "OFF")
    compiler = [f"-DCMAKE_CUDA_COMPILER={compiler}"] if there and "CUDACXX" not in os.environ else []
    return [f"-DKEEL_CUDA={wanted}", *compiler]


class CMakeBuild(build_ext):
    def run(self):
        build = os.environ.get("KEEL_BUILD")
        if build is None:
            build = Path(self.build_temp).resolve() / "cmake"
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            parts = [f"-DKEEL_{part}=OFF" for part in ("TESTS", "BENCH", "EXAMPLES", "LAB")]
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            os.environ["PATH"] = path  # so that CMake's python3 is this one
            cmake("-S", ROOT, "-B", build, *generator, "-DCMAKE_BUILD_TYPE=Release",
                  *parts, *torch_arguments(), *cuda_arguments())  # fmt: skip
            cmake("--build", build, "--target", "keel_torch", "--parallel")
        self._pack(Path(build).resolve())

    def _pack(self, build):
        """Installs to a folder apart, which sets the libraries' search path, and copies those.
        Wheels hold no links: each library once, under the name that it is loaded by."""
        stage = Path(self.build_temp).resolve() / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        for component in ("core", "torch"):
            cmake("--install", build, "--prefix", stage, "--component", component)
        root = ROOT / "python" if self.inplace else Path(self.build_lib)
        target = root / "keel" / "lib"
        target.mkdir(parents=True, exist_ok=True)
        for library in stage.rglob("libkeel_*.so.*.*.*"):
            name = library.name
            if name.startswith("libkeel_core"):  # the soname that libkeel_torch asks for
                name = re.sub(r"(\.so\.\d+\.\d+)\..*", r"\1", name)
            else:
                name = re.sub(r"(\.so)\..*", r"\1", name)
            shutil.copy(library, target / name)

    def get_source_files(self):
        return []


class Built(Extension):
    """Stands for the libraries: makes the wheel one for this platform."""

    def __init__(self):
        super().__init__("keel.lib", sources=[])


setup(
    version=VERSION,
    ext_modules=[Built()],
    cmdclass={"build_ext": CMakeBuild},
    options={"build": {"build_base": "build/python"}},  # build/ itself is CMake's
)

"""Builds the C++ libraries with CMake, against the torch of this interpreter, and packs them into
keel/lib. Nothing else of this machine gets into the package: libraries find each other and torch's by relative
paths. `make wheel` and `make install` call this.

In the environment:
    KEEL_BUILD   a build folder to take the libraries from instead of building
    KEEL_CUDA    ON or OFF: with or without the CUDA kernels; unless told, with them where torch has CUDA and nvcc
                 is there
    KEEL_HOME    the address of the repository, for the wheel's links and those of its README, such as https://host/name
    CUDAARCHS    for which GPUs; unless told, for those of this machine, and for make wheel WHEEL_GPUS below
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from wheel.bdist_wheel import bdist_wheel
except ImportError:
    from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
HOME = os.environ.get("KEEL_HOME", "").rstrip("/")
VERSION = re.search(
    r'#define KEEL_VERSION "(.+)"', (ROOT / "include/keel/version.h").read_text()
).group(1)

# Machine code for A100, H100 and H200, B200, RTX 50; the last as PTX too, for what comes after.
WHEEL_GPUS = "80-real;90-real;100-real;120"

# Where pip puts what torch brings, from keel/lib. torch has loaded most of it before.
BESIDE = ["torch/lib"] + [
    f"nvidia/{part}/lib"
    for part in ("cu13", "cuda_runtime", "cusolver", "cublas", "cusparse", "nvjitlink")
]
RPATH = ":".join(["$ORIGIN", *[f"$ORIGIN/../../{folder}" for folder in BESIDE]])


def torch_version():
    """(major, minor), and CUDA's version or None."""
    import torch

    major, minor = re.match(r"(\d+)\.(\d+)", torch.__version__).groups()
    return int(major), int(minor), torch.version.cuda


def requirement():
    """LibTorch's C++ interface holds for one minor version."""
    major, minor, _ = torch_version()
    return f"torch>={major}.{minor}.0a0,<{major}.{minor + 1}.0a0"


def label(cuda):
    major, minor, _ = torch_version()
    return f"torch{major}.{minor}." + (f"cu{cuda.replace('.', '')}" if cuda else "cpu")


def cmake(*arguments):
    print("cmake", *arguments, flush=True)
    subprocess.run(["cmake", *map(str, arguments)], check=True)


def torch_arguments():
    """This interpreter's own LibTorch where its torch brings one; else CMake finds the system's."""
    import torch

    config = Path(torch.utils.cmake_prefix_path) / "Torch"
    return [f"-DTorch_DIR={config}"] if (config / "TorchConfig.cmake").is_file() else []


def with_cuda():
    """Whether the CUDA kernels are built, and nvcc's path where it is known."""
    import torch

    compiler = Path(shutil.which("nvcc") or Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/nvcc"))
    there = torch.version.cuda is not None and compiler.is_file()
    wanted = os.environ.get("KEEL_CUDA", "ON" if there else "OFF")
    return wanted.upper() in ("ON", "1", "TRUE", "YES"), compiler if there else None


def cuda_arguments():
    wanted, compiler = with_cuda()
    arguments = [f"-DKEEL_CUDA={'ON' if wanted else 'OFF'}"]
    if compiler is not None and "CUDACXX" not in os.environ:
        arguments.append(f"-DCMAKE_CUDA_COMPILER={compiler}")
    if wanted and "KEEL_WHEEL" in os.environ:
        gpus = os.environ.get("CUDAARCHS", WHEEL_GPUS)
        arguments += [f"-DCMAKE_CUDA_ARCHITECTURES={gpus}", "-DCMAKE_CUDA_FLAGS=--compress-mode=size"]
        # LibTorch's CMake files want to hear it their own way.
        numbers = re.findall(r"(\d+)(\d)\b", gpus)
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", " ".join(f"{a}.{b}" for a, b in numbers))
    return arguments


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
                  f"-DKEEL_INSTALL_RPATH={RPATH}", *parts, *torch_arguments(), *cuda_arguments())  # fmt: skip
            cmake("--build", build, "--target", "keel_torch", "--parallel")
        self._pack(Path(build).resolve())

    def _pack(self, build):
        """Installs to a folder apart, which sets the libraries' search path, and copies those.
        Wheels hold no links: each library once, under the name that it is loaded by."""
        stage = Path(self.build_temp).resolve() / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        for component in ("core", "torch"):
            cmake("--install", build, "--prefix", stage, "--component", component, "--strip")
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
        major, minor, cuda = torch_version()
        (target / "built_for").write_text(f"{major}.{minor}\n{cuda if with_cuda()[0] else 'cpu'}\n")

    def get_source_files(self):
        return []


def description():
    """The README, whose links must work away from the repository. Without an address they are left out."""
    text = (ROOT / "README.md").read_text()
    if not HOME:
        text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", text)
        return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{HOME}/raw/v{VERSION}/", text)
    return re.sub(r"(?<!!)(\[[^\]]*\]\()(?!https?:)", rf"\g<1>{HOME}/blob/v{VERSION}/", text)


class Linked(Distribution):
    """With links to the repository beside those of pyproject.toml."""

    def parse_config_files(self, *arguments, **options):
        super().parse_config_files(*arguments, **options)
        if HOME:
            self.metadata.project_urls.update(
                Source=HOME, Documentation=f"{HOME}/blob/v{VERSION}/docs/README.md",
                Changelog=f"{HOME}/blob/v{VERSION}/CHANGELOG.md", Issues=f"{HOME}/issues")  # fmt: skip


class AnyPython(bdist_wheel):
    """The libraries use nothing of Python's: one wheel for every version of it. It needs this machine's glibc or a
    newer one, which is what a manylinux tag says."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
        return "py3", "none", super().get_tag()[2].replace("linux_", f"manylinux_{glibc}_", 1)


class Built(Extension):
    """Stands for the libraries: makes the wheel one for this platform."""

    def __init__(self):
        super().__init__("keel.lib", sources=[])


setup(
    version=f"{VERSION}+{label(torch_version()[2] if with_cuda()[0] else None)}",
    install_requires=[requirement()],
    long_description=description(),
    long_description_content_type="text/markdown",
    ext_modules=[Built()],
    distclass=Linked,
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": AnyPython},
    options={"build": {"build_base": "build/python"}},  # build/ itself is CMake's
)

# Names for files that record runs on a GPU. To be sourced by other scripts.

gpu_name() { nvidia-smi --query-gpu=name --format=csv,noheader | head -1; }

gpu_slug() { gpu_name | tr '[:upper:]' '[:lower:]' | sed 's/^nvidia //; s/[^a-z0-9]\+/-/g'; }

libtorch_version() {  # libtorch_version <build folder>
  sed -n 's/^set(PACKAGE_VERSION "\([0-9.]*\).*/\1/p' \
    "$(sed -n 's/^Torch_DIR:PATH=//p' "$1/CMakeCache.txt")/TorchConfigVersion.cmake"
}

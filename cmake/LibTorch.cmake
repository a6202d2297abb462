# Finds LibTorch and provides the imported target `torch`. In order:
#   1. Torch_DIR or CMAKE_PREFIX_PATH, if the user gave one;
#   2. the torch that python3 on the PATH imports;
#   3. whatever find_package finds by itself (Debian's libtorch-dev).
# The search runs again at every configuration, so a build folder follows when another LibTorch
# appears or the old one goes. Sets KEEL_TORCH_PYTHON to an interpreter whose torch is this very
# LibTorch, or to nothing. Include at file scope: LibTorch with CUDA enables a language.

set(keel_torch_why_not "")

# A LibTorch that would stop TorchConfig.cmake, or the linker, is refused here with a reason.
function(keel_torch_refusal config_dir result)
  set(reason "")
  file(STRINGS ${config_dir}/TorchConfig.cmake old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
  if(old_abi)
    set(reason "is built for libstdc++'s old ABI (PyTorch's wheels from 2.7 on are not)")
  endif()
  if(EXISTS ${config_dir}/../../../lib/libtorch_cuda.so)
    set(named "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}")
    list(TRANSFORM named REPLACE "/[^/]*$" "")
    find_program(KEEL_NVCC nvcc HINTS ${named}
                 PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin DOC "CUDA compiler")
    mark_as_advanced(KEEL_NVCC)
    if(NOT KEEL_NVCC)
      set(reason "has CUDA in it and its CMake files want nvcc, which is not here")
    endif()
  endif()
  set(${result} "${reason}" PARENT_SCOPE)
endfunction()

# What an earlier configuration chose by itself is no wish of the user's: choose again.
if(Torch_DIR AND NOT EXISTS ${Torch_DIR}/TorchConfig.cmake)
  message(STATUS "keel: no LibTorch (any more) in ${Torch_DIR}, looking for another")
  unset(Torch_DIR CACHE)
elseif(Torch_DIR AND Torch_DIR STREQUAL "${KEEL_TORCH_CHOSEN}")
  unset(Torch_DIR CACHE)
endif()

set(keel_torch_dir "")
set(keel_torch_automatic OFF)
if(Torch_DIR)
  set(keel_torch_dir ${Torch_DIR})
else()
  cmake_path(CONVERT "$ENV{CMAKE_PREFIX_PATH}" TO_CMAKE_PATH_LIST keel_environment_prefixes)
  unset(keel_torch_given)
  find_path(keel_torch_given TorchConfig.cmake
    PATHS ${Torch_ROOT} $ENV{Torch_ROOT} ${CMAKE_PREFIX_PATH} ${keel_environment_prefixes}
    PATH_SUFFIXES share/cmake/Torch lib/cmake/Torch Torch NO_DEFAULT_PATH NO_CACHE)
  if(keel_torch_given)
    string(REGEX REPLACE "/$" "" keel_torch_dir ${keel_torch_given})
  endif()
endif()
if(keel_torch_dir)
  keel_torch_refusal(${keel_torch_dir} keel_torch_reason)
  if(keel_torch_reason)
    message(FATAL_ERROR "keel: LibTorch in ${keel_torch_dir} ${keel_torch_reason}")
  endif()
endif()

if(NOT keel_torch_dir)
  set(keel_torch_automatic ON)
  find_program(keel_python NAMES python3 NO_CACHE)
  if(keel_python)
    # find_spec tells where torch is without the seconds that importing it takes.
    execute_process(
      COMMAND ${keel_python} -c
        "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.join(s.submodule_search_locations[0], 'share', 'cmake', 'Torch') if s and s.submodule_search_locations else '')"
      WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
      OUTPUT_VARIABLE keel_python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(keel_python_torch AND EXISTS ${keel_python_torch}/TorchConfig.cmake)
      keel_torch_refusal(${keel_python_torch} keel_torch_reason)
      if(keel_torch_reason)
        set(keel_torch_why_not "\n  The torch of ${keel_python} ${keel_torch_reason}.")
        message(STATUS "keel: the torch of ${keel_python} ${keel_torch_reason}: not used")
      else()
        set(keel_torch_dir ${keel_python_torch})
      endif()
    endif()
  endif()
endif()

# What TorchConfig.cmake caches about one LibTorch must not leak into the use of another.
if(NOT keel_torch_dir STREQUAL "${KEEL_TORCH_LAST}")
  foreach(variable Torch_DIR Caffe2_DIR ATen_DIR TORCH_LIBRARY c10_LIBRARY C10_LIBRARY
                   C10_CUDA_LIBRARY kineto_LIBRARY CAFFE2_NVRTC_LIBRARY LIBNVTOOLSEXT
                   # What keel itself found in it or beside it.
                   KEEL_C10D_INCLUDE KEEL_LAB_GLOO_INCLUDE KEEL_GLOO_INCLUDE
                   KEEL_LAB_GLOO KEEL_NCCL_INCLUDE KEEL_NCCL_LIBRARY)
    unset(${variable} CACHE)
  endforeach()
endif()
if(keel_torch_dir)
  set(Torch_DIR ${keel_torch_dir} CACHE PATH "Folder of TorchConfig.cmake" FORCE)
endif()

# TorchConfig.cmake warns of a static kineto that no shared LibTorch has, and tells of every
# library it finds: one line from us says more.
set(keel_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
if(NOT CMAKE_MESSAGE_LOG_LEVEL)
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
endif()
# Left alone, it looks for a GPU to choose architectures by. They are chosen already.
if(CMAKE_CUDA_ARCHITECTURES MATCHES "^[0-9;]+$" AND NOT DEFINED TORCH_CUDA_ARCH_LIST
   AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^(.*)(.)$" "\\1.\\2"
    OUTPUT_VARIABLE TORCH_CUDA_ARCH_LIST)
endif()
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Torch 1.13 CONFIG QUIET)
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
set(CMAKE_MESSAGE_LOG_LEVEL "${keel_log_level}")

if(NOT Torch_FOUND)
  message(FATAL_ERROR "keel: no LibTorch 1.13 or newer found.${keel_torch_why_not}\n"
    "  Run `make setup`, or point to one with -DCMAKE_PREFIX_PATH=<libtorch>,\n"
    "  or build the core alone with -DKEEL_TORCH=OFF.")
endif()
set(KEEL_TORCH_LAST "${Torch_DIR}" CACHE INTERNAL "LibTorch of the last configuration")
set(KEEL_TORCH_CHOSEN "" CACHE INTERNAL "The same, if nobody asked for it")
if(keel_torch_automatic)
  set(KEEL_TORCH_CHOSEN "${Torch_DIR}" CACHE INTERNAL "The same, if nobody asked for it")
endif()
message(STATUS "keel: LibTorch ${Torch_VERSION} from ${Torch_DIR}")

# CUDA tensors need both: the core's CUDA twins, and a LibTorch that can make such tensors.
set(KEEL_TORCH_CUDA OFF CACHE INTERNAL "Whether the LibTorch adapter has CUDA kernels")
if(KEEL_CUDA AND TARGET torch_cuda)
  set(KEEL_TORCH_CUDA ON CACHE INTERNAL "Whether the LibTorch adapter has CUDA kernels")
elseif(KEEL_CUDA)
  message(STATUS "keel: this LibTorch has no CUDA, so the CUDA twins serve the core alone")
endif()

# Python tests load keel into a torch: it must be the one keel is linked to, file for file.
get_target_property(keel_torch_library torch LOCATION)
cmake_path(GET keel_torch_library PARENT_PATH keel_torch_libraries)
file(REAL_PATH ${keel_torch_libraries}/libtorch_cpu.so keel_torch_cpu)
set(KEEL_TORCH_PYTHON "" CACHE INTERNAL "Interpreter whose torch is this LibTorch")
foreach(python python3 /usr/bin/python3)
  execute_process(
    COMMAND ${python} -c
      "import os, sys, torch; loaded = {os.path.realpath(l.split()[-1]) for l in open('/proc/self/maps') if 'libtorch_cpu' in l}; print(sys.executable if loaded == {'${keel_torch_cpu}'} else '')"
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
    OUTPUT_VARIABLE keel_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(keel_python)
    set(KEEL_TORCH_PYTHON "${keel_python}" CACHE INTERNAL "Interpreter whose torch is this LibTorch")
    break()
  endif()
endforeach()

# CMAKE_CUDA_ARCHITECTURES where nobody chose: those of this machine's GPUs, or what keel is measured on where
# there is none.
set(CMAKE_CUDA_ARCHITECTURES 90)
find_program(KEEL_NVIDIA_SMI nvidia-smi)
mark_as_advanced(KEEL_NVIDIA_SMI)
if(KEEL_NVIDIA_SMI)
  execute_process(COMMAND ${KEEL_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE keel_gpus ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+[.][0-9]" keel_gpus "${keel_gpus}")
  list(REMOVE_DUPLICATES keel_gpus)
  set(keel_old_gpus ${keel_gpus})
  list(FILTER keel_old_gpus INCLUDE REGEX "^[0-7][.]")
  if(keel_old_gpus)
    message(FATAL_ERROR "keel: a GPU here has compute capability ${keel_old_gpus}; the kernels take 8.0 or later.\n"
      "  Configure with -DKEEL_CUDA=OFF (pip: KEEL_CUDA=OFF in the environment), or with -DCMAKE_CUDA_ARCHITECTURES=<80 or later> for other GPUs.")
  endif()
  if(keel_gpus)
    string(REPLACE "." "" CMAKE_CUDA_ARCHITECTURES "${keel_gpus}")
  endif()
endif()

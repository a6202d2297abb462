# Most of what it takes to compile a file here is LibTorch's headers: 16 s read, 4 s precompiled, for a file of ten
# lines. So everything above this floor (lab, command line, tests) shares one precompiled header, and files are compiled
# sixteen at a time. A compiler takes a precompiled header only under the options it was made with: all of it has -O1 and
# -fPIC, programs too. The work is done below, in the core and in LibTorch.
# Not all of <torch/torch.h>: what its inline functions use of templates, gcc instantiates again in every file.
add_library(keel_torch_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/empty.cpp)
target_link_libraries(keel_torch_headers PRIVATE torch)
target_precompile_headers(keel_torch_headers PRIVATE
  <torch/autograd.h> <torch/cuda.h> <torch/types.h> <torch/nn/modules/batchnorm.h> <torch/nn/modules/conv.h>
  <torch/nn/modules/linear.h> <torch/nn/modules/container/sequential.h>)
target_compile_options(keel_torch_headers PRIVATE -O1)
set_target_properties(keel_torch_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The empty file is there for CMake's sake. Read as C++ it would have the header, four seconds for nothing.
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/empty.cpp PROPERTIES COMPILE_OPTIONS -xassembler)
endif()
function(keel_use_torch_headers target)
  target_precompile_headers(${target} REUSE_FROM keel_torch_headers)
  target_compile_options(${target} PRIVATE -O1 -fPIC)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF UNITY_BUILD ${KEEL_UNITY} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

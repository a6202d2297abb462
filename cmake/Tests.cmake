find_package(GTest REQUIRED)
include(GoogleTest)

# keel_add_test(<name> <source>... [SHARDS <count>] [LIBRARIES <library>...] [LABEL <label>]
#               [SHARED_MEMORY_KB <limit>...]): one GoogleTest program.
# ctest knows its tests one by one, and once more for each limit of shared memory; but where it links LibTorch and needs
# no GPU it is one entry, or SHARDS of them, since a process each would load LibTorch for each, 0.4 s. ctest starts with
# those of the largest COST, about their seconds: a long one that is the last to start would be waited for.
# Labelled `torch` where it links keel::torch, otherwise `core`: the sanitizer build runs the core ones.
function(keel_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;SHARDS" "LIBRARIES;SHARED_MEMORY_KB")
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gtest_main)
  # The linker would look for everything that LibTorch needs, in all libraries LibTorch stands on: most of a second. The
  # programs that are no tests are linked with that check.
  target_link_options(${name} PRIVATE LINKER:--allow-shlib-undefined)
  set(label core)
  if("keel::torch" IN_LIST arg_LIBRARIES OR "keel_torch" IN_LIST arg_LIBRARIES)
    set(label torch)
  endif()
  if(arg_LABEL)
    set(label ${arg_LABEL})
  endif()
  if(arg_SHARDS)
    foreach(shard RANGE 1 ${arg_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard}_of_${arg_SHARDS} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}.${shard}_of_${arg_SHARDS} PROPERTIES LABELS ${label} TIMEOUT 900 COST 20
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
    return()
  endif()
  if(NOT label STREQUAL "gpu" AND ("keel::torch" IN_LIST arg_LIBRARIES OR "keel::lab" IN_LIST arg_LIBRARIES))
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 900 COST 10)
    return()
  endif()
  # Found when ctest runs, not when the program is linked: a program that cannot start fails the
  # test run, not the build.
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${label} TIMEOUT 900)
  foreach(limit IN LISTS arg_SHARED_MEMORY_KB)
    gtest_discover_tests(${name} TEST_PREFIX ${name}.${limit}KB. TEST_LIST ${name}_${limit}KB
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      PROPERTIES LABELS ${label} TIMEOUT 900 ENVIRONMENT KEEL_SHARED_MEMORY_KB=${limit})
  endforeach()
endfunction()

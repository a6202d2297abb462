# Installs the library of this build to a fresh prefix, and checks the lab against it: what it needs that is not installed
# ends here. The lab is a copy with the build files alone beside it, so that it finds nothing else in the source tree. The
# compiler checks the program's commands, which use nearly all of the lab's headers. Of the other files, which would take a
# minute, every header must be there. Making code of it a second time would show little more.
file(REMOVE_RECURSE ${work})
file(COPY ${source} ${source}/../cmake DESTINATION ${work})
foreach(command IN ITEMS
    "${CMAKE_COMMAND};--install;${build};--prefix;${work}/prefix"
    "${CMAKE_COMMAND};-S;${work}/lab;-B;${work}/build;-G;${generator};-DCMAKE_PREFIX_PATH=${work}/prefix$<SEMICOLON>${prefixes};\
-DKEEL_TESTS=OFF;-DCMAKE_BUILD_TYPE=Check;-DCMAKE_CXX_FLAGS_CHECK=-fsyntax-only;-DCMAKE_AR=/bin/true;-DCMAKE_RANLIB=/bin/true"
    "${CMAKE_COMMAND};--build;${work}/build;--target;keel_commands")
  string(REPLACE "$<SEMICOLON>" "\\;" command "${command}")
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endforeach()
file(GLOB_RECURSE files ${work}/lab/*.cpp ${work}/lab/*.h ${work}/lab/*.cu ${work}/lab/*.cuh)
list(FILTER files EXCLUDE REGEX "/lab/tests/")
foreach(file IN LISTS files)
  file(STRINGS ${file} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" header "${line}")
    if(NOT EXISTS ${work}/${header} AND NOT EXISTS ${work}/prefix/include/${header} AND NOT header STREQUAL "front_texts.inc")
      message(FATAL_ERROR "${file} includes ${header}, which is not installed")
    endif()
  endforeach()
endforeach()

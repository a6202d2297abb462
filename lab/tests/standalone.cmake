# Installs the library of this build to a fresh prefix, and has the compiler check every file of the lab and of its program
# against it: whatever they need that is not installed ends here. The lab is a copy with the build files alone beside it,
# so that it finds nothing else in the source tree. Making code of it a second time would show little more.
file(REMOVE_RECURSE ${work})
file(COPY ${source} ${source}/../cmake DESTINATION ${work})
foreach(command IN ITEMS
    "${CMAKE_COMMAND};--install;${build};--prefix;${work}/prefix"
    "${CMAKE_COMMAND};-S;${work}/lab;-B;${work}/build;-G;${generator};-DCMAKE_PREFIX_PATH=${work}/prefix$<SEMICOLON>${prefixes};\
-DKEEL_TESTS=OFF;-DCMAKE_BUILD_TYPE=Check;-DCMAKE_CXX_FLAGS_CHECK=-fsyntax-only;-DCMAKE_AR=/bin/true;-DCMAKE_RANLIB=/bin/true"
    "${CMAKE_COMMAND};--build;${work}/build;--target;keel_lab;keel_commands")
  string(REPLACE "$<SEMICOLON>" "\\;" command "${command}")
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endforeach()

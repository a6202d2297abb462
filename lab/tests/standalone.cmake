# Installs the library of this build to a fresh prefix and configures the lab against it: whatever the lab needs that is
# not installed ends here. Compiling it a second time would take minutes and show little more.
file(REMOVE_RECURSE ${work})
foreach(command IN ITEMS
    "${CMAKE_COMMAND};--install;${build};--prefix;${work}/prefix"
    "${CMAKE_COMMAND};-S;${source};-B;${work}/build;-G;${generator};-DCMAKE_PREFIX_PATH=${work}/prefix$<SEMICOLON>${prefixes}")
  string(REPLACE "$<SEMICOLON>" "\\;" command "${command}")
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
endforeach()

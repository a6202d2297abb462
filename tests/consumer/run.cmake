# See CMakeLists.txt. Every step's output is shown when it fails.
function(step what expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(expected STREQUAL "success")
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "consumer: ${what} failed (${status})\n${output}")
    endif()
  elseif(status EQUAL 0)
    message(FATAL_ERROR "consumer: ${what} should have failed and did not\n${output}")
  else()
    # CMake wraps its messages; compare without the line breaks.
    string(REGEX REPLACE "[ \n]+" " " output "${output}")
    if(NOT output MATCHES "${expected}")
      message(FATAL_ERROR "consumer: ${what}: expected '${expected}' in\n${output}")
    endif()
  endif()
endfunction()

file(REMOVE_RECURSE ${work})
step("install" success ${CMAKE_COMMAND} --install ${build} --config ${config} --prefix ${work}/first)
# A package that still works from another place holds no path of the build.
file(RENAME ${work}/first ${work}/prefix)

set(configure ${CMAKE_COMMAND} -G ${generator} -S ${source} -D CMAKE_BUILD_TYPE=${config}
    -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher}
    -D keel_DIR=${work}/prefix/${libdir}/cmake/keel)
if(sanitize)
  list(APPEND configure -D CMAKE_CXX_FLAGS=-fsanitize=${sanitize})
endif()

step("configuring for core, with no LibTorch to be found" success ${configure} -B ${work}/core
     -D components=core -D wanted=${version} -D CMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
step("building for core" success ${CMAKE_COMMAND} --build ${work}/core)
step("running against core" success ${work}/core/consumer_core)

# By the Common Package Specification. An older CMake can at least tell whether the files say what is there.
function(consume_cps component)
  file(READ ${work}/prefix/${libdir}/cps/keel-${component}.cps text)
  string(JSON library GET "${text}" components ${component} location)
  string(JSON written GET "${text}" version)
  string(REPLACE "@prefix@" ${work}/prefix library ${library})
  if(NOT EXISTS ${library} OR NOT written STREQUAL version)
    message(FATAL_ERROR "consumer: keel-${component}.cps says version ${written}, library ${library}")
  endif()
  if(CMAKE_VERSION VERSION_GREATER_EQUAL 4.3)
    step("configuring for ${component} by CPS" success ${configure} -B ${work}/cps_${component} -D cps=ON
         -D components=${component} -D wanted=${version} -D CMAKE_PREFIX_PATH=${work}/prefix)
    step("building for ${component} by CPS" success ${CMAKE_COMMAND} --build ${work}/cps_${component})
    step("running against ${component} by CPS" success ${work}/cps_${component}/consumer_${component})
  endif()
endfunction()
consume_cps(core)

step("asking for an unknown component" "no component 'paint'" ${configure} -B ${work}/unknown
     -D components=core,paint -D wanted=${version})
step("asking for another minor version" "version" ${configure} -B ${work}/version
     -D components=core -D wanted=0.999.0)

if(with_torch)
  step("configuring for torch" success ${configure} -B ${work}/torch -D components=torch
       -D wanted=${version})
  step("building for torch" success ${CMAKE_COMMAND} --build ${work}/torch)
  step("running against torch" success ${work}/torch/consumer_torch)
  consume_cps(torch)
else()
  step("asking for torch where there is none" "built without LibTorch" ${configure}
       -B ${work}/torch -D components=torch -D wanted=${version})
endif()

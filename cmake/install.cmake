# `cmake --install` gives a relocatable package: find_package(keel COMPONENTS core torch).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(keel_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/keel)
set(keel_components core)
if(KEEL_TORCH)
  list(APPEND keel_components torch)
endif()

# One export set a component: asking for core alone never looks for LibTorch.
set(KEEL_INSTALL_RPATH "" CACHE STRING
  "Where installed libraries look for others, relative to $ORIGIN (empty: beside them, and where this build found LibTorch)")
foreach(component IN LISTS keel_components)
  if(KEEL_INSTALL_RPATH)
    set_target_properties(keel_${component} PROPERTIES
      INSTALL_RPATH "${KEEL_INSTALL_RPATH}" INSTALL_RPATH_USE_LINK_PATH OFF)
  else()
    # LibTorch from a wheel is in no folder the loader searches, so its path stays in the RPATH.
    set_target_properties(keel_${component} PROPERTIES
      INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  install(TARGETS keel_${component} EXPORT keel_${component}_targets COMPONENT ${component}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT keel_${component}_targets FILE keel_${component}_targets.cmake NAMESPACE keel::
    DESTINATION ${keel_package_dir} COMPONENT ${component})
endforeach()

install(DIRECTORY include/keel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT core
  FILES_MATCHING PATTERN "*.h")
if(KEEL_TORCH)
  install(DIRECTORY libtorch/include/keel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT torch
    FILES_MATCHING PATTERN "*.h")
  # The adapter is bound to the LibTorch it was built with; the package says which.
  get_property(keel_torch_dir CACHE Torch_DIR PROPERTY VALUE)
  file(STRINGS ${keel_torch_dir}/TorchConfigVersion.cmake keel_torch_version
    REGEX "set\\(PACKAGE_VERSION " LIMIT_COUNT 1)
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" keel_torch_version "${keel_torch_version}")
endif()

configure_package_config_file(cmake/keelConfig.cmake.in ${CMAKE_BINARY_DIR}/keelConfig.cmake
  INSTALL_DESTINATION ${keel_package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may break callers.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/keelConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH keel_pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" keel_pc_to_prefix ${keel_pc_to_prefix})
configure_file(cmake/keel-core.pc.in ${CMAKE_BINARY_DIR}/keel-core.pc @ONLY)
# The Common Package Specification's files have pkg-config's names. CMake would take one called keel for the package above,
# and from 4.3 on it prefers it.
set(keel_cps_prefix "@prefix@")
configure_file(cmake/keel-core.cps.in ${CMAKE_BINARY_DIR}/keel-core.cps @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/keel-core.cps DESTINATION ${CMAKE_INSTALL_LIBDIR}/cps COMPONENT core)
if(KEEL_TORCH)
  # LibTorch brings no such file of its own: where this build found it is where its users find it.
  set(keel_pc_torch_cflags "-D_GLIBCXX_USE_CXX11_ABI=1")
  get_target_property(keel_torch_includes torch INTERFACE_INCLUDE_DIRECTORIES)
  get_target_property(keel_torch_libraries torch LOCATION)
  cmake_path(GET keel_torch_libraries PARENT_PATH keel_torch_libraries)
  foreach(folder IN LISTS keel_torch_includes)
    cmake_path(NORMAL_PATH folder)
    if(NOT folder MATCHES "^/usr/include/?$")
      string(APPEND keel_pc_torch_cflags " -isystem ${folder}")
      string(APPEND keel_cps_torch_includes ", \"${folder}\"")
    endif()
  endforeach()
  set(keel_torch_names torch torch_cpu c10)
  list(TRANSFORM keel_torch_names PREPEND "-l" OUTPUT_VARIABLE keel_pc_torch_libs)
  list(JOIN keel_pc_torch_libs " " keel_pc_torch_libs)
  if(NOT keel_torch_libraries IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    string(PREPEND keel_pc_torch_libs "-L${keel_torch_libraries} -Wl,-rpath,${keel_torch_libraries} ")
  endif()
  list(TRANSFORM keel_torch_names REPLACE "(.+)" "\"${keel_torch_libraries}/lib\\1.so\"" OUTPUT_VARIABLE keel_cps_torch_libraries)
  list(JOIN keel_cps_torch_libraries ", " keel_cps_torch_libraries)
  configure_file(cmake/keel-torch.cps.in ${CMAKE_BINARY_DIR}/keel-torch.cps @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/keel-torch.cps DESTINATION ${CMAKE_INSTALL_LIBDIR}/cps COMPONENT torch)
  configure_file(cmake/keel-torch.pc.in ${CMAKE_BINARY_DIR}/keel-torch.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/keel-torch.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT torch)
endif()
install(FILES ${CMAKE_BINARY_DIR}/keelConfig.cmake ${CMAKE_BINARY_DIR}/keelConfigVersion.cmake
  DESTINATION ${keel_package_dir} COMPONENT core)
install(FILES ${CMAKE_BINARY_DIR}/keel-core.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT core)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT core)

# The telemetry library for other programs:
#   cmake --install build/release --component tuft-telemetry --prefix /usr/local
#   find_package(tuft-telemetry CONFIG REQUIRED)  ->  target tuft::telemetry, #include "tuft/telemetry/trace.h"
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Headers include each other as "module/file.h", which also works outside with include/tuft in the include path. These
# headers include those of base.
set(_headers
  base/check.h base/clock.h base/error.h base/result.h
  telemetry/attribute.h telemetry/context.h telemetry/exposition.h telemetry/hardware_monitor.h
  telemetry/instrument.h telemetry/log.h telemetry/request_trace.h telemetry/telemetry.h telemetry/trace.h
  telemetry/traced.h)
foreach(_header IN LISTS _headers)
  cmake_path(GET _header PARENT_PATH _folder)
  install(FILES ${PROJECT_SOURCE_DIR}/src/${_header} COMPONENT tuft-telemetry
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tuft/${_folder})
endforeach()

foreach(_module base telemetry)
  set_target_properties(tuft_${_module} PROPERTIES EXPORT_NAME ${_module})
  target_compile_features(tuft_${_module} PUBLIC cxx_std_20)
endforeach()
add_library(tuft::telemetry ALIAS tuft_telemetry)
install(TARGETS tuft_base tuft_telemetry EXPORT tuft-telemetry
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tuft-telemetry
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${CMAKE_INSTALL_INCLUDEDIR}/tuft)

set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/tuft-telemetry)
install(EXPORT tuft-telemetry FILE tuft-telemetry-targets.cmake NAMESPACE tuft:: DESTINATION ${_package}
  COMPONENT tuft-telemetry)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tuft-telemetry-config.cmake.in
  ${PROJECT_BINARY_DIR}/tuft-telemetry-config.cmake INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tuft-telemetry-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tuft-telemetry-config.cmake
  ${PROJECT_BINARY_DIR}/tuft-telemetry-config-version.cmake DESTINATION ${_package} COMPONENT tuft-telemetry)

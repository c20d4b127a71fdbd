# tuft_module(NAME path SOURCES ... [ALONE ...] [LIBS ...] [TESTS ...] [TEST_LIBS ...])
# One call per module: a static library tuft_<path with _>, linked against exactly the modules that
# cmake/layers.txt allows, and one GoogleTest binary out of TESTS.
# Every module must have a source file; there are no header-only modules.
# With TUFT_UNITY, the sources of a module, and its tests, are compiled in groups, because they include the same headers (ADR 0024).
# Sources of ALONE are not: they include what cannot stand beside the headers of the others.

file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/layers.txt _layer_lines REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/layers.txt)
foreach(_line IN LISTS _layer_lines)
  if(_line MATCHES "^(third|room) ")
    continue()
  endif()
  string(REGEX MATCH "^([^:]+):(.*)$" _ "${_line}")
  set(_module ${CMAKE_MATCH_1})
  string(STRIP "${CMAKE_MATCH_2}" _deps)
  string(REGEX REPLACE "[ \t]+" ";" _deps "${_deps}")
  set(TUFT_DEPS_${_module} "${_deps}")
  list(APPEND TUFT_MODULES ${_module})
endforeach()

function(tuft_target_name module out)
  string(REPLACE "/" "_" _name "${module}")
  set(${out} "tuft_${_name}" PARENT_SCOPE)
endfunction()

function(tuft_link_layers target module)
  if(NOT DEFINED TUFT_DEPS_${module})
    message(FATAL_ERROR "module '${module}' is not listed in cmake/layers.txt")
  endif()
  foreach(dep IN LISTS TUFT_DEPS_${module})
    if(dep STREQUAL "engine/torch" AND NOT TUFT_TORCH)
      continue()
    endif()
    tuft_target_name(${dep} dep_target)
    target_link_libraries(${target} PUBLIC ${dep_target})
  endforeach()
endfunction()

# Compiles the sources of a target in groups of `size`.
function(tuft_group target size)
  if(TUFT_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # GCC takes the sources of a group for headers, and would warn of their types with members of anonymous namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

function(tuft_module)
  cmake_parse_arguments(M "" "NAME" "SOURCES;ALONE;LIBS;TESTS;TEST_LIBS" ${ARGN})
  tuft_target_name(${M_NAME} target)
  add_library(${target} STATIC ${M_SOURCES} ${M_ALONE})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(${target} PUBLIC $<BUILD_INTERFACE:tuft_options> ${M_LIBS})
  tuft_link_layers(${target} ${M_NAME})
  tuft_precompile(${target} ${M_NAME})
  set_source_files_properties(${M_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  tuft_group(${target} 16)
  if(M_TESTS AND BUILD_TESTING)
    add_executable(${target}_test ${M_TESTS})
    target_link_libraries(${target}_test PRIVATE ${target} ${M_TEST_LIBS} GTest::gmock GTest::gtest_main)
    set_target_properties(${target}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    tuft_precompile(${target}_test ${M_NAME} TEST)
    # Helpers of other folders stand alone: one of them replaces operator new, which GCC would inline into its neighbours.
    list(FILTER M_TESTS INCLUDE REGEX "^\\.\\./")
    set_source_files_properties(${M_TESTS} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    tuft_group(${target}_test 4)
    gtest_discover_tests(${target}_test DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
      PROPERTIES LABELS unit TIMEOUT 120 ${TUFT_TEST_PROPERTIES}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
endfunction()

# Precompiled headers, shared by all modules: about half of what a source costs to compile is the standard library's
# headers, and a test pays for GoogleTest's, too. tuft_precompile(TARGET [TEST]) gives a target the set that fits: with the
# messages of proto/ where its module may include them.

set(_launcher ${CMAKE_CURRENT_LIST_DIR}/precompiled/compile.sh ${CMAKE_CXX_COMPILER_LAUNCHER})

# Tests are not measured, and compile a quarter faster so.
set(TUFT_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)

function(tuft_add_precompiled name)
  cmake_parse_arguments(P "" "" "HEADERS;LIBS;OPTIONS" ${ARGN})
  set(_source ${PROJECT_BINARY_DIR}/precompiled/${name}.cc)
  file(CONFIGURE OUTPUT ${_source} CONTENT "// A precompiled header needs a target, and a target a source.\n")
  add_library(${name} OBJECT ${_source})
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "${_launcher}")
  target_link_libraries(${name} PRIVATE tuft_options ${P_LIBS})
  target_compile_options(${name} PRIVATE ${P_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${P_HEADERS})
endfunction()

set(_standard ${CMAKE_CURRENT_LIST_DIR}/precompiled/standard.h)
set(_messages <tinker/public.pb.h> <tuft/worker/v1/model_actor.pb.h>)
set(_gtest <gmock/gmock.h> <gtest/gtest.h>)
tuft_add_precompiled(tuft_precompiled HEADERS ${_standard})
if(BUILD_TESTING)
  tuft_add_precompiled(tuft_precompiled_test HEADERS ${_standard} ${_gtest} LIBS GTest::gmock OPTIONS ${TUFT_TEST_OPTIONS})
endif()
if(NOT TUFT_TELEMETRY_ONLY)
  tuft_add_precompiled(tuft_precompiled_messages HEADERS ${_standard} ${_messages} LIBS tuft_proto)
  if(BUILD_TESTING)
    tuft_add_precompiled(tuft_precompiled_messages_test HEADERS ${_standard} ${_messages} ${_gtest} LIBS tuft_proto GTest::gmock
      OPTIONS ${TUFT_TEST_OPTIONS})
  endif()
endif()

function(tuft_precompile target module)
  cmake_parse_arguments(P "TEST" "" "" ${ARGN})
  set(_name tuft_precompiled)
  if("proto" IN_LIST TUFT_DEPS_${module})
    string(APPEND _name _messages)
  endif()
  if(P_TEST)
    string(APPEND _name _test)
    target_compile_options(${target} PRIVATE ${TUFT_TEST_OPTIONS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${_name})
endfunction()

# Installs the component into an empty folder, builds the consumer with it and runs it.
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD} --component tuft-telemetry --prefix ${WORK}/installed)

# No internal header and no part of the server may be installed.
file(GLOB_RECURSE installed RELATIVE ${WORK}/installed ${WORK}/installed/*)
foreach(file IN LISTS installed)
  if(file MATCHES "recorder|recording|pipeline|_table|/otlp/|libtuft_(api|control|engine)|/bin/")
    message(FATAL_ERROR "${file} is not part of the telemetry library")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_PREFIX_PATH=${WORK}/installed -DEXAMPLES=${EXAMPLES})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/every_header)
run(${WORK}/build/own_metrics)
run(${WORK}/build/telemetry_guide ${WORK}/guide.jsonl)

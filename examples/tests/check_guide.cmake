# Runs telemetry_guide and checks its output.
file(REMOVE ${OUT})
execute_process(COMMAND ${PROGRAM} ${OUT} COMMAND_ERROR_IS_FATAL ANY)
file(READ ${OUT} lines)
foreach(wanted my_operation my_step load_weights weights_loaded tuft.my_module tuft.session_id session-1 "no base model"
        my_module.done tuft.futures.created tuft.futures.execution_time forward_backward telemetry-guide)
  string(FIND "${lines}" "${wanted}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "'${wanted}' is not in ${OUT}")
  endif()
endforeach()

# Record spans, metrics and logs with tuft and with opentelemetry-cpp's SDK, for suites/telemetry_recording.py.
foreach(_recorder tuft otel)
  add_executable(tuft_recording_${_recorder} recording_${_recorder}.cc recording_runner.cc allocations.cc)
  set_target_properties(tuft_recording_${_recorder} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  target_link_libraries(tuft_recording_${_recorder} PRIVATE tuft_options nlohmann_json::nlohmann_json)
endforeach()
target_link_libraries(tuft_recording_tuft PRIVATE tuft_metrics)
target_link_libraries(tuft_recording_otel PRIVATE opentelemetry-cpp::otlp_grpc_exporter
  opentelemetry-cpp::otlp_grpc_log_record_exporter opentelemetry-cpp::otlp_grpc_metrics_exporter)

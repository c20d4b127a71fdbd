# Cost of recording spans, metrics and logs.
find_package(benchmark CONFIG REQUIRED)
add_executable(tuft_telemetry_bench telemetry_bench.cc)
target_link_libraries(tuft_telemetry_bench PRIVATE tuft_telemetry tuft_otlp_receiver benchmark::benchmark)
set_target_properties(tuft_telemetry_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)

# libtorch for src/engine/torch, as the target tuft_libtorch. Looked for where -DTorch_DIR (the folder of
# TorchConfig.cmake) or -DCMAKE_PREFIX_PATH says:
#   -DTorch_DIR=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')/Torch
#
# Found by hand: the configuration files of CUDA builds of libtorch want nvcc and the CUDA toolkit, and we compile no
# CUDA code.
set(Torch_DIR "" CACHE PATH "folder of TorchConfig.cmake")
if(Torch_DIR)
  cmake_path(ABSOLUTE_PATH Torch_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE _torch_prefix)
  cmake_path(SET _torch_prefix NORMALIZE "${_torch_prefix}/../../..")
endif()

set(_torch_hints ${_torch_prefix})
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  list(APPEND _torch_hints ${_prefix} ${_prefix}/../..)
endforeach()
find_path(TUFT_TORCH_INCLUDE ATen/core/Tensor.h HINTS ${_torch_hints} PATH_SUFFIXES include)
find_library(TUFT_TORCH_C10 c10 HINTS ${_torch_hints} PATH_SUFFIXES lib)
find_library(TUFT_TORCH_CPU torch_cpu HINTS ${_torch_hints} PATH_SUFFIXES lib)
find_library(TUFT_TORCH_CUDA torch_cuda HINTS ${_torch_hints} PATH_SUFFIXES lib)
if(NOT TUFT_TORCH_INCLUDE OR NOT TUFT_TORCH_C10 OR NOT TUFT_TORCH_CPU)
  message(FATAL_ERROR "TUFT_TORCH is ON, but no libtorch was found: give -DTorch_DIR=<libtorch>/share/cmake/Torch, or "
    "-DCMAKE_PREFIX_PATH=<libtorch>. Any libtorch 2.x works, including that of a pip install:\n  -DTorch_DIR=$(python3 -c "
    "'import torch; print(torch.utils.cmake_prefix_path)')/Torch")
endif()

cmake_path(GET TUFT_TORCH_INCLUDE PARENT_PATH _torch_root)
file(GLOB _torch_config ${_torch_root}/share/cmake/Torch/TorchConfig.cmake)
if(_torch_config)
  file(STRINGS ${_torch_config} _old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
  if(_old_abi)
    message(FATAL_ERROR "the libtorch in ${_torch_root} was built for the old C++ ABI: use the cxx11-abi download of "
      "pytorch.org, or a pip install of torch 2.7 or newer")
  endif()
endif()
foreach(_file include/torch/headeronly/version.h include/torch/csrc/api/include/torch/version.h)
  if(EXISTS ${_torch_root}/${_file})
    file(STRINGS ${_torch_root}/${_file} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
    string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
    list(LENGTH _numbers _count)
    if(_count EQUAL 2)
      list(GET _numbers 0 TUFT_TORCH_MAJOR)
      list(GET _numbers 1 TUFT_TORCH_MINOR)
      break()
    endif()
  endif()
endforeach()
if(NOT DEFINED TUFT_TORCH_MAJOR OR TUFT_TORCH_MAJOR LESS 2)
  message(FATAL_ERROR "the libtorch in ${TUFT_TORCH_INCLUDE} is older than 2.0, or has no version")
endif()
# One number, such as 20400 for 2.4. The sources check it before they use a function that is newer than 2.0.
math(EXPR _torch_number "${TUFT_TORCH_MAJOR} * 10000 + ${TUFT_TORCH_MINOR} * 100")
message(STATUS "libtorch ${TUFT_TORCH_MAJOR}.${TUFT_TORCH_MINOR}: ${TUFT_TORCH_CPU}, CUDA: ${TUFT_TORCH_CUDA}")

add_library(tuft_libtorch INTERFACE)
target_include_directories(tuft_libtorch SYSTEM INTERFACE ${TUFT_TORCH_INCLUDE})
# AT_PER_OPERATOR_HEADERS: one header for each operator, <ATen/ops/...>, which compile in a fraction of the time.
target_compile_definitions(tuft_libtorch INTERFACE AT_PER_OPERATOR_HEADERS TUFT_TORCH_VERSION=${_torch_number})
target_link_libraries(tuft_libtorch INTERFACE ${TUFT_TORCH_CPU} ${TUFT_TORCH_C10} ${CMAKE_DL_LIBS})
if(TUFT_TORCH_CUDA)
  # No code uses a symbol of it, but loading it registers its kernels.
  target_link_options(tuft_libtorch INTERFACE "LINKER:--push-state,--no-as-needed" ${TUFT_TORCH_CUDA} "LINKER:--pop-state")
endif()
cmake_path(GET TUFT_TORCH_CPU PARENT_PATH _torch_libraries)
target_link_options(tuft_libtorch INTERFACE "LINKER:-rpath,${_torch_libraries}")

# The headers of libtorch for CUDA graphs (src/engine/torch/cuda_graph.cc) need those of CUDA's runtime: pip's beside
# libtorch, or a toolkit's. Without them only the graphs are missing.
set(TUFT_CUDA_INCLUDES "")
if(TUFT_TORCH_CUDA)
  cmake_path(GET _torch_root PARENT_PATH _torch_site)
  file(GLOB _cuda_hints ${_torch_site}/nvidia/cu[0-9]*/include ${_torch_site}/nvidia/cuda_runtime/include)
  set(_toolkit ${CUDAToolkit_ROOT} ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  find_path(TUFT_CUDA_RUNTIME_INCLUDE cuda_runtime_api.h HINTS ${_cuda_hints} ${_toolkit})
  # pip packages these separately; Triton, which comes with PyTorch, has them too.
  find_path(TUFT_CUDA_CRT_INCLUDE crt/host_config.h HINTS ${_cuda_hints} ${_torch_site}/triton/backends/nvidia/include
    ${_toolkit})
  find_library(TUFT_TORCH_C10_CUDA c10_cuda HINTS ${_torch_hints} PATH_SUFFIXES lib)
  if(TUFT_CUDA_RUNTIME_INCLUDE AND TUFT_CUDA_CRT_INCLUDE AND TUFT_TORCH_C10_CUDA AND _torch_number GREATER_EQUAL 20100)
    set(TUFT_CUDA_INCLUDES ${TUFT_CUDA_RUNTIME_INCLUDE} ${TUFT_CUDA_CRT_INCLUDE})
    list(REMOVE_DUPLICATES TUFT_CUDA_INCLUDES)
    target_link_libraries(tuft_libtorch INTERFACE ${TUFT_TORCH_C10_CUDA})
  endif()
  message(STATUS "CUDA graphs: headers in ${TUFT_CUDA_INCLUDES}")
endif()

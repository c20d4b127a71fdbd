# Debian: dpkg --add-architecture arm64, then g++-12-aarch64-linux-gnu, qemu-user, libhwy-dev:arm64, libgtest-dev:arm64,
# libgmock-dev:arm64 and nlohmann-json3-dev.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
find_program(CMAKE_CXX_COMPILER NAMES aarch64-linux-gnu-g++ aarch64-linux-gnu-g++-12 REQUIRED)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)

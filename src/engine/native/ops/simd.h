// Included before any Highway header: which instruction sets the kernels are compiled for. On x86-64 AVX2 with FMA is
// the floor (CMakeLists.txt compiles the kernel files for it, cpu_is_supported() asks for it) and AVX-512 is chosen at
// run time. Scalable vectors are left out, because kernels keep vectors in arrays; such machines use NEON.
#pragma once

#include <hwy/detect_compiler_arch.h>

#if HWY_ARCH_X86
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#elif HWY_ARCH_ARM
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

// Must be included before any Highway header. Selects the instruction sets of the kernels. On x86-64 the minimum is
// AVX2 with FMA (CMakeLists.txt compiles the kernels for it, cpu_is_supported() checks it), and AVX-512 is chosen at
// run time. Scalable vectors are excluded, because kernels keep vectors in arrays; such machines use NEON.
#pragma once

#include <hwy/detect_compiler_arch.h>

#if HWY_ARCH_X86
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#elif HWY_ARCH_ARM
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

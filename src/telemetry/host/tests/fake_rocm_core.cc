// A librocm-core for tests, which tells ROCm's version.

// NOLINTNEXTLINE(readability-identifier-naming): ROCm's name
extern "C" __attribute__((visibility("default"))) int getROCmVersion(unsigned* major, unsigned* minor,
                                                                     unsigned* patch) {
  *major = 6;
  *minor = 4;
  *patch = 1;
  return 0;
}

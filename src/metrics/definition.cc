#include "metrics/definition.h"

namespace tuft::metrics {

std::vector<double> bounds_http() {
  return {.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 45};
}

std::vector<double> bounds_wait() {
  return {.0001, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800};
}

std::vector<double> bounds_request() {
  return {.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 240, 480, 960, 1920, 7680};
}

std::vector<double> bounds_step() {
  return {.0005, .001, .002, .004, .006, .008, .01, .015, .02, .03, .05, .08, .12, .2, .5, 1, 2, 5};
}

std::vector<double> bounds_tokens() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
}

std::vector<double> bounds_bytes() {
  std::vector<double> bounds;
  for (double bound = 64.0 * 1024; bound <= 64.0 * 1024 * 1024 * 1024; bound *= 4) bounds.push_back(bound);
  return bounds;
}

std::vector<double> bounds_tokens_per_second() {
  return {1, 10, 50, 100, 250, 500, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6};
}

std::vector<double> bounds_fraction() {
  return {.01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, 1};
}

std::vector<double> bounds_count() {
  return {1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000};
}

std::vector<double> bounds_norm() {
  return {.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 1000};
}

std::vector<double> bounds_inter_token() {
  return {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}

std::vector<double> bounds_gen_ai_request() {
  return {.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 327.68, 1310.72};
}

std::vector<double> bounds_body_bytes() {
  std::vector<double> bounds;
  for (double bound = 64; bound <= 64.0 * 1024 * 1024; bound *= 4) bounds.push_back(bound);
  return bounds;
}

std::vector<double> bounds_ttft_milliseconds() {
  return {10, 25, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 2000, 5000, 10000};
}

std::vector<double> bounds_latency_milliseconds() {
  return {50, 100, 250, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000};
}

std::vector<double> bounds_percent() {
  return {5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 100};
}

std::vector<double> bounds_first_token() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
}

std::vector<double> bounds_loss() {
  return {.01, .03, .1, .3, .5, 1, 2, 3, 5, 10, 30, 100};
}

}  // namespace tuft::metrics

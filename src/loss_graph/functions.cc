#include "loss_graph/functions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tuft::loss_graph {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kLn10 = 2.302585092994045684018;

double sign(double x) {
  return x > 0 ? 1.0 : x < 0 ? -1.0 : x;
}
double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double zero_slope(double /*x*/, double /*y*/) {
  return 0.0;
}
double one_slope(double /*x*/, double /*y*/) {
  return 1.0;
}
double is_true(bool value) {
  return value ? 1.0 : 0.0;
}
// NaN counts as true, as in Python.
bool truth(double x) {
  return x != 0.0;
}
// A maximum or minimum with NaN is NaN.
double maximum(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
}
double minimum(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::min(a, b);
}
double share(bool wins, bool tie) {
  return tie ? 0.5 : is_true(wins);
}
// The result has the sign of b, as in Python.
double remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double floor_divide(double a, double b) {
  return std::floor(a / b);
}
double log_add_exp(double a, double b) {
  if (std::isinf(a) && a == b) return a;
  const double larger = maximum(a, b);
  return larger + std::log1p(std::exp(-std::fabs(a - b)));
}

using enum ResultType;

constexpr std::array kUnary = std::to_array<UnaryFunction>({
    {"abs", kSame, [](double x) { return std::fabs(x); }, [](double x, double) { return x == 0 ? 0.0 : sign(x); }},
    {"neg", kSame, [](double x) { return -x; }, [](double, double) { return -1.0; }},
    {"positive", kSame, [](double x) { return x; }, one_slope},
    {"exp", kFloat, [](double x) { return std::exp(x); }, [](double, double y) { return y; }},
    {"exp2", kFloat, [](double x) { return std::exp2(x); }, [](double, double y) { return y * kLn2; }},
    {"expm1", kFloat, [](double x) { return std::expm1(x); }, [](double, double y) { return y + 1.0; }},
    {"log", kFloat, [](double x) { return std::log(x); }, [](double x, double) { return 1.0 / x; }},
    {"log2", kFloat, [](double x) { return std::log2(x); }, [](double x, double) { return 1.0 / (x * kLn2); }},
    {"log10", kFloat, [](double x) { return std::log10(x); }, [](double x, double) { return 1.0 / (x * kLn10); }},
    {"log1p", kFloat, [](double x) { return std::log1p(x); }, [](double x, double) { return 1.0 / (x + 1.0); }},
    {"sqrt", kFloat, [](double x) { return std::sqrt(x); }, [](double, double y) { return 0.5 / y; }},
    // The root of a variance, whose derivative at 0 torch defines as 0.
    {"sqrt_of_var", kFloat, [](double x) { return std::sqrt(x); },
     [](double, double y) { return y == 0 ? 0.0 : 0.5 / y; }},
    {"rsqrt", kFloat, [](double x) { return 1.0 / std::sqrt(x); }, [](double, double y) { return -0.5 * y * y * y; }},
    {"square", kSame, [](double x) { return x * x; }, [](double x, double) { return 2.0 * x; }},
    {"reciprocal", kFloat, [](double x) { return 1.0 / x; }, [](double, double y) { return -y * y; }},
    {"sigmoid", kFloat, sigmoid, [](double, double y) { return y * (1.0 - y); }},
    {"logsigmoid", kFloat, [](double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::fabs(x))); },
     [](double x, double) { return sigmoid(-x); }},
    {"tanh", kFloat, [](double x) { return std::tanh(x); }, [](double, double y) { return 1.0 - y * y; }},
    {"sin", kFloat, [](double x) { return std::sin(x); }, [](double x, double) { return std::cos(x); }},
    {"cos", kFloat, [](double x) { return std::cos(x); }, [](double x, double) { return -std::sin(x); }},
    {"erf", kFloat, [](double x) { return std::erf(x); },
     [](double x, double) { return 1.128379167095512573896 * std::exp(-x * x); }},
    {"relu", kSame, [](double x) { return std::isnan(x) ? x : std::max(x, 0.0); },
     [](double, double y) { return is_true(y > 0); }},
    {"sign", kSame, sign, zero_slope},
    {"floor", kSame, [](double x) { return std::floor(x); }, zero_slope},
    {"ceil", kSame, [](double x) { return std::ceil(x); }, zero_slope},
    {"trunc", kSame, [](double x) { return std::trunc(x); }, zero_slope},
    {"round", kSame, [](double x) { return std::nearbyint(x); }, zero_slope},
    {"detach", kSame, [](double x) { return x; }, nullptr},
    {"isnan", kBool, [](double x) { return is_true(std::isnan(x)); }, nullptr},
    {"isinf", kBool, [](double x) { return is_true(std::isinf(x)); }, nullptr},
    {"isfinite", kBool, [](double x) { return is_true(std::isfinite(x)); }, nullptr},
    {"logical_not", kBool, [](double x) { return is_true(!truth(x)); }, nullptr},
    // Conversions: to bool, to integer, to float.
    {"to_bool", kBool, [](double x) { return is_true(truth(x)); }, nullptr},
    {"to_int", kSame, [](double x) { return std::trunc(x); }, nullptr},
    {"to_float", kFloat, [](double x) { return x; }, one_slope},
});

constexpr std::array kBinary = std::to_array<BinaryFunction>({
    {"add", kSame, [](double a, double b) { return a + b; }, [](double, double, double) { return 1.0; },
     [](double, double, double) { return 1.0; }},
    {"sub", kSame, [](double a, double b) { return a - b; }, [](double, double, double) { return 1.0; },
     [](double, double, double) { return -1.0; }},
    {"mul", kSame, [](double a, double b) { return a * b; }, [](double, double b, double) { return b; },
     [](double a, double, double) { return a; }},
    {"div", kFloat, [](double a, double b) { return a / b; }, [](double, double b, double) { return 1.0 / b; },
     [](double a, double b, double) { return -(a / b) / b; }},
    {"floor_divide", kSame, floor_divide, nullptr, nullptr},
    {"remainder", kSame, remainder, [](double, double, double) { return 1.0; },
     [](double a, double b, double) { return -floor_divide(a, b); }},
    {"fmod", kSame, [](double a, double b) { return std::fmod(a, b); }, [](double, double, double) { return 1.0; },
     [](double a, double b, double) { return -std::trunc(a / b); }},
    {"pow", kSame, [](double a, double b) { return std::pow(a, b); },
     [](double a, double b, double) { return b == 0 ? 0.0 : b * std::pow(a, b - 1.0); },
     [](double a, double b, double y) { return a == 0 && b >= 0 ? 0.0 : y * std::log(a); }},
    {"maximum", kSame, maximum, [](double a, double b, double) { return share(a > b, a == b); },
     [](double a, double b, double) { return share(b > a, a == b); }},
    {"minimum", kSame, minimum, [](double a, double b, double) { return share(a < b, a == b); },
     [](double a, double b, double) { return share(b < a, a == b); }},
    // The bounds of clamp: on the bound, the value counts.
    {"clamp_min", kSame, maximum, [](double a, double b, double) { return is_true(a >= b); },
     [](double a, double b, double) { return is_true(a < b); }},
    {"clamp_max", kSame, minimum, [](double a, double b, double) { return is_true(a <= b); },
     [](double a, double b, double) { return is_true(a > b); }},
    {"logaddexp", kFloat, log_add_exp, [](double a, double b, double) { return 1.0 / (1.0 + std::exp(b - a)); },
     [](double a, double b, double) { return 1.0 / (1.0 + std::exp(a - b)); }},
    {"eq", kBool, [](double a, double b) { return is_true(a == b); }, nullptr, nullptr},
    {"ne", kBool, [](double a, double b) { return is_true(a != b); }, nullptr, nullptr},
    {"lt", kBool, [](double a, double b) { return is_true(a < b); }, nullptr, nullptr},
    {"le", kBool, [](double a, double b) { return is_true(a <= b); }, nullptr, nullptr},
    {"gt", kBool, [](double a, double b) { return is_true(a > b); }, nullptr, nullptr},
    {"ge", kBool, [](double a, double b) { return is_true(a >= b); }, nullptr, nullptr},
    {"logical_and", kBool, [](double a, double b) { return is_true(truth(a) && truth(b)); }, nullptr, nullptr},
    {"logical_or", kBool, [](double a, double b) { return is_true(truth(a) || truth(b)); }, nullptr, nullptr},
    {"logical_xor", kBool, [](double a, double b) { return is_true(truth(a) != truth(b)); }, nullptr, nullptr},
});

template <typename Functions>
auto find(const Functions& functions, std::string_view name) {
  const auto found =
      std::find_if(functions.begin(), functions.end(), [&](const auto& function) { return function.name == name; });
  return found == functions.end() ? nullptr : &*found;
}

}  // namespace

const UnaryFunction* find_unary(std::string_view name) {
  return find(kUnary, name);
}

const BinaryFunction* find_binary(std::string_view name) {
  return find(kBinary, name);
}

}  // namespace tuft::loss_graph

// The functions of common/device/online_softmax.cuh, called on the device for arrays of arguments (online_softmax_kernels.cu).
#pragma once

#include <vector>

namespace online_softmax_kernels {

inline constexpr int dim = 3;

// What is known of a part of a row's scores and values: O is not yet divided by l.
struct Partial {
  float m, l;  // base 2
  float o[dim];
};

struct Finished {
  float o[dim];
  float lse;
};

struct Score {
  float score;
  float value[dim];
};

std::vector<Partial> singles(const std::vector<Score>& scores);                             // each score alone
std::vector<Partial> merged(const std::vector<Partial>& a, const std::vector<Partial>& b);  // a[i] ⊕ b[i]
std::vector<Finished> finished(const std::vector<Partial>& partials);                       // O / l, LSE
std::vector<float> powers_of_two(const std::vector<float>& exponents);                      // exp2_fast
std::vector<float> factors(const std::vector<float>& from, const std::vector<float>& to);   // rescale_factor

}  // namespace online_softmax_kernels

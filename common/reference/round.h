// Rounding, as the baselines do it.
#pragma once

namespace reference {

// Rounds to the dtype of the kernel, to nearest, ties to even; held as float.
using Round = float (*)(float);
inline float keep_fp32(float x) { return x; }

}  // namespace reference

// How the baseline of a problem rounds what it keeps between its steps.
#pragma once

#include "common/problem/dtype.h"
#include "common/reference/round.h"

namespace run {

inline reference::Round round_to_dtype(problem::Dtype dtype) {
  switch (dtype) {
    case problem::Dtype::fp16:
      return [](float x) { return problem::round_to(problem::Dtype::fp16, x); };
    case problem::Dtype::bf16:
      return [](float x) { return problem::round_to(problem::Dtype::bf16, x); };
    case problem::Dtype::fp32:
      break;
  }
  return reference::keep_fp32;
}

}  // namespace run

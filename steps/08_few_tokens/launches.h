// Step 08, host side: launches that are compiled apart from step.cu.
#pragma once

#include "common/run/family/linear.h"

namespace few_tokens {

void launch_wide_loads(const run::LinearLaunch& l);    // wide_loads.cu
void launch_in_flight_8k(const run::LinearLaunch& l);  // the same with other counts of slots
void launch_in_flight_16k(const run::LinearLaunch& l);
void launch_in_flight_64k(const run::LinearLaunch& l);

}  // namespace few_tokens

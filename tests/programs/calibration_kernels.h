// Small kernels whose counters are known by measurement: results/DEVICE/ncu_calibration.csv holds what Nsight Compute said of
// them. Those of calibration_ampere.cu, linked instead, have a file of their own.
#pragma once

namespace calibration {

void run_all();  // launches each of them, always in the same order

}  // namespace calibration

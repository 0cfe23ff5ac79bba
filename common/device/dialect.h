// The CUDA dialect of every source here: from nvcc in the gpu build, from the simulator in the sim build. With it, kernel
// files need no #if.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(FLASHSTEPS_SIM)
#include "common/simt/cuda.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

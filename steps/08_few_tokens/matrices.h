// Where the rows of a batch of matrices lie, on both sides of a launch.
#pragma once

#include <cstdint>

#include "common/device/dialect.h"

namespace few_tokens {

// A [samples, channels, rows, columns] array; the columns are contiguous. Strides in elements.
template <class T>
struct Matrices {
  T* data;
  std::int64_t sample_stride, channel_stride, row_stride;

  __host__ __device__ std::int64_t offset(int sample, int channel, int row) const {
    return sample * sample_stride + channel * channel_stride + row * row_stride;
  }
  __host__ __device__ T* row(int sample, int channel, int row) const { return data + offset(sample, channel, row); }
};

}  // namespace few_tokens

// How a launch is timed.
#pragma once

#include <functional>
#include <vector>

namespace run {

// Of one launch of the whole variant, in milliseconds.
struct Times {
  double median;
  double min;
  double max;
  int repetitions;  // samples
  int launches;     // in each sample, whose time is divided by them
};

// As many launches as take about a millisecond, if one takes `launch_ms`; at least 1 and at most 200.
int launches_in_a_sample(double launch_ms);

// As many samples as take about half a second, if one takes `sample_ms`; at least 5, and at most `most`.
int samples_in_time(double sample_ms, int most);

// Of at least one sample, each of so many launches.
Times times_of(std::vector<double> sample_ms, int launches);

// Samples of launches back to back, in a CUDA graph, so that what a launch costs the host is not in the times. What it costs
// the GPU is, about a microsecond between two kernels; and what fits into L2 is found there. Up to `repetitions` samples. Only
// on a GPU.
Times measure(const std::function<void()>& launch, int repetitions);

}  // namespace run

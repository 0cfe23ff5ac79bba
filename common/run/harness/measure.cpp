#include "common/run/harness/measure.h"

#include <algorithm>
#include <cmath>

#include "common/runtime/runtime.h"

namespace run {

int launches_in_a_sample(double launch_ms) {
  return static_cast<int>(std::clamp(std::ceil(1 / launch_ms), 1.0, 200.0));  // 1 / 0 is infinity, and clamped
}

int samples_in_time(double sample_ms, int most) {
  return static_cast<int>(std::min(std::max(std::ceil(500 / sample_ms), 5.0), static_cast<double>(most)));
}

Times times_of(std::vector<double> sample_ms, int launches) {
  std::sort(sample_ms.begin(), sample_ms.end());
  const std::size_t middle = sample_ms.size() / 2;
  const double median = (sample_ms[middle] + sample_ms[(sample_ms.size() - 1) / 2]) / 2;
  return {median / launches, sample_ms.front() / launches, sample_ms.back() / launches, static_cast<int>(sample_ms.size()),
          launches};
}

Times measure(const std::function<void()>& launch, int repetitions) {
  const auto milliseconds = [](const std::function<void()>& work) {
    runtime::Timer timer;
    timer.start();
    work();
    timer.stop();
    return timer.milliseconds();
  };
  double alone = milliseconds(launch);  // with its cost for the host: an upper bound, good enough to choose by
  for (int i = 0; i < 4 && alone < 100; ++i) alone = std::min(alone, milliseconds(launch));

  const int launches = launches_in_a_sample(alone);
  const runtime::Graph graph([&] {
    for (int i = 0; i < launches; ++i) launch();
  });
  const auto sample = [&] { graph.launch(); };
  double warm = 0, last = 0;  // until the clocks are up
  for (int i = 0; i < 1000 && warm < 100; ++i) warm += last = milliseconds(sample);

  std::vector<runtime::Timer> timers(static_cast<std::size_t>(samples_in_time(last, repetitions)));
  sample();  // while it runs, the host gets ahead of the GPU, and stays there
  for (runtime::Timer& timer : timers) {
    timer.start();
    sample();
    timer.stop();
  }
  std::vector<double> all(timers.size());
  std::transform(timers.begin(), timers.end(), all.begin(), [](const runtime::Timer& timer) { return timer.milliseconds(); });
  return times_of(all, launches);
}

}  // namespace run

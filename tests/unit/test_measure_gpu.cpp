// Times that only a GPU has.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/run/harness/measure.h"
#include "common/runtime/runtime.h"
#include "tests/catch.h"

namespace {

constexpr std::size_t words = 1024;

bool is_poisoned(const runtime::Buffer& buffer) {
  std::vector<std::uint32_t> values(words);
  buffer.download(values.data(), 4 * words);
  return std::all_of(values.begin(), values.end(), [](std::uint32_t word) { return word == runtime::poison_word; });
}

struct Small {
  runtime::Buffer buffer{"small", 4 * words};
  Small() {
    launch();  // a kernel is loaded when it first runs, and that cannot be recorded
    clear();
  }
  void clear() { buffer.upload(std::vector<std::uint32_t>(words).data(), 4 * words); }
  void launch() { buffer.poison(); }  // one short kernel
};

}  // namespace

TEST_CASE("A graph runs what it recorded each time that it is launched, and not before") {
  Small small;
  const runtime::Graph graph([&] { small.launch(); });
  runtime::synchronize();
  CHECK_FALSE(is_poisoned(small.buffer));
  for (int time = 0; time < 2; ++time) {
    graph.launch();
    runtime::synchronize();
    CHECK(is_poisoned(small.buffer));
    small.clear();
  }
}

TEST_CASE("What cannot be recorded is an Error that names the call, and later launches run as if nothing had been") {
  Small small;
  std::string text;
  try {
    const runtime::Graph graph([] { runtime::synchronize(); });
  } catch (const runtime::Error& error) {
    text = error.what();
  }
  CHECK(text.find("cudaDeviceSynchronize") != std::string::npos);
  CHECK_THROWS_AS(runtime::Graph([&] {
                    small.launch();
                    throw std::runtime_error("of the launch");
                  }),
                  std::runtime_error);
  runtime::synchronize();
  CHECK_FALSE(is_poisoned(small.buffer));
  small.launch();
  runtime::synchronize();
  CHECK(is_poisoned(small.buffer));
}

TEST_CASE("The time of a short kernel is without what its launch costs the host") {
  Small small;
  const run::Times times = run::measure([&] { small.launch(); }, 20);
  CHECK(times.launches > 1);

  std::vector<double> alone;
  for (int i = 0; i < 200; ++i) {
    runtime::Timer timer;
    timer.start();
    small.launch();
    timer.stop();
    alone.push_back(timer.milliseconds());
  }
  CHECK(times.median < 0.8 * run::times_of(alone, 1).median);
}

TEST_CASE("The time of a long launch is that of its kernels") {
  runtime::Buffer large("large", std::size_t{1} << 30);
  const run::Times times = run::measure(
      [&] {
        for (int i = 0; i < 8; ++i) large.poison();
      },
      20);
  CHECK(times.launches == 1);
  runtime::Timer timer;
  timer.start();
  for (int i = 0; i < 8; ++i) large.poison();
  timer.stop();
  CHECK(times.median > 0.8 * timer.milliseconds());
  CHECK(times.median < 1.25 * timer.milliseconds());
}

// Step 08: is what choice.h takes near the best that was measured?
#include "steps/08_few_tokens/choice.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.h"

namespace {

constexpr double most_over_best = 1.05;
constexpr int multiprocessors = 132;  // of an H100 and of an H200

const std::filesystem::path results = std::filesystem::path(__FILE__).parent_path() / "../../../results";

// Without a dependent launch a variant with another kernel is more than 5 % faster, in these cells: {cell, over its time}.
const std::map<std::string, double> other_kernels = {{"896 × 896, 1 token, fp16", 1.09},         // wide_loads
                                                     {"896 × 896, 1 token, fp32 tokens", 1.16},  // wide_loads
                                                     {"4864 × 896, 8 tokens, fp16", 1.08},       // tensor_cores
                                                     {"4864 × 896, 8 tokens, bf16", 1.08},       // tensor_cores
                                                     {"4864 × 896, 8 tokens", 1.08}};            // tensor_cores

// Of a benchmark's report, {contender: ms of a launch}: those of step 08.
std::map<std::string, double> times_of(const nlohmann::json& report) {
  std::map<std::string, double> times;
  for (const auto& one : report["contenders"]) {
    const std::string name = one["name"];
    if (name != "read only" && !name.starts_with("cuBLAS") && !name.starts_with("cublasLt") && !name.starts_with("02_")) {
      times[name] = one["burst_ms"]["median"];
    }
  }
  return times;
}

// Whether it may begin before the launch before has ended.
bool is_dependent(const std::string& name) {
  return name == "tuned" || name.starts_with("dependent") || (name.starts_with("tile ") && !name.ends_with(", alone"));
}

// The entry of what choice.h takes: its tile by name, as a sweep measures each; or the variant that took it.
std::string chosen(const problem::Linear& g, bool dependent, const std::map<std::string, double>& times) {
  const auto* tile = std::find_if(std::begin(few_tokens::tiles), std::end(few_tokens::tiles), [&](const auto& one) {
    return one.first == few_tokens::choose(g, dependent, multiprocessors);
  });
  const std::string name = std::string("tile ") + tile->second + (dependent ? "" : ", alone");
  if (times.contains(name)) return name;
  return dependent ? "tuned" : "tuned_alone";
}

// How many choices a file of reports holds; each is checked.
int check_choices(const std::filesystem::path& file) {
  int choices = 0;
  std::ifstream stream(file);
  const auto document = nlohmann::json::parse(stream);
  for (const auto& [cell, report] : document["shapes"].items()) {
    const auto& said = report["problem"];
    problem::Linear g;
    g.m = said["m"];
    g.n = said["n"];
    g.k = said["k"];
    g.dtype = problem::dtype_from_name(said["dtype"].get<std::string>()).value();
    g.dtype_a = problem::dtype_from_name(said.value("dtype_a", said["dtype"].get<std::string>())).value();
    const auto times = times_of(report);
    for (const bool dependent : {true, false}) {
      const std::string name = chosen(problem::resolve(g), dependent, times);
      if (!times.contains(name)) continue;  // more tokens than these variants take
      ++choices;
      auto best = times.find(name);
      for (auto one = times.begin(); one != times.end(); ++one) {
        if ((dependent || !is_dependent(one->first)) && one->second < best->second) best = one;
      }
      INFO(cell << ": " << name << " takes " << 1e3 * times.at(name) << " us, " << best->first << " " << 1e3 * best->second);
      const auto other = other_kernels.find(cell);
      CHECK(times.at(name) <= (dependent || other == other_kernels.end() ? most_over_best : other->second) * best->second);
    }
  }
  return choices;
}

}  // namespace

// few_tokens_peers.json has times of `tuned` and `tuned_alone`, and none of a tile by its name. So they say nothing of any
// other choice than that of the run, which is this.
TEST_CASE("the chosen tile is that with which the committed times were measured") {
  using few_tokens::Tile;
  struct Taken {
    int n, k;
    Tile dependent, alone;
  };
  for (const Taken& taken : {Taken{4096, 4096, Tile::few_rows, Tile::alone},
                             {14336, 4096, Tile::many_rows, Tile::many_rows},
                             {4096, 14336, Tile::few_rows, Tile::alone},
                             {896, 896, Tile::few_rows, Tile::alone},
                             {4864, 896, Tile::short_rows, Tile::many_rows}}) {
    for (const int m : {1, 8, 16}) {
      problem::Linear g;
      g.m = m;
      g.n = taken.n;
      g.k = taken.k;
      INFO(taken.n << " x " << taken.k << ", " << m << " tokens");
      CHECK(few_tokens::choose(problem::resolve(g), true, multiprocessors) == taken.dependent);
      CHECK(few_tokens::choose(problem::resolve(g), false, multiprocessors) == taken.alone);
    }
  }
}

TEST_CASE("the chosen tile is within 5 % of the fastest variant that was measured beside it, at each shape") {
  CHECK(check_choices(results / "h100/few_tokens_peers.json") == 30);  // 15 cells, with and without a dependent launch
  CHECK(check_choices(results / "h200/few_tokens_peers.json") == 30);
  CHECK(check_choices(results / "h200/few_tokens_sweep.json") == 150);  // 75 cells of up to 16 tokens
}

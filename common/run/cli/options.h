// The part of the command line that every family of problems shares: its flags, its errors, its exit status.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/dtype.h"
#include "common/problem/npy.h"
#include "common/runtime/runtime.h"

namespace CLI {
class App;
}

namespace run {

using problem::InputError;

#if defined(FLASHSTEPS_SIM)
inline constexpr bool simulated = true;
#else
inline constexpr bool simulated = false;
#endif

// What the executable ends with. The worst that happened wins: unavailable, failed, good; bad usage ends before any work.
enum ExitStatus {
  exit_good = 0,
  exit_failed = 1,       // a check failed or the simulator found a fault; outputs are complete all the same
  exit_usage = 2,        // bad usage or a request that is not supported; nothing was written
  exit_unavailable = 3,  // no device, out of memory, device error; nothing was written
};

struct CommonOptions {
  std::vector<std::string> command;  // as it was typed
  bool list = false;
  std::string variant;  // empty: the step's best; "all": every one
  std::optional<std::filesystem::path> input, output, json, trace;
  std::optional<std::uint64_t> seed;
  bool check = true;
  bool bench = false;
  bool counters = false;
  runtime::SimOptions sim;
};

inline constexpr std::uint64_t default_seed = 1;
inline constexpr int bench_repetitions = 50;  // samples, at most

void add_common_flags(CLI::App& app, CommonOptions& options);

// A flag that takes a whole number of at least `least`, or a finite number, or one of the dtypes; written strictly in decimal.
// Anything else is an InputError that names the flag.
void add_whole_number(CLI::App& app, const std::string& flag, const std::function<void(int)>& take, int least,
                      const std::string& help);
void add_whole_number(CLI::App& app, const std::string& flag, std::optional<int>& value, int least, const std::string& help);
void add_number(CLI::App& app, const std::string& flag, const std::function<void(float)>& take, const std::string& help);
void add_seed(CLI::App& app, const std::string& flag, const std::function<void(std::uint64_t)>& take, const std::string& help);
void add_dtype(CLI::App& app, std::optional<problem::Dtype>& value, const std::string& flag = "--dtype",
               const std::string& help = "fp32, fp16 or bf16 (default: the step's)");

// What can be said before any work is done. Throws InputError for flags that this build refuses or that exclude each other,
// and for output folders and files that could not be written.
void require_consistent(const CLI::App& app, const CommonOptions& options);

// Of a folder to read from. Throws InputError where there is something else at that path.
void require_folder(const std::string& flag, const std::filesystem::path& path);

// An extent that files fix. Throws InputError where a flag was given with another value.
int fixed_by_file(const std::string& flag, const std::optional<int>& given, std::int64_t actual,
                  const std::filesystem::path& source);

// Parses the command line, runs `body` and returns its exit status; what either throws becomes a status and a line on stderr.
int run_command_line(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

}  // namespace run

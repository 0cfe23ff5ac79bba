#include "common/run/cli/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <new>

#include "common/problem/number.h"

namespace run {
namespace {

namespace fs = std::filesystem;
using problem::Typed;

template <class Number>
Number whole_number(const std::string& flag, const std::string& text, Number least) {
  Number value{};
  if (problem::read_number(text, value) == Typed::good && value >= least) return value;
  throw InputError(flag + ": '" + text + "' is not a whole number from " + std::to_string(least) + " to " +
                   std::to_string(std::numeric_limits<Number>::max()));
}

float finite_number(const std::string& flag, const std::string& text) {
  float value{};
  const Typed typed = problem::read_number(text, value);
  const auto refuse = [&](const char* why) { throw InputError(flag + ": '" + text + "' is " + why); };
  if (typed == Typed::too_small)
    refuse("too near 0 for fp32, whose least number above 0 is 1.4e-45; 0 itself is a number, too");
  if (typed == Typed::too_large) refuse("beyond fp32, whose largest number is 3.4e38");
  if (typed == Typed::no_number || !std::isfinite(value)) refuse("not a finite number in decimal, like 0.5 or -3e-2");
  return value;
}

runtime::SimDevice sim_device(const std::string& text) {
  if (text == "h100") return runtime::SimDevice::h100;
  if (text == "rtx3090") return runtime::SimDevice::rtx3090;
  throw InputError("--sim-device: '" + text + "' is unknown; h100 or rtx3090");
}

runtime::AsyncMode async_mode(const std::string& text) {
  if (text == "late") return runtime::AsyncMode::late;
  if (text == "eager") return runtime::AsyncMode::eager;
  if (text == "random") return runtime::AsyncMode::random;
  throw InputError("--sim-async: '" + text + "' is unknown; late, eager or random");
}

// Where the path, or the part of it that exists, does not allow a file or folder to be made. Makes nothing itself.
void require_writable(const std::string& flag, const fs::path& path, bool folder) {
  const auto refuse = [&](const fs::path& where, const char* why) {
    throw InputError(flag + ": " + where.string() + " " + why);
  };
  if (path.empty()) throw InputError(flag + ": a path is needed");
  std::error_code ignored;
  if (fs::exists(path, ignored) && fs::is_directory(path, ignored) != folder) {
    refuse(path, folder ? "is not a folder" : "is a folder");
  }
  fs::path existing = fs::absolute(path);
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  if (existing != fs::absolute(path) && !fs::is_directory(existing, ignored)) refuse(existing, "is not a folder");
  if (::access(existing.c_str(), W_OK) != 0) refuse(existing, "cannot be written");
}

[[noreturn]] void refuse_value(const std::string& flag, const std::string& word) {
  throw InputError(flag + ": '" + word + "' has a value, and the flag takes none; " + flag + " alone switches it on");
}

// "--causal=1": CLI11 takes some values of flags, and names no flag where it refuses one.
void require_no_values_of_flags(const CLI::App& app, int argc, char** argv) {
  for (int n = 1; n < argc; ++n) {
    const std::string word = argv[n];
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos) continue;
    const CLI::Option* option = app.get_option_no_throw(word.substr(0, equals));
    if (option == nullptr || option->get_items_expected_max() > 0) continue;
    const std::string flag = word.substr(0, equals);
    refuse_value(flag, word);
  }
}

int complain(const CLI::App& app, const std::string& what, ExitStatus status) {
  std::cerr << app.get_name() << ": " << what << '\n';
  return status;
}

}  // namespace

void add_common_flags(CLI::App& app, CommonOptions& options) {
  app.add_flag("--list", options.list, "show the variants and what each supports, and stop");
  const auto name_variant = [&options](const std::string& name) {
    if (name.empty()) throw InputError("--variant: '' is unknown; --list shows the variants");
    options.variant = name;
  };
  app.add_option_function<std::string>("--variant", name_variant, "variant to run, or all; default: the best")
      ->type_name("NAME");
  app.add_option("--input", options.input, "read the inputs from DIR, as .npy files; fixes the shape")->type_name("DIR");
  add_seed(
      app, "--seed", [&options](std::uint64_t seed) { options.seed = seed; }, "of random inputs (default 1)");
  app.add_option("--output", options.output, "write the outputs to DIR, as .npy files")->type_name("DIR");
  app.add_flag("--check")->description("check the outputs (the default)");
  app.add_flag_callback(
      "--no-check", [&] { options.check = false; }, "do not check them");
  app.add_flag("--bench", options.bench,
               "measure time (gpu build): launches back to back, in a CUDA graph; a launch costs the GPU about a microsecond "
               "between kernels, and data that fits into L2 is found there");
  app.add_flag("--counters", options.counters, "count what Nsight Compute would count (sim build)");
  app.add_option("--trace", options.trace, "write what one warp does to FILE (docs/trace.schema.json; sim build)")
      ->type_name("FILE");
  app.add_option("--json", options.json, "write all results to FILE (docs/result.schema.json)")->type_name("FILE");

  const std::string group = "Simulator";
  app.add_option_function<std::string>(
         "--sim-seed", [&](const std::string& text) { options.sim.seed = whole_number<std::uint64_t>("--sim-seed", text, 0); },
         "of the order in which blocks, warps and lanes run (default 1)")
      ->type_name("N")
      ->group(group);
  app.add_option_function<std::string>(
         "--sim-async", [&](const std::string& text) { options.sim.async_mode = async_mode(text); },
         "when asynchronous copies land: late (default), eager or random")
      ->type_name("MODE")
      ->group(group);
  app.add_option_function<std::string>(
         "--sim-workers", [&](const std::string& text) { options.sim.workers = whole_number("--sim-workers", text, 1); },
         "threads that run blocks (default: one per core)")
      ->type_name("N")
      ->group(group);
  app.add_option_function<std::string>(
         "--sim-device", [&](const std::string& text) { options.sim.device = sim_device(text); },
         "as large as which GPU: h100 (default) or rtx3090")
      ->type_name("DEVICE")
      ->group(group);
}

void add_whole_number(CLI::App& app, const std::string& flag, const std::function<void(int)>& take, int least,
                      const std::string& help) {
  const auto parse = [flag, take, least](const std::string& text) { take(whole_number(flag, text, least)); };
  app.add_option_function<std::string>(flag, parse, help)->type_name("N");
}

void add_whole_number(CLI::App& app, const std::string& flag, std::optional<int>& value, int least, const std::string& help) {
  add_whole_number(
      app, flag, [&value](int typed) { value = typed; }, least, help);
}

void add_number(CLI::App& app, const std::string& flag, const std::function<void(float)>& take, const std::string& help) {
  const auto parse = [flag, take](const std::string& text) { take(finite_number(flag, text)); };
  app.add_option_function<std::string>(flag, parse, help)->type_name("X");
}

void add_seed(CLI::App& app, const std::string& flag, const std::function<void(std::uint64_t)>& take, const std::string& help) {
  const auto parse = [flag, take](const std::string& text) { take(whole_number<std::uint64_t>(flag, text, 0)); };
  app.add_option_function<std::string>(flag, parse, help)->type_name("N");
}

void add_dtype(CLI::App& app, std::optional<problem::Dtype>& value, const std::string& flag, const std::string& help) {
  const auto parse = [flag, &value](const std::string& text) {
    value = problem::dtype_from_name(text);
    if (!value) throw InputError(flag + ": '" + text + "' is unknown; fp32, fp16 or bf16");
  };
  app.add_option_function<std::string>(flag, parse, help)->type_name("TYPE");
}

void require_consistent(const CLI::App& app, const CommonOptions& options) {
  if (simulated) {
    if (options.bench) throw InputError("--bench: the simulator has no time to measure; use the gpu build");
  } else {
    if (options.counters) throw InputError("--counters: on a GPU, Nsight Compute counts: make profile");
    for (const std::string flag : {"--trace", "--sim-seed", "--sim-async", "--sim-workers", "--sim-device"}) {
      if (app.count(flag) > 0) throw InputError(flag + ": only the sim build has a simulator");
    }
  }
  if (app.count("--check") > 0 && app.count("--no-check") > 0) throw InputError("--check contradicts --no-check");
  if (options.input && options.seed) throw InputError("--seed contradicts --input: the inputs come from files");
  if (options.input) require_folder("--input", *options.input);
  if (options.output) require_writable("--output", *options.output, true);
  if (options.json) require_writable("--json", *options.json, false);
  if (options.trace) require_writable("--trace", *options.trace, false);
}

void require_folder(const std::string& flag, const fs::path& path) {
  std::error_code ignored;
  const bool is_file = fs::exists(path, ignored) && !fs::is_directory(path, ignored);
  if (!path.empty() && !is_file) return;  // of one that is not there, reading names the first file
  throw InputError(flag + ": '" + path.string() + "' is not a folder; give the folder that the .npy files are in");
}

int fixed_by_file(const std::string& flag, const std::optional<int>& given, std::int64_t actual, const fs::path& source) {
  if (!given || *given == actual) return static_cast<int>(actual);
  throw InputError(flag + " " + std::to_string(*given) + " contradicts " + source.string() + ", which has " +
                   std::to_string(actual));
}

int run_command_line(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  try {
    require_no_values_of_flags(app, argc, argv);
    app.parse(argc, argv);
    return body();
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return exit_good;
  } catch (const CLI::ArgumentMismatch& error) {  // the option's name comes first, and says enough
    return complain(app, std::string(error.what()) + " (each flag once, with its value)", exit_usage);
  } catch (const CLI::ParseError& error) {
    return complain(app, std::string(error.what()) + " (see --help)", exit_usage);
  } catch (const InputError& error) {
    return complain(app, error.what(), exit_usage);
  } catch (const std::invalid_argument& error) {
    return complain(app, error.what(), exit_usage);
  } catch (const std::bad_alloc&) {
    return complain(app, "out of memory on the host", exit_unavailable);
  } catch (const runtime::Error& error) {
    return complain(app, error.what(), exit_unavailable);
  } catch (const std::exception& error) {
    return complain(app, std::string("internal error: ") + error.what(), exit_unavailable);
  }
}

}  // namespace run

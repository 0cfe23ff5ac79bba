// The toy family's command line: x.npy holds float16 or float32, factors.npy int8, ids.npy int32 or int64.
#include "common/run/cli/family_main.h"
#include "common/run/family/gather.h"
#include "common/run/harness/files.h"

namespace run {
namespace {

struct GatherFlags {
  std::optional<int> rows, cols, ids;
  std::optional<problem::Dtype> dtype;
};

struct GatherRequest {
  Gather shape;
  std::optional<std::uint64_t> seed;
  std::filesystem::path folder;
  std::optional<GatherInputs> inputs;
};

GatherInputs read_inputs(const std::filesystem::path& folder, problem::Dtype dtype) {
  problem::Tensor x = problem::read_npy(folder / "x.npy").tensor;
  if (x.shape.size() != 2) refuse(folder / "x.npy", "shape " + problem::to_string(x.shape) + "; it must be [rows, cols]");
  for (float& value : x.values) value = problem::round_to(dtype, value);
  problem::Integers factors = problem::read_npy_integer_array(folder / "factors.npy", Element::int8());
  if (factors.shape != std::vector{x.shape[1]}) refuse(folder / "factors.npy", "there must be one for each column of x.npy");
  const std::vector<std::int32_t> ids = problem::read_npy_integers(folder / "ids.npy");
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= x.shape[0]) refuse(folder / "ids.npy", "x.npy has no row " + std::to_string(id));
  }
  problem::Integers as_array({std::ssize(ids)});
  as_array.values = ids;
  return {std::move(x), std::move(factors), std::move(as_array)};
}

GatherRequest make_request(const GatherStep& step, const GatherFlags& flags, const CommonOptions& options) {
  Gather shape = step.default_shape;
  shape.dtype = flags.dtype.value_or(shape.dtype);
  if (!options.input) {
    shape.rows = flags.rows.value_or(shape.rows);
    shape.cols = flags.cols.value_or(shape.cols);
    shape.ids = flags.ids.value_or(shape.ids);
    return {.shape = resolve(shape), .seed = options.seed.value_or(default_seed), .folder = {}, .inputs = {}};
  }
  GatherInputs in = read_inputs(*options.input, shape.dtype);
  shape.rows = fixed_by_file("--rows", flags.rows, in.x.shape[0], *options.input);
  shape.cols = fixed_by_file("--cols", flags.cols, in.x.shape[1], *options.input);
  shape.ids = fixed_by_file("--ids", flags.ids, in.ids.shape[0], *options.input);
  return {.shape = resolve(shape), .seed = {}, .folder = *options.input, .inputs = std::move(in)};
}

struct GatherCommand : PlainCommand<GatherCommand> {
  using Family = GatherFamily;
  using Request = GatherRequest;
  using Flags = GatherFlags;

  static void add_flags(CLI::App& app, Flags& flags) {
    add_whole_number(app, "--rows", flags.rows, 1, "rows of x");
    add_whole_number(app, "--cols", flags.cols, 1, "columns of x and y");
    add_whole_number(app, "--ids", flags.ids, 1, "rows of y");
    add_dtype(app, flags.dtype);
  }
  static std::string text(const Request& request) {
    return to_string(request.shape) + ", " + input_text(request.seed, request.folder);
  }
  static nlohmann::ordered_json problem_json(const Gather& g) {
    return {{"family", "gather"}, {"rows", g.rows}, {"cols", g.cols}, {"ids", g.ids}, {"dtype", problem::name(g.dtype)}};
  }
};

}  // namespace

int step_main(int argc, char** argv, const GatherStep& step) { return family_main<GatherCommand>(argc, argv, step); }

}  // namespace run

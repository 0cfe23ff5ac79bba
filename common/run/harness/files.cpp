#include "common/run/harness/files.h"

#include <limits>

namespace run {

void refuse(const std::filesystem::path& file, const std::string& what) {
  throw problem::InputError(file.string() + ": " + what);
}

void require_extents(const std::filesystem::path& file, const std::vector<std::int64_t>& shape) {
  for (const std::int64_t extent : shape) {
    if (extent > std::numeric_limits<int>::max()) refuse(file, "shape " + problem::to_string(shape) + " is too large");
  }
}

void require_one_type(const std::filesystem::path& folder, const std::string& names,
                      const std::vector<problem::NpyArray*>& arrays, problem::Dtype dtype) {
  for (problem::NpyArray* array : arrays) {
    if (array->stored != arrays.front()->stored) refuse(folder, names + " must be of one type, all float16 or all float32");
    for (float& x : array->tensor.values) x = problem::round_to(dtype, x);
  }
}

}  // namespace run

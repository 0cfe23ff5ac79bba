// What reading inputs from .npy files has in common. Everything here throws InputError, naming the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/problem/dtype.h"
#include "common/problem/npy.h"

namespace run {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what);

// Kernels count in int.
void require_extents(const std::filesystem::path& file, const std::vector<std::int64_t>& shape);

// Input arrays of a folder that must be stored in one type; "q.npy, k.npy and v.npy" names them. Rounds them to `dtype`.
void require_one_type(const std::filesystem::path& folder, const std::string& names,
                      const std::vector<problem::NpyArray*>& arrays, problem::Dtype dtype);

}  // namespace run

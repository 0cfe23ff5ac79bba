// NumPy's .npy format, version 1 to 3, as far as kernels need it: little-endian float16 and float32 in C order, and whole
// numbers.
#pragma once

#include <filesystem>
#include <stdexcept>

#include "common/problem/dtype.h"
#include "common/problem/element.h"
#include "common/problem/tensor.h"

namespace problem {

// Bad input from the user: one clear line that names the file or flag and says what would be right.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct NpyArray {
  Tensor tensor;
  Dtype stored;  // fp16 or fp32: how the file holds it
};

NpyArray read_npy(const std::filesystem::path& path);

// One row of whole numbers of 32 or 64 bits, which must fit 32 bits.
std::vector<std::int32_t> read_npy_integers(const std::filesystem::path& path);

// The same, of any shape. For int8 the file must hold int8.
Integers read_npy_integer_array(const std::filesystem::path& path, Element element = Element::int32());

// Flags: bool, or uint8 that are 0 or 1.
struct NpyFlags {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;  // in C order
};
NpyFlags read_npy_flags(const std::filesystem::path& path);

// Writes float16 for Dtype::fp16, else float32. Values must fit (they are rounded to fp16).
void write_npy(const std::filesystem::path& path, const Tensor& tensor, Dtype stored);

// Writes int32 or int8. Values must fit.
void write_npy(const std::filesystem::path& path, const Integers& integers, Element stored);

}  // namespace problem

// Element types of kernel inputs and outputs, and rounding to them on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace problem {

enum class Dtype { fp32, fp16, bf16 };

std::string_view name(Dtype dtype);                           // "fp32", "fp16", "bf16"
std::optional<Dtype> dtype_from_name(std::string_view name);  // the inverse; nothing for any other text
std::size_t bytes(Dtype dtype);                               // per element

// Rounds to nearest, ties to even; values beyond the format's range become infinite, NaN stays NaN. fp32 returns x unchanged.
float round_to(Dtype dtype, float x);

// The 16-bit encodings (IEEE binary16, and bfloat16 = the upper half of a float).
std::uint16_t fp16_bits(float x);
float fp16_value(std::uint16_t bits);
std::uint16_t bf16_bits(float x);
float bf16_value(std::uint16_t bits);

// Between floats and elements as a device or a file holds them; encode rounds.
void encode(Dtype dtype, const float* values, std::size_t count, void* elements);
void decode(Dtype dtype, const void* elements, std::size_t count, float* values);

}  // namespace problem

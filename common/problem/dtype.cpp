#include "common/problem/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace problem {
namespace {

constexpr std::uint32_t fp32_infinity = 0x7f800000;
constexpr std::uint32_t exponent_shift = (127 - 15) << 23;  // from fp16's exponent bias to fp32's

}  // namespace

std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
      return "fp16";
    case Dtype::bf16:
      return "bf16";
    case Dtype::fp32:
      break;
  }
  return "fp32";
}

std::optional<Dtype> dtype_from_name(std::string_view text) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    if (text == name(dtype)) return dtype;
  }
  return std::nullopt;
}

std::size_t bytes(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

float round_to(Dtype dtype, float x) {
  switch (dtype) {
    case Dtype::fp16:
      return fp16_value(fp16_bits(x));
    case Dtype::bf16:
      return bf16_value(bf16_bits(x));
    case Dtype::fp32:
      break;
  }
  return x;
}

std::uint16_t fp16_bits(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t rounded;
  if (magnitude > fp32_infinity) {
    rounded = 0x7e00 | (magnitude >> 13 & 0x1ff);  // a quiet NaN with what fits of the payload
  } else if (magnitude >= 0x47800000) {            // 2¹⁶ and beyond, infinity too
    rounded = 0x7c00;
  } else if (magnitude < 0x38800000) {  // below 2⁻¹⁴: subnormal, a multiple of 2⁻²⁴, which is just the ulp of ½
    rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  } else {  // 13 bits go; just below half an ulp is added, or half an ulp where the last bit kept is odd
    const std::uint32_t odd = magnitude >> 13 & 1;
    rounded = (magnitude - exponent_shift + 0xfff + odd) >> 13;  // a carry runs on into the exponent, up to infinity
  }
  return static_cast<std::uint16_t>(sign | rounded);
}

float fp16_value(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fff;
  std::uint32_t value;
  if (magnitude >= 0x7c00) {  // infinity and NaN
    value = fp32_infinity | (magnitude & 0x3ff) << 13;
  } else if (magnitude < 0x400) {  // zero and subnormal
    value = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  } else {
    value = (magnitude << 13) + exponent_shift;
  }
  return std::bit_cast<float>(sign | value);
}

std::uint16_t bf16_bits(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  const std::uint32_t odd = bits >> 16 & 1;
  return static_cast<std::uint16_t>((bits + 0x7fff + odd) >> 16);
}

float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

void encode(Dtype dtype, const float* values, std::size_t count, void* elements) {
  if (dtype == Dtype::fp32) {
    std::memcpy(elements, values, count * sizeof(float));
  } else {
    std::transform(values, values + count, static_cast<std::uint16_t*>(elements), dtype == Dtype::fp16 ? fp16_bits : bf16_bits);
  }
}

void decode(Dtype dtype, const void* elements, std::size_t count, float* values) {
  if (dtype == Dtype::fp32) {
    std::memcpy(values, elements, count * sizeof(float));
  } else {
    const auto* bits = static_cast<const std::uint16_t*>(elements);
    std::transform(bits, bits + count, values, dtype == Dtype::fp16 ? fp16_value : bf16_value);
  }
}

}  // namespace problem

// What an array holds, in device memory or in a file: floating-point numbers in one of the types that problems compute with, or
// integers (ids, offsets, tables of blocks, quantised values). The arrays of one problem may differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "common/problem/dtype.h"

namespace problem {

class Element {
 public:
  constexpr Element(Dtype dtype) : type_(dtype) {}
  static constexpr Element int32() { return Integer::int32; }
  static constexpr Element int8() { return Integer::int8; }

  constexpr bool is_integer() const { return std::holds_alternative<Integer>(type_); }
  Dtype dtype() const { return std::get<Dtype>(type_); }  // of floating-point numbers
  std::size_t bytes() const;
  std::string_view name() const;  // "fp32", "fp16", "bf16", "int32", "int8"
  constexpr bool operator==(const Element&) const = default;

 private:
  enum class Integer { int32, int8 };
  constexpr Element(Integer type) : type_(type) {}

  std::variant<Dtype, Integer> type_;
};

// Between integers, which the host holds as int32, and elements as a device or a file holds them. encode and decode throw
// std::logic_error for an element that is none of them.
bool fits(Element element, std::int32_t x);
void encode(Element element, const std::int32_t* values, std::size_t count, void* elements);  // which fit
void decode(Element element, const void* elements, std::size_t count, std::int32_t* values);

}  // namespace problem

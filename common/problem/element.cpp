#include "common/problem/element.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace problem {
namespace {

void require_integer(Element element) {
  if (!element.is_integer()) throw std::logic_error("integers are no elements of " + std::string(element.name()));
}

}  // namespace

std::size_t Element::bytes() const {
  if (!is_integer()) return problem::bytes(dtype());
  return *this == int8() ? sizeof(std::int8_t) : sizeof(std::int32_t);
}

std::string_view Element::name() const {
  if (!is_integer()) return problem::name(dtype());
  return *this == int8() ? "int8" : "int32";
}

bool fits(Element element, std::int32_t x) {
  using Narrow = std::numeric_limits<std::int8_t>;
  return element != Element::int8() || (x >= Narrow::min() && x <= Narrow::max());
}

void encode(Element element, const std::int32_t* values, std::size_t count, void* elements) {
  require_integer(element);
  if (element == Element::int8()) {
    std::transform(values, values + count, static_cast<std::int8_t*>(elements),
                   [](std::int32_t x) { return static_cast<std::int8_t>(x); });
  } else {
    std::memcpy(elements, values, count * sizeof(std::int32_t));
  }
}

void decode(Element element, const void* elements, std::size_t count, std::int32_t* values) {
  require_integer(element);
  if (element == Element::int8()) {
    const auto* narrow = static_cast<const std::int8_t*>(elements);
    std::copy(narrow, narrow + count, values);
  } else {
    std::memcpy(values, elements, count * sizeof(std::int32_t));
  }
}

}  // namespace problem

// A number as people type it: strictly in decimal, with nothing before or after it.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>
#include <type_traits>

namespace problem {

enum class Typed {
  good,
  no_number,
  too_small,  // not 0, and nearer to 0 than any number of the type but 0
  too_large,  // beyond the largest number of the type, on either side
};

template <class Number>
Typed read_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return Typed::no_number;
  if (error == std::errc()) return Typed::good;
  if constexpr (std::is_floating_point_v<Number>) {  // from_chars does not say at which end it is out of range
    if (std::abs(std::strtold(text.c_str(), nullptr)) < 1) return Typed::too_small;
  }
  return Typed::too_large;
}

}  // namespace problem

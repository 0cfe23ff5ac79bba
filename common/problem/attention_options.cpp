#include "common/problem/attention_options.h"

#include <algorithm>
#include <cstdio>

#include "common/problem/require.h"

namespace problem {

std::string text(int value) { return std::to_string(value); }
std::string text(float value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", static_cast<double>(value));
  return digits;
}

std::string flag_of(const OptionWords& option) {
  std::string flag = "--" + std::string(option.name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

void require_ranges(const Attention& shape) {
  each(attention_options, [&](auto option) {
    if constexpr (option.kind != OptionKind::on_off && option.kind != OptionKind::seed) {
      const auto value = plain(option.field(shape));
      const bool inside = value >= option.least && value <= option.most;  // NaN is not
      const char* unit = option.kind == OptionKind::of_256 ? " of 256" : "";
      require(inside, std::string(option.name) + " is " + text(value) + unit + "; it must be " + option.range);
    }
  });
}

}  // namespace problem

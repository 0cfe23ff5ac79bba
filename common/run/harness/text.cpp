#include "common/run/harness/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace run {
namespace {

std::string formatted(const char* format, int digits, double value) {
  if (!std::isfinite(value)) return "-";
  char text[400];
  std::snprintf(text, sizeof text, format, digits, value);
  return text;
}

// Characters, not bytes: those that continue a UTF-8 sequence do not count.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string fixed(double value, int digits) { return formatted("%.*f", digits, value); }
std::string significant(double value, int digits) { return formatted("%.*g", digits, value); }
std::string megabytes(double bytes) { return fixed(bytes / 1e6, bytes < 1e6 ? 3 : bytes < 1e8 ? 2 : 0); }

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - width(row[c]), ' ');
      out << (c == 0 ? row[c] + padding : "  " + padding + row[c]);
    }
    out << '\n';
  }
}

}  // namespace run

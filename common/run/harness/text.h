// Numbers, lists and tables for people.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace run {

std::string fixed(double value, int digits);        // "12.50"; "-" for what is not finite
std::string significant(double value, int digits);  // "1.34e+09"
std::string megabytes(double bytes);                // "1.35", in units of 10⁶ bytes

// "a, b, c", where text(item) makes the parts.
template <class Item, class Text>
std::string joined(const std::vector<Item>& items, const Text& text) {
  std::string result;
  for (const Item& item : items) {
    if (!result.empty()) result += ", ";
    result += text(item);
  }
  return result;
}

template <class Item>
bool contains(const std::vector<Item>& items, const Item& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

// Columns as wide as their widest cell; the first is flush left, the others flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace run

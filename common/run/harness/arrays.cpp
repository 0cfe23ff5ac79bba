#include "common/run/harness/arrays.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace run {
namespace {

bool is_downloaded(const Array& array) { return array.role == Role::output || array.role == Role::both; }

[[noreturn]] void impossible(const Array& array, const std::string& what) {
  throw std::logic_error("array '" + array.name + "': " + what);
}

}  // namespace

std::string_view name(Role role) {
  constexpr std::string_view names[] = {"input", "optional input", "output", "both", "scratch"};
  return names[static_cast<int>(role)];
}

Array input(std::string name, Element element, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
  return {.name = std::move(name),
          .role = Role::input,
          .element = element,
          .shape = std::move(shape),
          .strides = std::move(strides)};
}
Array optional_input(std::string name, Element element, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .role = Role::optional_input, .element = element, .shape = std::move(shape)};
}
Array output(std::string name, Element element, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
  return {.name = std::move(name),
          .role = Role::output,
          .element = element,
          .shape = std::move(shape),
          .strides = std::move(strides)};
}
Array both(std::string name, Element element, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .role = Role::both, .element = element, .shape = std::move(shape)};
}
Array scratch(std::string name, Element element, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .role = Role::scratch, .element = element, .shape = std::move(shape)};
}
Array view(std::string name, const Array& whole, std::int64_t offset, std::vector<std::int64_t> shape,
           std::vector<std::int64_t> strides) {
  return {.name = std::move(name),
          .role = Role::scratch,
          .element = whole.element,
          .shape = std::move(shape),
          .strides = std::move(strides),
          .within = whole.name,
          .offset = offset};
}

std::size_t bytes(const Array& array) {
  return array.within.empty() ? RowsBuffer::bytes(array.shape, array.strides, array.element) : 0;
}

std::size_t scratch_bytes(const Arrays& arrays) {
  std::size_t total = 0;
  for (const Array& array : arrays) total += array.role == Role::scratch ? bytes(array) : 0;
  return total;
}

Arrays operator+(Arrays arrays, const Arrays& more) {
  arrays.insert(arrays.end(), more.begin(), more.end());
  return arrays;
}

DeviceArrays::Placed& DeviceArrays::add(const Array& array) {
  const bool known = std::any_of(placed_.begin(), placed_.end(), [&](const Placed& p) { return p.array.name == array.name; });
  if (known) impossible(array, "there are two of this name");
  Placed& placed = placed_.emplace_back(Placed{array, {}, nullptr});
  if (array.strides.empty()) placed.array.strides = RowsBuffer::dense_strides(array.shape);
  if (array.within.empty()) return placed;
  if (array.role != Role::scratch || array.strides.size() + 1 != array.shape.size())
    impossible(array, "a view is scratch memory with strides");
  const Placed& whole = find(array.within);
  const std::size_t element = array.element.bytes();
  std::int64_t last = array.offset + array.shape.back() - 1;
  for (std::size_t d = 0; d < array.strides.size(); ++d) last += (array.shape[d] - 1) * array.strides[d];
  if (array.offset < 0 || static_cast<std::size_t>(last + 1) * element > bytes(whole.array)) {
    impossible(array, "it ends beyond '" + array.within + "'");
  }
  placed.data = static_cast<char*>(whole.data) + static_cast<std::size_t>(array.offset) * element;
  return placed;
}

DeviceArrays::DeviceArrays(const Arrays& arrays, const std::vector<Given>& given) {
  placed_.reserve(arrays.size());
  for (const Array& array : arrays) {
    Placed& placed = add(array);
    if (!array.within.empty()) continue;
    const auto values = std::find_if(given.begin(), given.end(), [&](const Given& g) { return g.name == array.name; });
    if (array.role == Role::optional_input && values == given.end()) continue;
    placed.buffer = RowsBuffer(array.name, array.shape, array.strides, array.element);
    placed.data = placed.buffer.data();
    const bool takes = array.role == Role::input || array.role == Role::optional_input || array.role == Role::both;
    if (!takes) continue;
    if (values == given.end()) throw std::invalid_argument("no values for input '" + array.name + "'");
    if (array.role == Role::both) given_again_.push_back(*values);
    placed.buffer.upload(*values, array.at_most);
  }
}

DeviceArrays::DeviceArrays(const Arrays& arrays, const std::function<void*(const Array&)>& place) {
  placed_.reserve(arrays.size());
  for (const Array& array : arrays) {
    Placed& placed = add(array);
    if (array.within.empty()) placed.data = place(array);
  }
}

void DeviceArrays::prepare() {
  for (Placed& placed : placed_) {
    if (placed.array.within.empty() && (placed.array.role == Role::output || placed.array.role == Role::scratch)) {
      placed.buffer.poison();
    }
  }
  for (const Given& given : given_again_) {
    const auto is_its = [&](const Placed& placed) { return placed.array.name == given.name; };
    Placed& placed = *std::find_if(placed_.begin(), placed_.end(), is_its);
    placed.buffer.upload(given, placed.array.at_most);
  }
}

std::vector<NamedTensor> DeviceArrays::download() const {
  std::vector<NamedTensor> outputs;
  for (const Placed& placed : placed_) {
    if (is_downloaded(placed.array)) {
      outputs.push_back({placed.array.name, placed.buffer.download(), placed.array.element.dtype()});
    }
  }
  return outputs;
}

bool DeviceArrays::surroundings_intact() const {
  return std::all_of(placed_.begin(), placed_.end(), [](const Placed& placed) {
    if (!placed.buffer.data()) return true;
    return placed.array.role == Role::output ? placed.buffer.surroundings_intact() : placed.buffer.guards_intact();
  });
}

const DeviceArrays::Placed& DeviceArrays::find(std::string_view name) const {
  const auto at = std::find_if(placed_.begin(), placed_.end(), [&](const Placed& placed) { return placed.array.name == name; });
  if (at == placed_.end()) throw std::logic_error("array '" + std::string(name) + "' is not in the program's list");
  return *at;
}

void* DeviceArrays::data(std::string_view name) const { return find(name).data; }

const std::vector<std::int64_t>& DeviceArrays::strides(std::string_view name) const { return find(name).array.strides; }

}  // namespace run

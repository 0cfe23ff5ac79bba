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

void require_part(const Array& view, const Array& whole) {
  if (view.role != Role::scratch || view.strides.size() + 1 != view.shape.size())
    impossible(view, "a view is scratch memory with strides");
  std::int64_t last = view.offset + view.shape.back() - 1;
  for (std::size_t d = 0; d < view.strides.size(); ++d) last += (view.shape[d] - 1) * view.strides[d];
  if (view.offset < 0 || static_cast<std::size_t>(last + 1) * view.element.bytes() > bytes(whole)) {
    impossible(view, "it ends beyond '" + whole.name + "'");
  }
}

// The one of that name; throws std::out_of_range.
const NamedTensor& named(const std::vector<NamedTensor>& tensors, std::string_view name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& tensor) { return tensor.name == name; });
  if (found == tensors.end()) throw std::out_of_range("there is no output '" + std::string(name) + "'");
  return *found;
}

}  // namespace

std::string_view name(Role role) {
  constexpr std::string_view names[] = {"input", "optional input", "output", "both", "scratch", "plan"};
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
Array output_up_to(std::string name, Element element, std::vector<std::int64_t> shape, const Array& count) {
  Array array = output(std::move(name), element, std::move(shape));
  array.count = count.name;
  return array;
}
Array both(std::string name, Element element, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .role = Role::both, .element = element, .shape = std::move(shape)};
}
Array scratch(std::string name, Element element, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .role = Role::scratch, .element = element, .shape = std::move(shape)};
}
Array of_plan(std::string name, Element element, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .role = Role::plan, .element = element, .shape = std::move(shape)};
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

bool is_internal(const Array& array) { return array.role == Role::scratch || array.role == Role::plan; }

std::size_t scratch_bytes(const Arrays& arrays) {
  std::size_t total = 0;
  for (const Array& array : arrays) total += is_internal(array) ? bytes(array) : 0;
  return total;
}

Arrays operator+(Arrays arrays, const Arrays& more) {
  arrays.insert(arrays.end(), more.begin(), more.end());
  return arrays;
}

std::shared_ptr<const Arrays> DeviceArrays::listed(Arrays arrays) {
  for (auto array = arrays.begin(); array != arrays.end(); ++array) {
    const auto listed_before = [&](const std::string& name) {
      return std::find_if(arrays.begin(), array, [&](const Array& other) { return other.name == name; });
    };
    if (listed_before(array->name) != array) impossible(*array, "there are two of this name");
    if (!array->within.empty()) {
      const auto whole = listed_before(array->within);
      if (whole == array) impossible(*array, "'" + array->within + "' is not listed before it");
      require_part(*array, *whole);
    }
    if (!array->count.empty()) {
      const auto count = listed_before(array->count);
      if (count == array || count->role != Role::output || count->element != Element::int32() ||
          problem::Integers::count(count->shape) != 1) {
        impossible(*array, "its count '" + array->count + "' must be an output of one int32 that is listed before it");
      }
    }
    if (array->strides.empty()) array->strides = RowsBuffer::dense_strides(array->shape);
  }
  return std::make_shared<const Arrays>(std::move(arrays));
}

DeviceArrays::Placed& DeviceArrays::add(const Array& array) {
  Placed& placed = placed_.emplace_back(Placed{&array, {}, nullptr});
  if (!array.within.empty()) {
    const std::size_t offset = static_cast<std::size_t>(array.offset) * array.element.bytes();
    placed.data = static_cast<char*>(find(array.within).data) + offset;
  }
  return placed;
}

const problem::Tensor& tensor_of(const std::vector<NamedTensor>& tensors, std::string_view name) {
  const NamedTensor& output = named(tensors, name);
  if (output.element.is_integer()) throw std::logic_error("output '" + output.name + "' holds integers");
  return output.tensor;
}
const problem::Integers& integers_of(const std::vector<NamedTensor>& tensors, std::string_view name) {
  const NamedTensor& output = named(tensors, name);
  if (!output.element.is_integer()) throw std::logic_error("output '" + output.name + "' holds no integers");
  return output.integers;
}

DeviceArrays::DeviceArrays(const Arrays& arrays, const std::vector<Given>& given) : list_(listed(arrays)) {
  placed_.reserve(list_->size());
  for (const Array& array : *list_) {
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

DeviceArrays::DeviceArrays(std::shared_ptr<const Arrays> list, const std::function<void*(const Array&)>& place)
    : list_(std::move(list)) {
  placed_.reserve(list_->size());
  for (const Array& array : *list_) {
    Placed& placed = add(array);
    if (array.within.empty()) placed.data = place(array);
  }
}

void DeviceArrays::prepare() {
  for (Placed& placed : placed_) {
    const Array& array = *placed.array;
    if (array.within.empty() && (array.role == Role::output || is_internal(array))) placed.buffer.poison();
  }
  for (const Given& given : given_again_) {
    const auto is_its = [&](const Placed& placed) { return placed.array->name == given.name; };
    Placed& placed = *std::find_if(placed_.begin(), placed_.end(), is_its);
    placed.buffer.upload(given, placed.array->at_most);
  }
}

std::vector<NamedTensor> DeviceArrays::download() const {
  std::vector<NamedTensor> outputs;
  for (const Placed& placed : placed_) {
    const Array& array = *placed.array;
    if (!is_downloaded(array)) continue;
    NamedTensor& output = outputs.emplace_back(NamedTensor{.name = array.name, .element = array.element});
    if (array.element.is_integer()) {
      output.integers = placed.buffer.download_integers(entries_of(array));
    } else {
      output.tensor = placed.buffer.download(entries_of(array));
    }
  }
  return outputs;
}

std::int64_t DeviceArrays::entries_of(const Array& output) const {
  if (output.count.empty()) return output.shape[0];
  const std::int64_t counted = find(output.count).buffer.download_integers(1).values[0];
  return std::clamp(counted, std::int64_t{0}, output.shape[0]);
}

bool DeviceArrays::surroundings_intact() const {
  return std::all_of(placed_.begin(), placed_.end(), [](const Placed& placed) {
    if (!placed.buffer.data()) return true;
    return placed.array->role == Role::output ? placed.buffer.surroundings_intact() : placed.buffer.guards_intact();
  });
}

const DeviceArrays::Placed& DeviceArrays::find(std::string_view name) const {
  const auto at =
      std::find_if(placed_.begin(), placed_.end(), [&](const Placed& placed) { return placed.array->name == name; });
  if (at == placed_.end()) throw std::logic_error("array '" + std::string(name) + "' is not in the program's list");
  return *at;
}

void* DeviceArrays::data(std::string_view name) const { return find(name).data; }

const std::vector<std::int64_t>& DeviceArrays::strides(std::string_view name) const { return find(name).array->strides; }

}  // namespace run

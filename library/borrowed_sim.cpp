#include <array>
#include <cstring>
#include <stdexcept>

#include "common/simt/simt.h"
#include "library/borrowed.h"

namespace library {
namespace {

constexpr std::uintptr_t alignment = 256;  // a copy begins where the original does, modulo this

std::size_t padded_bytes(const run::Array& array) { return (run::bytes(array) + alignment - 1) / alignment * alignment; }

// visit(offset): of each row, from the first one.
template <class Visit>
void for_each_row(const Rows& r, const Visit& visit) {
  for (std::int64_t b = 0; b < r.batch; ++b) {
    for (std::int64_t h = 0; h < r.heads; ++h) {
      for (std::int64_t i = 0; i < r.rows; ++i) visit(b * r.batch_stride + h * r.head_stride + i * r.row_stride);
    }
  }
}

// The caller's array of four dimensions at most.
Rows rows_of(const run::Array& array, void* data) {
  const auto element = static_cast<std::int64_t>(array.element.bytes());
  std::array<std::int64_t, 3> counts = {1, 1, 1}, strides = {};
  for (std::size_t d = 0, at = counts.size() - array.strides.size(); d < array.strides.size(); ++d, ++at) {
    counts.at(at) = array.shape[d];
    strides.at(at) = array.strides[d] * element;
  }
  return {data, counts[0], counts[1], counts[2], strides[0], strides[1], strides[2], array.shape.back() * element};
}

}  // namespace

Borrowed::Borrowed(int, void* stream) {
  if (stream != nullptr) throw runtime::Error("the simulator has no streams");
  runtime::take_findings();  // of what ran before
}
Borrowed::~Borrowed() = default;

void* Borrowed::copy(const char* name, const Rows& rows, bool comes_back) {
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(rows.data) % alignment;
  runtime::Buffer buffer(name, from + static_cast<std::size_t>(rows.extent()));
  char* first = buffer.as<char>() + from;
  if (!comes_back) {
    for_each_row(rows, [&](std::int64_t at) {
      simt::mark_written(first + at, static_cast<std::size_t>(rows.row_bytes));
      std::memcpy(first + at, static_cast<const char*>(rows.data) + at, static_cast<std::size_t>(rows.row_bytes));
    });
  }
  copies_.push_back({rows, first, std::move(buffer), comes_back});
  return first;
}

void* Borrowed::input(const char* name, const Rows& rows) { return copy(name, rows, false); }
void* Borrowed::output(const char* name, const Rows& rows) { return copy(name, rows, true); }

run::DeviceArrays Borrowed::arrays(const std::shared_ptr<const run::Arrays>& arrays, const Memory& memory, const Given& given) {
  auto* next_of_plan = static_cast<char*>(memory.plan);
  return run::DeviceArrays(arrays, [&](const run::Array& array) -> void* {
    const auto bytes = static_cast<std::int64_t>(run::bytes(array));
    const auto all = [&](void* data) { return Rows{data, 1, 1, 1, bytes, bytes, bytes, bytes}; };
    const char* name = array.name.c_str();
    if (array.role == run::Role::plan && memory.plan) {
      void* data = next_of_plan;
      next_of_plan += padded_bytes(array);
      return memory.work == Work::plan ? output(name, all(data)) : input(name, all(data));
    }
    if (run::is_internal(array)) return output(name, all(nullptr));
    void* data = const_cast<void*>(given(array));
    return data ? input(name, rows_of(array, data)) : nullptr;
  });
}

void Borrowed::finish() {
  std::string findings;
  for (const runtime::Finding& finding : runtime::take_findings()) findings += (findings.empty() ? "" : "\n") + finding.text;
  if (!findings.empty()) throw runtime::Error(findings);
  for (const Copy& copy : copies_) {
    if (!copy.comes_back || copy.rows.data == nullptr) continue;
    for_each_row(copy.rows, [&](std::int64_t at) {
      std::memcpy(static_cast<char*>(copy.rows.data) + at, copy.first + at, static_cast<std::size_t>(copy.rows.row_bytes));
    });
  }
}

Sizes sizes_of(const run::Arrays& arrays) {
  Sizes sizes{};
  for (const run::Array& array : arrays) sizes.plan += array.role == run::Role::plan ? padded_bytes(array) : 0;
  return sizes;
}

runtime::Properties properties_of(int device) {
  if (device != 0) {
    throw std::invalid_argument("device is " + std::to_string(device) + "; the simulator has number 0 alone");
  }
  return runtime::properties();
}

std::string toolkit() { return runtime::properties().toolkit; }

}  // namespace library

// The caller's memory during one launch. Two halves: on a GPU (borrowed_gpu.cu) kernels work on it as it is; on the simulator
// (borrowed_sim.cpp) on buffers that hold a copy, so that every access is checked against the tensor's own bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/run/harness/arrays.h"
#include "common/runtime/runtime.h"

namespace library {

// Rows within memory. All in bytes, but for the counts.
struct Rows {
  void* data;
  std::int64_t batch, heads, rows;  // how many
  std::int64_t batch_stride, head_stride, row_stride, row_bytes;

  std::int64_t extent() const {
    return (batch - 1) * batch_stride + (heads - 1) * head_stride + (rows - 1) * row_stride + row_bytes;
  }
};

// Where the caller has an array that is not scratch memory, on the device; null: nowhere.
using Given = std::function<const void*(const run::Array&)>;

// What a call does: a launch that makes its plan itself, the plan alone, or a launch with a plan that somebody keeps.
enum class Work { all, plan, planned };

// Of the caller's, on the device: where the plan's arrays lie, and those of scratch memory. Of a launch that makes its plan
// itself, `plan` is null, and its arrays lie behind the others.
struct Memory {
  Work work;
  void* plan;
  void* scratch;
};

// What of it a program needs, in bytes. The simulator has scratch memory of its own.
struct Sizes {
  std::size_t plan;
  std::size_t scratch;          // of a launch that makes its plan itself
  std::size_t planned_scratch;  // of one whose plan lies elsewhere
};
Sizes sizes_of(const run::Arrays& arrays);

class Borrowed {
 public:
  // Makes the device current, and the stream that of launches, until the end of this object. Throws runtime::Error.
  Borrowed(int device, void* stream);
  ~Borrowed();
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  // Where kernels find these rows. What stands in `output` comes back to the caller in finish().
  void* input(const char* name, const Rows& rows);
  void* output(const char* name, const Rows& rows);
  // Where kernels find these arrays: those of scratch memory, and those of a plan, lie one behind the other.
  run::DeviceArrays arrays(const std::shared_ptr<const run::Arrays>& arrays, const Memory& memory, const Given& given);
  // Throws runtime::Error for what the simulator found; a GPU's launches go on.
  void finish();

 private:
  struct Copy {
    Rows rows;    // of scratch memory, which nobody has: without data
    char* first;  // within the buffer
    runtime::Buffer buffer;
    bool comes_back;
  };
  void* copy(const char* name, const Rows& rows, bool comes_back);

  std::vector<Copy> copies_;  // the simulator's
  void* stream_before_ = nullptr;
  int device_before_ = 0;
};

// Of a device by its number. Throws std::invalid_argument where there is none of that number, runtime::Error.
runtime::Properties properties_of(int device);

std::string toolkit();  // "13.0", "g++ 12.2.0": what built the library

}  // namespace library

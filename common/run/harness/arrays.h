// A program is a list of named arrays. From the list follow its memory on the device, uploads, poison, guard zones, downloads,
// files, what it needs, and what --json says of them: a step that adds an output adds a row.
//
//     Arrays arrays(const Attention& a) {
//       return {input("q", a.dtype, {a.batch, a.heads, a.seq_q, a.dim}), …, output("lse", fp32, {a.batch, a.heads, a.seq_q})};
//     }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/problem/tensor.h"
#include "common/run/harness/rows_buffer.h"

namespace run {

enum class Role {
  input,           // uploaded once; kernels only read it
  optional_input,  // the same, where it is given; else there is no memory, and get() is null
  output,          // poisoned before each launch, downloaded, written to a file
  both,            // uploaded before each launch, downloaded after it
  scratch,         // poisoned before each launch: kernels of one program pass values on in it
  plan,            // the same, but written once for a mask, and only read by launches (Variant::plan)
};
std::string_view name(Role role);  // "optional input"

struct Array {
  std::string name;  // of the file, too
  Role role;
  Element element;
  std::vector<std::int64_t> shape;         // the last dimension is contiguous
  std::vector<std::int64_t> strides = {};  // in elements, of all dimensions but the last; empty: nothing lies between rows
  bool at_most = false;                    // of an input: shape[0] is an upper bound, known before the data that decide
  std::string count = {};                  // of an output: the array that says how many of shape[0] entries a launch has made
  std::string within = {};                 // a view: the array of whose memory it is a part; its role is scratch
  std::int64_t offset = 0;                 // of a view: where it begins there, in elements
};
using Arrays = std::vector<Array>;

Array input(std::string name, Element element, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {});
Array optional_input(std::string name, Element element, std::vector<std::int64_t> shape);
Array output(std::string name, Element element, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {});
// An output whose length only the launch knows: shape[0] is an upper bound, and `count` an output of one int32 that is listed
// before it. What lies behind the last entry is not looked at.
Array output_up_to(std::string name, Element element, std::vector<std::int64_t> shape, const Array& count);
Array both(std::string name, Element element, std::vector<std::int64_t> shape);
Array scratch(std::string name, Element element, std::vector<std::int64_t> shape);
Array of_plan(std::string name, Element element, std::vector<std::int64_t> shape);
Array view(std::string name, const Array& whole, std::int64_t offset, std::vector<std::int64_t> shape,
           std::vector<std::int64_t> strides);

std::size_t bytes(const Array& array);            // of device memory; 0 for a view
bool is_internal(const Array& array);             // scratch memory, or a plan's: nobody gives or takes its values
std::size_t scratch_bytes(const Arrays& arrays);  // of all these
Arrays operator+(Arrays arrays, const Arrays& more);

// What an output holds: floating-point numbers, or integers in their place.
struct NamedTensor {
  std::string name;
  Element element;
  problem::Tensor tensor = {};
  problem::Integers integers = {};
};

// The one of that name. Throws std::out_of_range; std::logic_error for one that holds the other kind.
const problem::Tensor& tensor_of(const std::vector<NamedTensor>& tensors, std::string_view name);
const problem::Integers& integers_of(const std::vector<NamedTensor>& tensors, std::string_view name);

// The arrays in device memory.
class DeviceArrays {
 public:
  // All but optional inputs that are not among `given`. Throws runtime::OutOfMemory; std::logic_error for a list that cannot
  // be: two arrays of one name, a view that is not scratch, or of an array that is not listed before it, or beyond its end; a
  // count that is none.
  explicit DeviceArrays(const Arrays& arrays, const std::vector<Given>& given = {});

  // In memory that somebody else has: place(array) is where an array begins. Of views it is not asked. Nothing is uploaded,
  // prepared or downloaded. The list, of listed(), is shared and not copied, so that this costs a launch little.
  DeviceArrays(std::shared_ptr<const Arrays> list, const std::function<void*(const Array&)>& place);

  // The list with the strides of every array. Throws std::logic_error for one that cannot be, as above.
  static std::shared_ptr<const Arrays> listed(Arrays arrays);

  // Outputs, scratch memory and plans are poisoned, arrays that are both are uploaded again.
  void prepare();
  // Outputs, in the order of the list; dense. A count beyond what there is room for counts as all, one below 0 as none: it is
  // an output itself, and judged.
  std::vector<NamedTensor> download() const;
  bool surroundings_intact() const;  // nothing was written around an array nor, since prepare(), into an output's gaps

  // The first element; null for an optional input that was not given. Throws std::logic_error for a name that is not listed.
  template <class T>
  T* get(std::string_view name) const {
    return static_cast<T*>(data(name));
  }
  void* data(std::string_view name) const;
  const std::vector<std::int64_t>& strides(std::string_view name) const;  // in elements, of all dimensions but the last

 private:
  struct Placed {
    const Array* array;  // of the list
    RowsBuffer buffer;   // of a view, and of an optional input that was not given: none
    void* data = nullptr;
  };
  const Placed& find(std::string_view name) const;
  Placed& add(const Array& array);  // a view has its place then
  std::int64_t entries_of(const Array& output) const;

  std::shared_ptr<const Arrays> list_;
  std::vector<Placed> placed_;
  std::vector<Given> given_again_;  // those of arrays that are both
};

}  // namespace run

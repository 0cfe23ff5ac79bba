// What the machine can do at most: launches whose cost is known, for the executable to time and for the tests to check.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ceilings {

struct Ceiling {
  std::string name;  // as in docs/machine: "copy_bytes_per_second"
  std::string what;
  double amount;  // bytes or operations of one launch
  std::function<void()> launch;
  std::function<bool(double)> did;  // after a launch: so many bytes or operations, by the result that they must leave behind
};

// `scale` 1 for a GPU: buffers of gigabytes, kernels of milliseconds. Smaller for tests. Owns its memory until destroyed.
class Ceilings {
 public:
  Ceilings(double scale, int multiprocessors);
  ~Ceilings();
  Ceilings(const Ceilings&) = delete;
  Ceilings& operator=(const Ceilings&) = delete;
  const std::vector<Ceiling>& all() const { return all_; }

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
  std::vector<Ceiling> all_;
};

}  // namespace ceilings

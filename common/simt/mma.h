// mma.sync is made late. Its sums stay in the lane's registers, so nobody can tell when it was computed: a lane that comes to
// one notes its operands and goes on. Only when it looks at a sum, or comes to anything that the lanes of a warp or block do
// together, it waits until all that it noted was made, by the whole warp. A main loop asks for dozens of products before that,
// and each fiber is switched to once for all of them.
//
// A sum that is still to come holds the place of its product: a NaN that no arithmetic makes. Places do three things:
//   - A hook (access.h) of a local array looks for them, and waits if there is one. So a kernel never sees them.
//   - An access without a hook would see them, and no old sums: NaNs in the output instead of a result that is nearly right.
//     (All have hooks. A local array whose address goes to mma() is one that g++ cannot prove to be local.)
//   - A product is stored only where its own place still stands. If the array's life has ended meanwhile, the compiler may
//     have given its bytes to another variable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace simt {

struct Lane;
struct WarpCall;

// An mma.sync that a lane has come to.
struct QueuedMultiply {
  std::uint32_t a[4];  // k / 4 of them
  std::uint32_t b[2];  // k / 8
  float sums[4];       // C, and D when it is made
  float* d;
  const void* pc;
  std::source_location where;
  std::uint32_t place;  // what stands in d until then
  std::uint16_t back;   // C is the D of the product that stands so many before this one in the queue; 0: it is `sums`
  std::uint8_t k;       // 8 or 16
  bool bfloat;          // or half
};

class MultiplyQueue {
 public:
  static constexpr std::size_t limit = 64;  // as many as fit into the caches with those of the other lanes
  static constexpr std::uint32_t first_place = 0x7fa50000u;

  void clear() {
    products.clear();
    made = 0;
    low_ = ~std::uintptr_t{0};
    high_ = 0;
  }
  // Adds a product that is to be stored at d, and leaves its place there.
  QueuedMultiply& add(float* d);
  bool is_place(std::uint32_t word) const { return word - first_place < products.size(); }
  // Does a place stand in these bytes? Most local arrays lie elsewhere.
  [[gnu::always_inline]] bool has_place_in(std::uintptr_t address, std::size_t bytes) const {
    return address < high_ && address + bytes > low_ && finds_place_in(address, bytes);
  }

  std::vector<QueuedMultiply> products;
  std::size_t made = 0;  // of them; while the lane runs, none is

 private:
  bool finds_place_in(std::uintptr_t address, std::size_t bytes) const;

  std::uintptr_t low_ = ~std::uintptr_t{0};  // all places lie between these two
  std::uintptr_t high_ = 0;
};

// Waits until all products that the lane came to are made.
void await_products(Lane& lane);
// The call in which a lane must wait first: that of its first product, or `call` if it has none.
WarpCall* behind_products(Lane& lane, WarpCall* call);

}  // namespace simt

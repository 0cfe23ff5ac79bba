#include "common/simt/engine.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"

// What kernels see under these names; set before a lane runs.
constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace simt {

constinit thread_local Lane* current_lane = nullptr;

namespace {

Options current_options;

// Of calls: mostly one string. Files that were compiled apart have their own.
bool same_name(const char* a, const char* b) { return a == b || std::string_view(a) == b; }

}  // namespace

void configure(const Options& options) { current_options = options; }
const Options& options() { return current_options; }

// ---- names ----

std::string to_string(uint3 v) {
  std::ostringstream text;
  text << '(' << v.x << ", " << v.y << ", " << v.z << ')';
  return text.str();
}

uint3 position(dim3 size, std::uint64_t linear) {
  return {static_cast<unsigned>(linear % size.x), static_cast<unsigned>(linear / size.x % size.y),
          static_cast<unsigned>(linear / size.x / size.y)};
}

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}

std::string ranges(std::uint32_t lanes) {
  std::ostringstream text;
  for (int first = 0; first < warp_size; ++first) {
    if (!(lanes >> first & 1)) continue;
    int last = first;
    while (last + 1 < warp_size && (lanes >> (last + 1) & 1)) ++last;
    if (text.tellp() > 0) text << ", ";
    text << first;
    if (last > first) text << '-' << last;
    first = last;
  }
  return text.str();
}

std::string Block::describe(const Lane& lane) const {
  return describe_thread(run_->launch, linear_index_, static_cast<unsigned>(lane.index));
}

std::string Block::describe() const { return describe_block(run_->launch, linear_index_); }

std::string describe_block(const Launch& launch, std::uint64_t block) {
  return "block " + to_string(position(launch.grid, block));
}

std::string describe_thread(const Launch& launch, std::uint64_t block, unsigned thread) {
  return describe_block(launch, block) + ", warp " + std::to_string(thread / warp_size) + ", lane " +
         std::to_string(thread % warp_size) + " (thread " + to_string(position(launch.block, thread)) + ")";
}

// ---- lanes ----

bool WarpCall::matches(const WarpCall& other) const {
  return mask == other.mask && same_name(name, other.name) && bytes == other.bytes &&
         (barrier == nullptr || barrier->id == other.barrier->id);
}

std::string WarpCall::describe() const {
  if (barrier != nullptr) return barrier->describe();
  std::ostringstream text;
  text << name << (bytes == 8 ? " of 8 bytes" : "") << "(0x" << std::hex << mask << ')';
  return text.str();
}

std::string BarrierCall::describe() const {
  return of_cluster() || std::string_view(name) == "__syncthreads()"
             ? name
             : std::string(name) + ' ' + std::to_string(id) + ", " + std::to_string(threads);
}

void Lane::wait() {
  yielded = false;
  if (state != State::too_far_ahead) fresh = true;
  fiber.suspend();
}

void Lane::yield() {
  await_products(*this);
  await_issued(*this);
  yielded = true;
  fiber.suspend();
}

void Lane::note_found(std::uintptr_t address, std::uint64_t value, const void* pc) {
  std::uint64_t seed = reinterpret_cast<std::uintptr_t>(pc) ^ address << 20 ^ value * 0x9e3779b97f4a7c15u;
  const std::uint64_t mark = next_random(seed);
  polls_pc = pc;
  polls = address;
  fresh = std::find(found.begin(), found.end(), mark) == found.end();
  if (fresh) found[found_next++ % found.size()] = mark;
}

}  // namespace simt

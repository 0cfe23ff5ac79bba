#include "common/runtime/plain_cuda.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace plain {
namespace {

struct Work {
  cudaStream_t stream;  // null: the default one
  std::string what;     // "row_sum<<<…>>>"
  std::function<void()> run;
};

struct Memory {
  std::string name;
  std::size_t bytes;
};

// All that CUDA's runtime would know of this program.
struct State {
  std::map<std::uintptr_t, Memory> memory;  // by first address
  std::deque<Work> work;                    // that nothing has waited for, oldest first
  std::map<cudaStream_t, std::unique_ptr<int>> streams;
  cudaError_t last_error = cudaSuccess;
  int complaints = 0;
};

State& state();

void complain(const std::string& text) {
  std::fprintf(stderr, "simulator: %s\n", text.c_str());
  ++state().complaints;
}

// A finding names the flag of the step executables that replays it; a plain program has an environment variable.
void show_findings() {
  for (const simt::Finding& finding : simt::take_findings()) {
    std::string text = finding.text;
    const std::string flag = "--sim-seed ";
    for (std::size_t at = text.find(flag); at != std::string::npos; at = text.find(flag))
      text.replace(at, flag.size(), "SIM_SEED=");
    complain(text + (finding.count > 1 ? "\n  seen " + std::to_string(finding.count) + " times" : ""));
  }
}

// What SIM_COUNTERS asks for: the counters of all launches, as JSON.
void write_counters(const char* file) {
  nlohmann::ordered_json launches = nlohmann::ordered_json::array();
  for (const simt::KernelCounters& k : simt::take_counters()) {
    std::uint64_t loaded = 0, stored = 0;
    for (const simt::LineCounters& line : k.lines) {
      if (line.form == simt::Form::global || line.form == simt::Form::reduction) (line.store ? stored : loaded) += line.sectors;
    }
    launches.push_back({{"kernel", k.kernel},
                        {"blocks", std::uint64_t{k.grid.x} * k.grid.y * k.grid.z},
                        {"threads", std::uint64_t{k.block.x} * k.block.y * k.block.z},
                        {"barriers", k.barriers},
                        {"sectors_loaded", loaded},
                        {"sectors_stored", stored}});
  }
  std::ofstream out(file);
  out << launches.dump(1) << '\n';
  if (!out.flush()) complain(std::string("SIM_COUNTERS=") + file + ": it cannot be written");
}

// At the program's end: what was never waited for, the counters, and the exit status.
void finish() {
  State& s = state();
  if (const char* file = std::getenv("SIM_COUNTERS")) write_counters(file);
  std::fflush(stdout);
  for (const Work& work : s.work) complain(work.what + ": the program ended, and nothing had waited for it");
  if (s.complaints != 0) std::_Exit(1);
}

std::uint64_t seed_of_environment() {
  const char* text = std::getenv("SIM_SEED");
  if (text == nullptr) return 1;
  std::uint64_t seed = 0;
  const char* const end = text + std::strlen(text);
  if (const auto read = std::from_chars(text, end, seed); read.ec != std::errc() || read.ptr != end) {
    std::fprintf(stderr, "SIM_SEED=%s: it must be a number from 0 to 2^64 - 1\n", text);
    std::_Exit(2);
  }
  return seed;
}

State& state() {
  static State* const one = [] {
    simt::Options options;
    options.seed = seed_of_environment();
    options.counters = std::getenv("SIM_COUNTERS") != nullptr;
    simt::configure(options);
    simt::check_host_accesses();
    std::atexit(finish);
    return new State;  // outlives the program's own objects
  }();
  return *one;
}

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) state().last_error = error;
  return error;
}

cudaError_t failed(cudaError_t error, const std::string& why) {
  std::fprintf(stderr, "simulator: %s\n", why.c_str());
  return failed(error);
}

// The device memory that holds the address; null for all other addresses.
const std::pair<const std::uintptr_t, Memory>* memory_at(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto after = state().memory.upper_bound(address);
  if (after == state().memory.begin()) return nullptr;
  const auto& found = *--after;
  return address < found.first + found.second.bytes ? &found : nullptr;
}

void run(const std::deque<Work>& now) {
  for (const Work& one : now) {
    one.run();
    show_findings();
  }
}

void wait_for_all() { run(std::exchange(state().work, {})); }

// Does a stream's work, and what that has to wait for: all that stands before its last work of the default stream, this
// included.
void wait_for(cudaStream_t stream) {
  std::deque<Work>& work = state().work;
  const auto behind_last = [&](cudaStream_t of, std::size_t end) {
    while (end > 0 && work[end - 1].stream != of) --end;
    return end;
  };
  const std::size_t of_stream = behind_last(stream, work.size()), needed = behind_last(nullptr, of_stream);
  std::deque<Work> now, later;
  for (std::size_t i = 0; i < work.size(); ++i)
    (i < needed || work[i].stream == stream ? now : later).push_back(std::move(work[i]));
  work = std::move(later);
  run(now);
}

bool is_stream(cudaStream_t stream) { return stream == nullptr || state().streams.contains(stream); }

// Whether a side of a copy is what the copy's kind says: a device address with that many bytes behind it, or a host address.
bool side_is_right(const char* side, const void* pointer, std::size_t bytes, bool device, const char* kind,
                   const Where& where) {
  const auto* memory = memory_at(pointer);
  if (device && memory == nullptr) {
    failed(cudaErrorInvalidValue,
           simt::place_of(where) + ": the " + side + " of this copy is no device memory, as " + kind + " says");
    return false;
  }
  if (!device && memory != nullptr) {
    failed(cudaErrorInvalidValue, simt::place_of(where) + ": the " + side + " of this copy is device memory, '" +
                                      memory->second.name + "', and not host memory, as " + kind + " says");
    return false;
  }
  if (!device) return true;
  const std::size_t room = memory->first + memory->second.bytes - reinterpret_cast<std::uintptr_t>(pointer);
  if (bytes > room) {
    failed(cudaErrorInvalidValue, simt::place_of(where) + ": " + std::to_string(bytes) + " bytes are more than '" +
                                      memory->second.name + "' has from the " + side + " on, which is " + std::to_string(room));
    return false;
  }
  return true;
}

const char* name_of(cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return "cudaMemcpyHostToHost";
    case cudaMemcpyHostToDevice:
      return "cudaMemcpyHostToDevice";
    case cudaMemcpyDeviceToHost:
      return "cudaMemcpyDeviceToHost";
    case cudaMemcpyDeviceToDevice:
      return "cudaMemcpyDeviceToDevice";
    default:
      return "cudaMemcpyDefault";
  }
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream, bool wait,
                 const Where& where) {
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault) {
    to_device = memory_at(to) != nullptr;
    from_device = memory_at(from) != nullptr;
  } else if (kind != cudaMemcpyHostToHost && !to_device && !from_device) {
    return failed(cudaErrorInvalidMemcpyDirection);
  }
  if (!is_stream(stream)) return failed(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!side_is_right("destination", to, bytes, to_device, name_of(kind), where) ||
      !side_is_right("source", from, bytes, from_device, name_of(kind), where)) {
    return cudaErrorInvalidValue;
  }
  state().work.push_back(
      {stream, simt::place_of(where) + ": this copy", [=, from_name = from_device ? memory_at(from)->second.name : ""] {
         if (from_device) {
           const std::size_t written = simt::written_bytes(from, bytes);
           if (written < bytes) {
             complain(simt::place_of(where) + ": uninitialised read: this copy reads '" + from_name + "', of which byte " +
                      std::to_string(written) + " of the copy was never written");
           }
         }
         if (to_device) simt::mark_written(to, bytes);
         std::memmove(to, from, bytes);
       }});
  if (wait) wait_for_all();
  return cudaSuccess;
}

}  // namespace

cudaError_t allocate(const char* name, void** pointer, std::size_t bytes) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  state();  // before the first allocation: host code must not touch it
  void* const memory = simt::allocate(name, bytes);
  if (memory == nullptr) return failed(cudaErrorMemoryAllocation);
  state().memory[reinterpret_cast<std::uintptr_t>(memory)] = {name, bytes};
  *pointer = memory;
  return cudaSuccess;
}

void enqueue(const Launch& launch, const std::function<void(const Launch&)>& run) {
  constexpr std::size_t most_shared = 48 * 1024;
  const auto& [fixed, grid, block, dynamic, stream] = launch;
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  if (!is_stream(stream)) {
    failed(cudaErrorInvalidResourceHandle);
  } else if (threads == 0 || threads > simt::max_threads_per_block || block.z > 64 || grid.x == 0 || grid.y == 0 ||
             grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    failed(cudaErrorInvalidConfiguration);
  } else if (fixed + dynamic > most_shared) {
    failed(cudaErrorInvalidValue, std::to_string(fixed + dynamic) + " bytes of shared memory are more than the " +
                                      std::to_string(most_shared) + " that a kernel has without asking for more");
  } else {
    state().work.push_back({stream, "a launch", [=] {
                              try {
                                run(launch);
                              } catch (const simt::LaunchError& error) {
                                complain(error.text);
                                failed(cudaErrorLaunchFailure);
                              }
                            }});
  }
}

cudaError_t cudaFree(void* pointer, const Where& where) {
  if (pointer == nullptr) return cudaSuccess;
  const auto found = state().memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == state().memory.end()) {
    return failed(cudaErrorInvalidValue, simt::place_of(where) + ": this is not the start of device memory (freed twice?)");
  }
  wait_for_all();
  simt::release(pointer);
  state().memory.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const Where& where) {
  return copy(to, from, bytes, kind, nullptr, true, where);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                            const Where& where) {
  return copy(to, from, bytes, kind, stream, false, where);
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes, const Where& where) {
  if (bytes == 0) return cudaSuccess;
  if (!side_is_right("destination", to, bytes, true, "cudaMemset", where)) return cudaErrorInvalidValue;
  state().work.push_back({nullptr, simt::place_of(where) + ": this cudaMemset", [=] {
                            simt::mark_written(to, bytes);
                            std::memset(to, value, bytes);
                          }});
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  auto made = std::make_unique<int>();
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  state().streams.emplace(*stream, std::move(made));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr || !is_stream(stream)) return failed(cudaErrorInvalidResourceHandle);
  wait_for(stream);
  state().streams.erase(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!is_stream(stream)) return failed(cudaErrorInvalidResourceHandle);
  wait_for(stream);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  wait_for_all();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(state().last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return state().last_error; }

namespace {

struct Named {
  cudaError_t error;
  const char *name, *text;
};

constexpr Named names[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
};

const Named& named(cudaError_t error) {
  static constexpr Named unknown = {cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  for (const Named& one : names) {
    if (one.error == error) return one;
  }
  return unknown;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) { return named(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return named(error).text; }

}  // namespace plain

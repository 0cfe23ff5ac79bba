// device/runtime.h on the simulator.
#include <cstring>
#include <utility>

#include "common/runtime/launch.h"

namespace runtime {
namespace {

std::string megabytes(std::size_t bytes) { return std::to_string((bytes + 999999) / 1000000) + " MB"; }

}  // namespace

const Properties& properties() {
  static Properties known = [] {
    Properties p;
    p.backend = "sim";
    p.name = "FlashSteps simulator";
    p.memory_bytes = simt::memory_available();
    p.toolkit = "g++ " __VERSION__;
    return p;
  }();
  known.shared_bytes_per_block = simt::shared_bytes_of_block();
  known.compute_capability = simt::options().device == simt::Device::rtx3090 ? 86 : 0;  // as the H100, it is whatever is needed
  return known;
}

Buffer::Buffer(std::string name, std::size_t bytes) : name_(std::move(name)), bytes_(bytes) {
  const std::size_t available = simt::memory_available();
  data_ = simt::allocate(name_, bytes);
  if (data_ == nullptr) {
    throw OutOfMemory("out of device memory: " + megabytes(bytes) + " asked for by '" + name_ + "', " + megabytes(available) +
                      " available (the simulator uses 1/" + std::to_string(simt::memory_share) + " of this machine's memory)");
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : name_(std::move(other.name_)), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) simt::release(data_);
}

void Buffer::upload(const void* host, std::size_t bytes) {
  simt::mark_written(data_, bytes);  // throws if the buffer is too small
  std::memcpy(data_, host, bytes);
}

void Buffer::download(void* host, std::size_t bytes) const {
  simt::await_launches();
  std::memcpy(host, data_, bytes);
}

void Buffer::poison() {
  auto* words = static_cast<unsigned char*>(data_);
  for (std::size_t i = 0; i < bytes_; ++i) words[i] = reinterpret_cast<const unsigned char*>(&poison_word)[i % 4];
  simt::mark_unwritten(data_, bytes_);
}

bool Buffer::guards_intact() const { return simt::red_zones_intact(data_); }

void synchronize() { simt::await_launches(); }

Timer::Timer() { throw Error("the simulator has no time to measure"); }
Timer::~Timer() = default;
void Timer::start() {}
void Timer::stop() {}
double Timer::milliseconds() const { return 0; }

Graph::Graph(const std::function<void()>&) { throw Error("the simulator has no time to measure"); }
Graph::~Graph() = default;
void Graph::launch() const {}

void launch_on_simulator(const simt::Launch& launch) {
  try {
    simt::launch(launch);
  } catch (const simt::LaunchError& error) {
    throw Error(error.text);
  }
}

void configure(const SimOptions& options) {
  simt::configure({options.seed, static_cast<simt::AsyncMode>(options.async_mode), options.workers, options.races, false, false,
                   static_cast<simt::Device>(options.device)});
}

void in_another_order(const std::function<void()>& work) {
  struct Restore {
    simt::Options before = simt::options();
    ~Restore() { simt::configure(before); }
  };
  const Restore restore;
  simt::Options other = restore.before;
  ++other.seed;
  simt::configure(other);
  work();
}

std::vector<Finding> take_findings() {
  std::vector<Finding> findings;
  for (simt::Finding& f : simt::take_findings()) {
    findings.push_back({std::move(f.kind), std::move(f.kernel), std::move(f.where), std::move(f.text), f.count});
  }
  return findings;
}

void set_counting(bool on) {
  simt::Options options = simt::options();
  options.counters = on;
  simt::configure(options);
}

namespace {

Space space_of(const simt::LineCounters& line) {  // of a copy: where it comes from
  return line.form == simt::Form::shared || line.form == simt::Form::matrix ? Space::shared : Space::global;
}

Op op_of(const simt::LineCounters& line) {
  switch (line.form) {
    case simt::Form::copy_through_l1:
      return Op::copy_through_l1;
    case simt::Form::copy_past_l1:
      return Op::copy_past_l1;
    case simt::Form::matrix:
      return line.store ? Op::matrix_store : Op::matrix_load;
    case simt::Form::reduction:
      return Op::reduction;
    default:
      return line.store ? Op::store : Op::load;
  }
}

}  // namespace

std::vector<KernelCounters> take_counters() {
  std::vector<KernelCounters> all;
  for (simt::KernelCounters& k : simt::take_counters()) {
    KernelCounters& counters = all.emplace_back();
    counters.kernel = std::move(k.kernel);
    counters.grid = {k.grid.x, k.grid.y, k.grid.z};
    counters.block = {k.block.x, k.block.y, k.block.z};
    counters.shared_bytes = k.shared_bytes;
    counters.barriers = k.barriers;
    counters.shuffles = k.shuffles;
    counters.tensor_instructions = k.tensor_instructions;
    counters.bytes_loaded = k.bytes_loaded;
    counters.bytes_stored = k.bytes_stored;
    for (simt::LineCounters& line : k.lines) {
      counters.lines.push_back({std::move(line.where), space_of(line), op_of(line), line.bytes, line.sites, line.instructions,
                                line.requests, line.sectors, line.wavefronts, line.wavefronts_ideal});
    }
  }
  return all;
}

void set_tracing(bool on) {
  simt::Options options = simt::options();
  options.trace = on;
  simt::configure(options);
}

std::vector<KernelTrace> take_traces() {
  const auto addresses = [](simt::TracedAddresses& a) { return TracedAddresses{std::move(a.first), std::move(a.offsets)}; };
  std::vector<KernelTrace> all;
  for (simt::KernelTrace& k : simt::take_traces()) {
    KernelTrace& trace = all.emplace_back();
    trace.kernel = std::move(k.kernel);
    trace.grid = {k.grid.x, k.grid.y, k.grid.z};
    trace.block = {k.block.x, k.block.y, k.block.z};
    trace.shared_bytes = k.shared_bytes;
    for (simt::TraceEvent& e : k.events) {
      trace.events.push_back({std::move(e.op), std::move(e.where), e.lanes, e.operand, e.bytes, addresses(e.global), e.sectors,
                              addresses(e.shared), e.wavefronts, e.wavefronts_ideal});
    }
  }
  return all;
}

}  // namespace runtime

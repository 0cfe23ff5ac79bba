// device/runtime.h on the CUDA runtime.
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/runtime/launch.h"

namespace runtime {
namespace {

constexpr std::size_t guard_bytes = 4096;  // before and after each buffer
constexpr unsigned char guard_byte = 0xa5;

std::string megabytes(std::size_t bytes) { return std::to_string((bytes + 999999) / 1000000) + " MB"; }

std::string version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

int attribute(cudaDeviceAttr which) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

__global__ void fill_words(std::uint32_t* words,  // [count]
                           std::size_t count, std::uint32_t value) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    words[i] = value;
  }
}

}  // namespace

thread_local cudaStream_t launch_stream = nullptr;

void fail(cudaError_t status, const char* call, const char* file, int line) {
  const std::string text = std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")\n  in " + call +
                           " at " + file + ":" + std::to_string(line);
  cudaGetLastError();  // an error that the device can recover from must not show again at the next call
  if (status == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw Error(text);
}

const Properties& properties() {
  static const Properties known = [] {
    cudaDeviceProp device;
    CUDA_CHECK(cudaGetDeviceProperties(&device, 0));
    int driver = 0;
    int runtime = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    Properties p;
    p.backend = "gpu";
    p.name = device.name;
    p.compute_capability = 10 * device.major + device.minor;
    p.multiprocessors = device.multiProcessorCount;
    p.shared_bytes_per_block = device.sharedMemPerBlockOptin;
    p.memory_bytes = device.totalGlobalMem;
    p.l2_bytes = static_cast<std::size_t>(device.l2CacheSize);
    p.sm_clock_mhz = attribute(cudaDevAttrClockRate) / 1000;
    p.driver = version(driver);
    p.toolkit = "nvcc " + version(runtime);
    return p;
  }();
  return known;
}

Buffer::Buffer(std::string name, std::size_t bytes) : name_(std::move(name)), bytes_(bytes) {
  std::size_t available = 0;
  std::size_t total = 0;
  CUDA_CHECK(cudaMemGetInfo(&available, &total));
  void* base = nullptr;
  if (bytes + 2 * guard_bytes > available || cudaMalloc(&base, bytes + 2 * guard_bytes) != cudaSuccess) {
    cudaGetLastError();
    throw OutOfMemory("out of device memory: " + megabytes(bytes) + " asked for by '" + name_ + "', " + megabytes(available) +
                      " available of " + megabytes(total));
  }
  data_ = static_cast<unsigned char*>(base) + guard_bytes;
  CUDA_CHECK(cudaMemset(base, guard_byte, guard_bytes));
  CUDA_CHECK(cudaMemset(as<unsigned char>() + bytes, guard_byte, guard_bytes));
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
  if (data_ != nullptr) cudaFree(as<unsigned char>() - guard_bytes);  // a failed launch shows at the next checked call
}

void Buffer::upload(const void* host, std::size_t bytes) {
  if (bytes > bytes_) throw std::logic_error("upload of " + std::to_string(bytes) + " bytes to '" + name_ + "'");
  CUDA_CHECK(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
}

void Buffer::download(void* host, std::size_t bytes) const {
  CUDA_CHECK(cudaMemcpy(host, data_, bytes, cudaMemcpyDeviceToHost));
}

void Buffer::poison() {
  const std::size_t words = bytes_ / 4;
  if (words > 0) launch(fill_words, {.grid = 1024, .block = 256}, as<std::uint32_t>(), words, poison_word);
  if (bytes_ % 4 != 0) {
    CUDA_CHECK(cudaMemcpy(as<unsigned char>() + 4 * words, &poison_word, bytes_ % 4, cudaMemcpyHostToDevice));
  }
  synchronize();  // a dependent launch that follows would not wait for this one
}

bool Buffer::guards_intact() const {
  std::vector<unsigned char> guards(2 * guard_bytes);
  CUDA_CHECK(cudaMemcpy(guards.data(), as<unsigned char>() - guard_bytes, guard_bytes, cudaMemcpyDeviceToHost));
  CUDA_CHECK(cudaMemcpy(guards.data() + guard_bytes, as<unsigned char>() + bytes_, guard_bytes, cudaMemcpyDeviceToHost));
  return std::all_of(guards.begin(), guards.end(), [](unsigned char byte) { return byte == guard_byte; });
}

void synchronize() { CUDA_CHECK(cudaDeviceSynchronize()); }

Timer::Timer() {
  cudaEvent_t begin;
  cudaEvent_t end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  begin_ = begin;
  end_ = end;
}

Timer::~Timer() {
  cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  cudaEventDestroy(static_cast<cudaEvent_t>(end_));
}

void Timer::start() { CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(begin_))); }

void Timer::stop() { CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(end_))); }

double Timer::milliseconds() const {
  CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)));
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_)));
  return milliseconds;
}

namespace {

// While it lives, launches are recorded. Its stream is one that the default stream waits for, so that a launch past
// runtime::launch() is an error, and does not just miss in the recording.
struct Recording {
  cudaGraph_t graph = nullptr;

  Recording() { CUDA_CHECK(cudaStreamCreate(&launch_stream)); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void begin() { CUDA_CHECK(cudaStreamBeginCapture(launch_stream, cudaStreamCaptureModeThreadLocal)); }
  void end() { CUDA_CHECK(cudaStreamEndCapture(launch_stream, &graph)); }

  ~Recording() {
    if (graph == nullptr) cudaStreamEndCapture(launch_stream, &graph);  // a launch failed
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaStreamDestroy(launch_stream);
    launch_stream = nullptr;
    cudaGetLastError();  // of a recording that failed: the next call must not show it again
  }
};

}  // namespace

Graph::Graph(const std::function<void()>& launches) {
  Recording recording;
  recording.begin();
  launches();
  recording.end();
  cudaGraphExec_t executable;
  CUDA_CHECK(cudaGraphInstantiateWithFlags(&executable, recording.graph, 0));
  executable_ = executable;
}

Graph::~Graph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)); }

void Graph::launch() const { CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), launch_stream)); }

void configure(const SimOptions&) { throw Error("this is the gpu build: it has no simulator to configure"); }

void in_another_order(const std::function<void()>& work) { work(); }

std::vector<Finding> take_findings() { return {}; }

void set_counting(bool) { throw Error("this is the gpu build: Nsight Compute counts here"); }

std::vector<KernelCounters> take_counters() { return {}; }

void set_tracing(bool) { throw Error("this is the gpu build: only the simulator can trace a warp"); }

std::vector<KernelTrace> take_traces() { return {}; }

}  // namespace runtime

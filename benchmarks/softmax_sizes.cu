// Step 03, `vectorised`, with other numbers of threads to a row and of chunks to a thread: which is the fastest, for rows of
// which length? build/gpu/bin/softmax_sizes --variant all --bench --rows 16384 --cols 4096
#include "common/run/family/any_step.h"
#include "steps/03_online_softmax/host.h"

namespace {

using namespace online_softmax;

template <int group, int most>
run::SoftmaxVariant size() {
  run::SoftmaxVariant variant;
  variant.name = "threads_" + std::to_string(group) + "_chunks_" + std::to_string(most);
  variant.idea = "a row in the registers of " + std::to_string(group) + " threads";
  variant.supports.max_row_bytes = 16 * group * most;
  variant.shared_bytes = [](const Softmax&) { return sizeof(WarpStatesSmem<vectorised_block(group)>); };
  variant.cost = [](const Softmax& s) { return std::vector{problem::row_softmax_cost(s, "vectorised_softmax")}; };
  variant.launch = [](const run::SoftmaxLaunch& l) {
    if (!aligned_alike(l.shape)) throw std::invalid_argument("x and y must start alike, modulo 16 bytes");
    with_type(l.shape.dtype, [&]<class T>(T) { launch_vectorised<T, group, most>(l); });
  };
  return variant;
}

}  // namespace

run::AnyStep run::this_step() {
  static const SoftmaxStep step = [] {
    SoftmaxStep s;
    s.name = "softmax_sizes";
    s.question = "How many threads for a row, and how many chunks for a thread?";
    s.default_shape.rows = 16384;
    s.default_shape.cols = 4096;
    s.default_shape.dtype = problem::Dtype::fp16;
    s.default_variant = "threads_64_chunks_8";
    s.variants = {size<32, 2>(),  size<32, 4>(),  size<32, 8>(),   size<64, 4>(),   size<64, 8>(),   size<128, 2>(),
                  size<128, 4>(), size<128, 8>(), size<256, 2>(),  size<256, 4>(),  size<256, 8>(),  size<512, 2>(),
                  size<512, 4>(), size<512, 8>(), size<1024, 1>(), size<1024, 2>(), size<1024, 4>(), size<1024, 8>()};
    return s;
  }();
  return &step;
}

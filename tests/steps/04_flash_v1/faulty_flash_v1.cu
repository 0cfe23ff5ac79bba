#include "steps/04_flash_v1/host.h"
#include "tests/steps/04_flash_v1/faulty_flash_v1.h"

namespace faulty {
namespace {

using namespace flash_v1;

constexpr int smem_bytes = 48 * 1024;

// Adds the keys [first, end) to the rows' state, as if there were no others.
template <class Update = PapersUpdate>
void launch_range(const AttentionLaunch& l, int first, int end) {
  AttentionLaunch part = l;
  const auto skip = [&](device::AnyHeads<true>& view) {
    view.data = static_cast<const float*>(view.data) + first * view.row_stride;
  };
  skip(part.k);
  skip(part.v);
  part.shape.seq_k = end - first;
  with_budget<smem_bytes>(l.shape.dim, [&]<class B>(B) {
    launch_keys<float>(part, algorithm_1<float, B, Update>, scalar_threads, sizeof(ScalarSmem<B>));
  });
}

run::AttentionVariant variant(std::string name, std::function<void(const AttentionLaunch&)> launch_all_keys) {
  return {
      .name = std::move(name),
      .idea = "for tests",
      .supports = {.causal = false},  // a shorter seq_k would move the mask
      .shared_bytes =
          [](const Attention& a) { return with_budget<smem_bytes>(a.dim, []<class B>(B) { return sizeof(ScalarSmem<B>); }); },
      .scratch = state_arrays,
      .cost = [](const Attention&) { return std::vector<problem::KernelCost>{}; },
      .launch =
          [=](const AttentionLaunch& l) {
            launch_initialise(l);
            launch_all_keys(l);
            launch_finish<float>(l);
          }};
}

struct WithoutRescale {
  __device__ float operator()(const device::MergedSoftmax& merged, float l_before, float o, float pv) const {
    return (l_before * o + merged.second * pv) * device::inverse_sum(merged.state.l);
  }
};

}  // namespace

int block_keys(int dim) {
  return with_budget<smem_bytes>(dim, []<class B>(B) { return B::keys; });
}

run::AttentionVariant stopped_after(int keys) {
  return variant("stopped", [=](const AttentionLaunch& l) { launch_range(l, 0, keys); });
}

run::AttentionVariant stopped_and_continued(int keys) {
  return variant("continued", [=](const AttentionLaunch& l) {
    launch_range(l, 0, keys);
    launch_range(l, keys, l.shape.seq_k);
  });
}

run::AttentionVariant without_rescale() {
  return variant("without_rescale", [](const AttentionLaunch& l) { launch_range<WithoutRescale>(l, 0, l.shape.seq_k); });
}

run::AttentionVariant whole_blocks_only() {
  return variant("whole_blocks_only", [](const AttentionLaunch& l) {
    launch_range(l, 0, l.shape.seq_k / block_keys(l.shape.dim) * block_keys(l.shape.dim));
  });
}

run::AttentionVariant without_last_block() {
  return variant("without_last_block", [](const AttentionLaunch& l) {
    launch_range(l, 0, (l.shape.seq_k - 1) / block_keys(l.shape.dim) * block_keys(l.shape.dim));
  });
}

}  // namespace faulty

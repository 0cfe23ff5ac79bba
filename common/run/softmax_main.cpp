#include "common/run/softmax_main.h"

#include "common/run/family_main.h"
#include "common/run/softmax_execute.h"
#include "common/run/softmax_request.h"

namespace run {
namespace {

using problem::Softmax;

struct SoftmaxFamily {
  using Request = SoftmaxRequest;
  using Flags = SoftmaxFlags;
  using Truth = SoftmaxTruth;

  static void add_flags(CLI::App& app, Flags& flags) { add_softmax_flags(app, flags); }

  static std::vector<ScratchNeed> buffer_needs(const Softmax& s) {
    const auto size = [&](int stride) { return static_cast<std::size_t>(s.rows) * stride * problem::bytes(s.dtype); };
    return {{"x", size(s.ldx)}, {"y", size(s.ldy)}};
  }

  static nlohmann::ordered_json problem_json(const Softmax& s) {
    return {{"family", "softmax"}, {"rows", s.rows}, {"cols", s.cols},
            {"ldx", s.ldx},        {"ldy", s.ldy},   {"dtype", problem::name(s.dtype)}};
  }
};

}  // namespace

int softmax_main(int argc, char** argv, const SoftmaxStep& step) { return family_main<SoftmaxFamily>(argc, argv, step); }

}  // namespace run

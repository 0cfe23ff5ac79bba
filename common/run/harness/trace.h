// What the simulator traced, as JSON (docs/trace.schema.json).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/runtime/runtime.h"

namespace run {

nlohmann::ordered_json launch_json(const runtime::KernelTrace& launch);  // without its events
nlohmann::ordered_json event_json(const runtime::TraceEvent& event);

}  // namespace run

// What the simulator traced, as JSON (docs/trace.schema.json).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/device/runtime.h"

namespace run {

nlohmann::ordered_json launch_json(const device::KernelTrace& launch);  // without its events
nlohmann::ordered_json event_json(const device::TraceEvent& event);

}  // namespace run

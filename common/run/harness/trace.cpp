#include "common/run/harness/trace.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace run {
namespace {

using Json = nlohmann::ordered_json;

Json offsets_json(const runtime::TracedAddresses& addresses) {
  Json offsets = Json::array();
  for (const auto& offset : addresses.offsets) offsets.push_back(offset ? Json(*offset) : Json());
  return offsets;
}

}  // namespace

Json launch_json(const runtime::KernelTrace& launch) {
  return {{"kernel", launch.kernel},
          {"grid", launch.grid},
          {"block", launch.block},
          {"shared_bytes", launch.shared_bytes},
          {"traced", {{"block", 0}, {"warp", 0}}}};
}

Json event_json(const runtime::TraceEvent& event) {
  char lanes[11];
  std::snprintf(lanes, sizeof(lanes), "0x%08x", event.lanes);
  Json json = {{"op", event.op}, {"where", event.where}, {"lanes", lanes}};
  if (event.operand) json["operand"] = *event.operand;
  if (event.bytes > 0) json["bytes"] = event.bytes;
  if (!event.global.offsets.empty()) {
    json["global"] = {{"buffer", event.global.first}, {"sectors", event.sectors}, {"offsets", offsets_json(event.global)}};
  }
  if (!event.shared.offsets.empty()) {
    json["shared"] = {{"first", event.shared.first},
                      {"wavefronts", event.wavefronts},
                      {"wavefronts_ideal", event.wavefronts_ideal},
                      {"offsets", offsets_json(event.shared)}};
  }
  return json;
}

}  // namespace run

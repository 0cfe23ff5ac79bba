#include "common/simt/trace.h"

#include <algorithm>
#include <utility>

#include "common/simt/engine.h"
#include "common/simt/symbols.h"

namespace simt {
namespace {

const char* op_of(const PendingAccess& access) {
  const bool load = access.kind == Kind::read;
  switch (access.form) {
    case Form::shared:
      return load ? "ld.shared" : "st.shared";
    case Form::copy_through_l1:
      return "cp.async.ca";
    case Form::copy_past_l1:
      return "cp.async.cg";
    case Form::reduction:
      return "red.global.add";
    default:
      return load ? "ld.global" : "st.global";
  }
}

void set_offset(TracedAddresses& addresses, int lane, std::uintptr_t address, std::uintptr_t start) {
  addresses.offsets.resize(warp_size);
  addresses.offsets[static_cast<std::size_t>(lane)] = static_cast<std::int64_t>(address - start);
}

void add_shared(TracedAddresses& addresses, Block& block, int lane, std::uintptr_t address) {
  const std::uintptr_t start = block.arena().begin();
  if (addresses.offsets.empty()) addresses.first = member_name(block.shared_type(), address - start);
  set_offset(addresses, lane, address, start);
}

}  // namespace

void Trace::request(Block& block, std::span<const PendingAccess> lanes, const Cost& cost) {
  const PendingAccess& first = lanes.front();
  TraceEvent& event = events_.emplace_back();
  event.op = first.op != nullptr ? first.op : op_of(first);
  event.where = place_of(first.pc);
  if (first.operand >= 0) event.operand = first.operand;
  event.bytes = first.bytes;
  event.sectors = cost.sectors;
  event.wavefronts = cost.wavefronts.needed;
  event.wavefronts_ideal = cost.wavefronts.ideal;
  std::uintptr_t buffer = 0;
  for (const PendingAccess& access : lanes) {
    event.lanes |= 1u << access.lane;
    if (access.op != nullptr) continue;
    if (access.form == Form::shared) add_shared(event.shared, block, access.lane, access.address);
    if (is_copy(access.form)) add_shared(event.shared, block, access.lane, access.to);
    if (access.form == Form::shared || (is_copy(access.form) && access.source_bytes == 0)) continue;
    if (event.global.offsets.empty()) {
      const Allocation* allocation = nearest_allocation(access.address);
      event.global.first = allocation == nullptr ? "no allocation" : allocation->name;
      buffer = allocation == nullptr ? Heap::base : allocation->begin;
    }
    set_offset(event.global, access.lane, access.address, buffer);
  }
}

void Trace::call(const WarpCall& call) {
  TraceEvent& event = events_.emplace_back();
  event.op = call.name;
  event.where = call.aligned_at != nullptr ? place_of(call.aligned_at) : place_of(call.where);
  event.lanes = call.mask;
}

void Trace::matrix_rows(Block& block, std::span<const std::uintptr_t> rows, const Wavefronts& wavefronts) {
  TraceEvent& event = events_.back();
  event.bytes = 16;
  event.wavefronts = wavefronts.needed;
  event.wavefronts_ideal = wavefronts.ideal;
  for (std::size_t lane = 0; lane < rows.size(); ++lane) {
    add_shared(event.shared, block, static_cast<int>(lane), rows[lane]);
  }
}

KernelTrace Trace::result(const Launch& launch) {
  return {function_name(launch.kernel), launch.grid, launch.block, launch.shared_bytes, std::exchange(events_, {})};
}

}  // namespace simt

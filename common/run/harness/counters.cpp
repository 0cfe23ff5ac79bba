#include "common/run/harness/counters.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/run/harness/text.h"

namespace run {
namespace {

using runtime::KernelCounters;
using runtime::LineCounters;
using runtime::Op;
using runtime::Space;
using Json = nlohmann::ordered_json;

const char* name(Space space) { return space == Space::global ? "global" : "shared"; }
const char* name(Op op) {
  switch (op) {
    case Op::load:
      return "load";
    case Op::store:
      return "store";
    case Op::copy_through_l1:
      return "cp.async.ca";
    case Op::copy_past_l1:
      return "cp.async.cg";
    case Op::matrix_load:
      return "ldmatrix";
    case Op::matrix_store:
      return "stmatrix";
    case Op::reduction:
      return "red";
  }
  __builtin_unreachable();
}

// Without its namespace, and without template arguments, which may have namespaces of their own.
std::string base_name(const std::string& kernel) {
  const std::string name = kernel.substr(0, kernel.find('<'));
  const std::size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

bool is_of(const Estimate& e, const KernelCounters& counters) {
  return e.kernel == base_name(counters.kernel) && counters.kernel.find(e.arguments) != std::string::npos;
}

// Why accesses of this kind are only estimates; empty if they are not.
std::string reason_for(const KernelCounters& counters, const std::vector<Estimate>& estimates, Space space, Op op) {
  for (const Estimate& e : estimates) {
    if (is_of(e, counters) && !e.of_shuffles && e.space == space && e.op == op) return e.reason;
  }
  return "";
}
// The same of shuffles.
std::string reason_for_shuffles(const KernelCounters& counters, const std::vector<Estimate>& estimates) {
  for (const Estimate& e : estimates) {
    if (is_of(e, counters) && e.of_shuffles) return e.reason;
  }
  return "";
}

std::uint64_t sum(const KernelCounters& counters, Space space, Op op, std::uint64_t LineCounters::*what) {
  std::uint64_t total = 0;
  for (const LineCounters& line : counters.lines) {
    if (line.space == space && line.op == op) total += line.*what;
  }
  return total;
}

std::uint64_t sum(const KernelCounters& counters, std::uint64_t LineCounters::*what) {
  std::uint64_t total = 0;
  for (const LineCounters& line : counters.lines) total += line.*what;
  return total;
}

bool has_copies(const KernelCounters& counters) {
  return std::any_of(counters.lines.begin(), counters.lines.end(),
                     [](const LineCounters& line) { return line.op == Op::copy_through_l1 || line.op == Op::copy_past_l1; });
}

constexpr const char* copies_vary =
    "in how many wavefronts a cp.async stores what lies scattered is not modelled, nor what its own sector metrics add to that";

// Of cp.async, ldmatrix, stmatrix, mma.sync and red, where the kernel has them.
std::vector<Metric> further_metrics(const KernelCounters& counters, const std::vector<Estimate>& estimates) {
  std::vector<Metric> all;
  const std::string wavefronts = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_";
  std::uint64_t copies = 0, copy_wavefronts = 0;
  std::string executed_reason;  // copies that a predicate turns off are executed, but no requests: those stay exact
  for (const Op op : {Op::copy_through_l1, Op::copy_past_l1}) {
    const std::string suffix = op == Op::copy_through_l1 ? "_cache_access.sum" : "_cache_bypass.sum";
    const std::uint64_t requests = sum(counters, Space::global, op, &LineCounters::requests);
    if (requests == 0) continue;
    all.push_back({"sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts" + suffix, requests, ""});
    all.push_back({"sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts" + suffix,
                   sum(counters, Space::global, op, &LineCounters::sectors), copies_vary});
    if (executed_reason.empty()) executed_reason = reason_for(counters, estimates, Space::global, op);
    copies += sum(counters, Space::global, op, &LineCounters::instructions);
    copy_wavefronts += sum(counters, Space::global, op, &LineCounters::wavefronts);
  }
  if (copies > 0) {
    all.push_back({"smsp__inst_executed_op_ldgsts.sum", copies, executed_reason});
    all.push_back({wavefronts + "ldgsts.sum", copy_wavefronts, copies_vary});
  }
  if (const std::uint64_t loads = sum(counters, Space::shared, Op::matrix_load, &LineCounters::requests)) {
    const std::uint64_t needed = sum(counters, Space::shared, Op::matrix_load, &LineCounters::wavefronts);
    const std::uint64_t ideal = sum(counters, Space::shared, Op::matrix_load, &LineCounters::wavefronts_ideal);
    const std::string reason = reason_for(counters, estimates, Space::shared, Op::matrix_load);
    all.push_back({"smsp__sass_inst_executed_op_ldsm.sum", loads, reason});
    all.push_back({wavefronts + "ldsm.sum", needed, reason});
    all.push_back({"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum", needed - ideal, reason});
  }
  if (const std::uint64_t stores = sum(counters, Space::shared, Op::matrix_store, &LineCounters::requests)) {
    const std::uint64_t needed = sum(counters, Space::shared, Op::matrix_store, &LineCounters::wavefronts);
    const std::uint64_t ideal = sum(counters, Space::shared, Op::matrix_store, &LineCounters::wavefronts_ideal);
    all.push_back({"smsp__sass_inst_executed_op_shared_stsm.sum", stores, ""});
    all.push_back({wavefronts + "stsm.sum", needed, ""});
    all.push_back({"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_stsm.sum", needed - ideal, ""});
  }
  if (const std::uint64_t reductions = sum(counters, Space::global, Op::reduction, &LineCounters::requests)) {
    const std::uint64_t sectors = sum(counters, Space::global, Op::reduction, &LineCounters::sectors);
    const std::string reason = reason_for(counters, estimates, Space::global, Op::reduction);
    all.push_back({"smsp__sass_inst_executed_op_global_red.sum", reductions, reason});
    all.push_back({"l1tex__t_requests_pipe_lsu_mem_global_op_red.sum", reductions, reason});
    all.push_back({"l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum", sectors, reason});
  }
  if (counters.tensor_instructions > 0) {
    all.push_back({"sm__inst_executed_pipe_tensor_op_hmma.sum", counters.tensor_instructions, ""});
  }
  return all;
}

std::string ratio(std::uint64_t a, std::uint64_t b) {
  return b == 0 ? "-" : fixed(static_cast<double>(a) / static_cast<double>(b), 2);
}

}  // namespace

std::vector<Metric> metrics(const KernelCounters& counters, const std::vector<Estimate>& estimates) {
  std::vector<Metric> all;
  const auto count = [](unsigned x, unsigned y, unsigned z) { return std::uint64_t{x} * y * z; };
  const auto [gx, gy, gz] = counters.grid;
  const auto [bx, by, bz] = counters.block;
  all.push_back({"launch__grid_size", count(gx, gy, gz), ""});
  all.push_back({"launch__block_size", count(bx, by, bz), ""});
  all.push_back({"launch__shared_mem_per_block_dynamic", counters.shared_bytes, ""});
  for (const Op op : {Op::load, Op::store}) {
    const std::string suffix = op == Op::load ? "_ld.sum" : "_st.sum";
    const std::string reason = reason_for(counters, estimates, Space::global, op);
    const auto total = [&](std::uint64_t LineCounters::*what) {  // a cp.async loads, too
      const std::uint64_t copies =
          sum(counters, Space::global, Op::copy_through_l1, what) + sum(counters, Space::global, Op::copy_past_l1, what);
      return sum(counters, Space::global, op, what) + (op == Op::load ? copies : 0);
    };
    all.push_back({"l1tex__t_requests_pipe_lsu_mem_global_op" + suffix, total(&LineCounters::requests), reason});
    all.push_back({"l1tex__t_sectors_pipe_lsu_mem_global_op" + suffix, total(&LineCounters::sectors), reason});
  }
  std::string shared_reason =
      has_copies(counters) ? copies_vary : reason_for(counters, estimates, Space::shared, Op::matrix_load);
  for (const Op op : {Op::load, Op::store}) {
    const std::string suffix = op == Op::load ? "_ld.sum" : "_st.sum";
    const std::string reason = reason_for(counters, estimates, Space::shared, op);
    if (shared_reason.empty()) shared_reason = reason;
    all.push_back({"sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op" + suffix,
                   sum(counters, Space::shared, op, &LineCounters::wavefronts), reason});
  }
  all.push_back({"memory_l1_wavefronts_shared", sum(counters, &LineCounters::wavefronts), shared_reason});
  all.push_back({"memory_l1_wavefronts_shared_ideal", sum(counters, &LineCounters::wavefronts_ideal), shared_reason});
  all.push_back({"sass__inst_executed_per_opcode.BAR", counters.barriers, ""});
  all.push_back({"sass__inst_executed_per_opcode.SHFL", counters.shuffles, reason_for_shuffles(counters, estimates)});
  const std::vector<Metric> more = further_metrics(counters, estimates);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<Metric> least_traffic(const KernelCounters& counters) {
  return {{"dram__bytes_read.sum", counters.bytes_loaded, ""}, {"dram__bytes_write.sum", counters.bytes_stored, ""}};
}

Json counters_json(const std::vector<KernelCounters>& launches, const std::vector<Estimate>& estimates) {
  Json all = Json::array();
  for (const KernelCounters& launch : launches) {
    Json exact = Json::object(), estimate = Json::object(), at_least = Json::object(), lines = Json::array();
    for (const Metric& m : metrics(launch, estimates)) {
      if (m.reason.empty()) {
        exact[m.name] = m.value;
      } else {
        estimate[m.name] = {{"value", m.value}, {"reason", m.reason}};
      }
    }
    for (const Metric& m : least_traffic(launch)) at_least[m.name] = m.value;
    for (const LineCounters& line : launch.lines) {
      lines.push_back({{"where", line.where},
                       {"space", name(line.space)},
                       {"op", name(line.op)},
                       {"bytes", line.bytes},
                       {"sites", line.sites},
                       {"instructions", line.instructions},
                       {"requests", line.requests},
                       {"sectors", line.sectors},
                       {"wavefronts", line.wavefronts},
                       {"wavefronts_ideal", line.wavefronts_ideal}});
    }
    all.push_back({{"kernel", launch.kernel},
                   {"grid", launch.grid},
                   {"block", launch.block},
                   {"shared_bytes", launch.shared_bytes},
                   {"exact", exact},
                   {"estimate", estimate},
                   {"at_least", at_least},
                   {"lines", lines}});
  }
  return all;
}

void print_counters(std::ostream& out, const std::vector<KernelCounters>& launches, const std::vector<Estimate>& estimates) {
  std::vector<std::string> header = {"metric"};
  std::vector<std::vector<std::string>> rows;  // a kernel without cp.async has no row for it: 0
  bool estimated = false;
  const auto put = [&](std::size_t column, const Metric& m, const std::string& mark) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& known) { return known.front() == m.name; });
    if (row == rows.end()) {
      rows.emplace_back(launches.size() + 1, "0").front() = m.name;
      row = rows.end() - 1;
    }
    (*row)[column] = mark + std::to_string(m.value);
  };
  for (std::size_t i = 0; i < launches.size(); ++i) {
    header.push_back(base_name(launches[i].kernel));
    for (const Metric& m : metrics(launches[i], estimates)) {
      put(i + 1, m, m.reason.empty() ? "" : "~");
      estimated |= !m.reason.empty();
    }
  }
  for (std::size_t i = 0; i < launches.size(); ++i) {
    for (const Metric& m : least_traffic(launches[i])) put(i + 1, m, ">=");
  }
  Table table(header);
  for (std::vector<std::string>& row : rows) {
    const bool used = std::any_of(row.begin() + 1, row.end(), [](const std::string& cell) { return cell != "0"; });
    if (used) table.add(std::move(row));
  }
  table.print(out);
  out << ">= at least, each sector moved once" << (estimated ? "; ~ estimated, since" : "") << '\n';
  std::vector<std::string> said;
  for (const KernelCounters& launch : launches) {
    for (const Metric& m : metrics(launch, estimates)) {
      const std::string line = "  " + base_name(launch.kernel) + ": " + m.reason;
      if (m.reason.empty() || std::find(said.begin(), said.end(), line) != said.end()) continue;
      said.push_back(line);
      out << line << '\n';
    }
  }

  out << '\n';
  Table lines({"line", "kernel", "access", "requests", "sectors each", "wavefronts each", "ideal"});
  for (const KernelCounters& launch : launches) {
    for (const LineCounters& line : launch.lines) {
      const bool global = line.space == Space::global;
      const bool plain = line.op == Op::load || line.op == Op::store;
      const bool banks = !global || (!plain && line.op != Op::reduction);  // a cp.async has both ends
      lines.add({line.where, base_name(launch.kernel),
                 (plain ? std::string(name(line.space)) + ' ' : "") + name(line.op) + ' ' + std::to_string(line.bytes) + " B",
                 std::to_string(line.requests), global ? ratio(line.sectors, line.requests) : "-",
                 banks ? ratio(line.wavefronts, line.instructions) : "-",  // a copy of zeros asks for nothing, but stores
                 banks ? ratio(line.wavefronts_ideal, line.instructions) : "-"});
    }
  }
  lines.print(out);
}

}  // namespace run

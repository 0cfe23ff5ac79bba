#include "common/run/counters.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/run/text.h"

namespace run {
namespace {

using device::KernelCounters;
using device::LineCounters;
using device::Op;
using device::Space;
using Json = nlohmann::ordered_json;

const char* name(Space space) { return space == Space::global ? "global" : "shared"; }
const char* name(Op op) { return op == Op::load ? "load" : "store"; }

std::string base_name(const std::string& kernel) {
  const std::size_t end = kernel.find('<');
  const std::size_t colons = kernel.rfind("::", end);
  return colons == std::string::npos ? kernel : kernel.substr(colons + 2);
}

// Why accesses of this kind are only estimates; empty if they are not.
std::string reason_for(const KernelCounters& counters, const std::vector<Estimate>& estimates, Space space, Op op) {
  for (const Estimate& e : estimates) {
    if (e.kernel == base_name(counters.kernel) && e.space == space && e.op == op) return e.reason;
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
    all.push_back({"l1tex__t_requests_pipe_lsu_mem_global_op" + suffix,
                   sum(counters, Space::global, op, &LineCounters::requests), reason});
    all.push_back(
        {"l1tex__t_sectors_pipe_lsu_mem_global_op" + suffix, sum(counters, Space::global, op, &LineCounters::sectors), reason});
  }
  std::string shared_reason;
  for (const Op op : {Op::load, Op::store}) {
    const std::string suffix = op == Op::load ? "_ld.sum" : "_st.sum";
    const std::string reason = reason_for(counters, estimates, Space::shared, op);
    if (shared_reason.empty()) shared_reason = reason;
    all.push_back({"sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op" + suffix,
                   sum(counters, Space::shared, op, &LineCounters::wavefronts), reason});
  }
  const auto both = [&](std::uint64_t LineCounters::*what) {
    return sum(counters, Space::shared, Op::load, what) + sum(counters, Space::shared, Op::store, what);
  };
  all.push_back({"memory_l1_wavefronts_shared", both(&LineCounters::wavefronts), shared_reason});
  all.push_back({"memory_l1_wavefronts_shared_ideal", both(&LineCounters::wavefronts_ideal), shared_reason});
  all.push_back({"sass__inst_executed_per_opcode.BAR", counters.barriers, ""});
  all.push_back({"sass__inst_executed_per_opcode.SHFL", counters.shuffles, ""});
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
  std::vector<std::vector<std::string>> rows;
  bool estimated = false;
  for (const KernelCounters& launch : launches) {
    header.push_back(base_name(launch.kernel));
    std::size_t row = 0;
    const auto put = [&](const Metric& m, const std::string& mark) {
      if (rows.size() <= row) rows.push_back({m.name});
      rows[row++].push_back(mark + std::to_string(m.value));
    };
    for (const Metric& m : metrics(launch, estimates)) {
      put(m, m.reason.empty() ? "" : "~");
      estimated |= !m.reason.empty();
    }
    for (const Metric& m : least_traffic(launch)) put(m, ">=");
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
      lines.add({line.where, base_name(launch.kernel),
                 std::string(name(line.space)) + ' ' + name(line.op) + ' ' + std::to_string(line.bytes) + " B",
                 std::to_string(line.requests), global ? ratio(line.sectors, line.requests) : "-",
                 global ? "-" : ratio(line.wavefronts, line.requests),
                 global ? "-" : ratio(line.wavefronts_ideal, line.requests)});
    }
  }
  lines.print(out);
}

}  // namespace run

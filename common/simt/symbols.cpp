#include "common/simt/symbols.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "common/simt/memory.h"

namespace simt {
namespace {

std::recursive_mutex mutex;  // libdw is not thread-safe

// The debug information of this process: the executable and its shared libraries.
Dwfl* process() {
  static Dwfl* const dwfl = [] {
    // Only what the files themselves hold: no search for separate debug files, least of all over a network.
    static const Dwfl_Callbacks callbacks = {
        dwfl_linux_proc_find_elf,
        [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) { return -1; }, nullptr,
        nullptr};
    Dwfl* opened = dwfl_begin(&callbacks);
    dwfl_linux_proc_report(opened, getpid());
    dwfl_report_end(opened, nullptr, nullptr);
    return opened;
  }();
  return dwfl;
}

// Paths are shown from the project's root, which is known from where this file lies.
std::string from_root(const std::string& path) {
  static const std::string here = __FILE__;
  static const std::string root = here.substr(0, here.size() - std::strlen("common/simt/symbols.cpp"));
  return path.starts_with(root) ? path.substr(root.size()) : path;
}

// Code that is the same for every kernel: a report wants the kernel's line that uses it. Folders in common/device/ are named
// after the step whose kernels they are from, and are no helpers; but ptx/ is.
bool is_helper(const std::string& file) {
  const std::string device = "common/device/";
  if (file.starts_with(device + "ptx/")) return true;
  if (file.starts_with(device)) return file.find('/', device.size()) == std::string::npos;
  return file.starts_with("common/simt/") || file.starts_with(".venv/") || file.starts_with("/");
}

std::string demangled(const char* name) {
  int status = 0;
  char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? plain : name;
  std::free(plain);
  return result;
}

// ---- types ----

std::optional<Dwarf_Die> type_of(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  Dwarf_Die type;
  if (dwarf_attr_integrate(die, DW_AT_type, &attribute) == nullptr || dwarf_formref_die(&attribute, &type) == nullptr)
    return {};
  Dwarf_Die peeled;
  if (dwarf_peel_type(&type, &peeled) == 0) return peeled;
  return type;
}

std::size_t unsigned_attribute(Dwarf_Die* die, unsigned name, std::size_t otherwise) {
  Dwarf_Attribute attribute;
  Dwarf_Word value;
  if (dwarf_attr(die, name, &attribute) == nullptr || dwarf_formudata(&attribute, &value) != 0) return otherwise;
  return value;
}

// Appends "[3][5]" for a byte offset into an array and goes on inside its element.
void append_path(Dwarf_Die type, std::size_t offset, std::string& path);

void append_array(Dwarf_Die& array, std::size_t offset, std::string& path) {
  std::optional<Dwarf_Die> element = type_of(&array);
  Dwarf_Word element_bytes = 0;
  if (!element || dwarf_aggregate_size(&*element, &element_bytes) != 0 || element_bytes == 0) return;
  std::vector<std::size_t> extents;
  Dwarf_Die dimension;
  for (int more = dwarf_child(&array, &dimension); more == 0; more = dwarf_siblingof(&dimension, &dimension)) {
    if (dwarf_tag(&dimension) == DW_TAG_subrange_type)
      extents.push_back(unsigned_attribute(&dimension, DW_AT_upper_bound, 0) + 1);
  }
  std::size_t stride = element_bytes;
  for (const std::size_t extent : extents) stride *= extent;
  for (const std::size_t extent : extents) {
    stride /= extent;
    path += "[" + std::to_string(offset / stride) + "]";
    offset %= stride;
  }
  append_path(*element, offset, path);
}

void append_path(Dwarf_Die type, std::size_t offset, std::string& path) {
  if (dwarf_tag(&type) == DW_TAG_array_type) {
    append_array(type, offset, path);
    return;
  }
  const char* type_name = dwarf_diename(&type);
  if (type_name != nullptr && std::string_view(type_name).starts_with("__")) return;  // __half: to its user one value
  Dwarf_Die member;
  for (int more = dwarf_child(&type, &member); more == 0; more = dwarf_siblingof(&member, &member)) {
    if (dwarf_tag(&member) != DW_TAG_member) continue;
    const std::size_t begin = unsigned_attribute(&member, DW_AT_data_member_location, 0);
    std::optional<Dwarf_Die> member_type = type_of(&member);
    Dwarf_Word bytes = 0;
    if (!member_type || dwarf_aggregate_size(&*member_type, &bytes) != 0) continue;
    if (offset < begin || offset >= begin + bytes) continue;
    const char* name = dwarf_diename(&member);  // null for an anonymous union or struct
    if (name != nullptr) path += (path.empty() ? "" : ".") + std::string(name);
    append_path(*member_type, offset - begin, path);
    return;
  }
}

// The variable that lies at `address`, among the global ones of a compilation unit.
std::optional<Dwarf_Die> variable_at(Dwarf_Die* unit, Dwarf_Addr address) {
  Dwarf_Die die;
  for (int more = dwarf_child(unit, &die); more == 0; more = dwarf_siblingof(&die, &die)) {
    if (dwarf_tag(&die) == DW_TAG_namespace) {
      if (auto found = variable_at(&die, address)) return found;
    }
    if (dwarf_tag(&die) != DW_TAG_variable) continue;
    Dwarf_Attribute location;
    Dwarf_Op* operations;
    std::size_t count;
    if (dwarf_attr(&die, DW_AT_location, &location) == nullptr || dwarf_getlocation(&location, &operations, &count) != 0)
      continue;
    if (count == 1 && operations[0].atom == DW_OP_addr && operations[0].number == address) return die;
  }
  return {};
}

struct AnchorSearch {
  Dwarf_Addr address;
  std::optional<Dwarf_Die> type;
};

int search_module(Dwfl_Module* module, void**, const char*, Dwarf_Addr, void* argument) {
  auto& search = *static_cast<AnchorSearch*>(argument);
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = nullptr;
  while ((unit = dwfl_module_nextcu(module, unit, &bias)) != nullptr) {
    auto variable = variable_at(unit, search.address - bias);
    if (!variable) continue;
    if (auto pointer = type_of(&*variable)) search.type = type_of(&*pointer);
    return DWARF_CB_ABORT;
  }
  return DWARF_CB_OK;
}

// The struct type that a type anchor points to. All modules are searched: zero-initialised variables lie outside the address
// range that the system maps from the file.
std::optional<Dwarf_Die> anchored_type(const void* anchor) {
  static std::map<const void*, std::optional<Dwarf_Die>> known;  // the search takes milliseconds
  const auto [entry, fresh] = known.try_emplace(anchor);
  if (fresh) {
    AnchorSearch search{reinterpret_cast<Dwarf_Addr>(anchor), {}};
    dwfl_getmodules(process(), search_module, &search, 0);
    entry->second = search.type;
  }
  return entry->second;
}

// ---- places ----

std::string place(const char* file, int line) { return from_root(file) + ":" + std::to_string(line); }

// A function, or one of several pieces of its code.
struct Code {
  Dwarf_Addr begin, end;
  Dwarf_Die function;
};

void collect_code(Dwarf_Die parent, std::vector<Code>& all) {
  Dwarf_Die die;
  for (int more = dwarf_child(&parent, &die); more == 0; more = dwarf_siblingof(&die, &die)) {
    const int tag = dwarf_tag(&die);
    if (tag == DW_TAG_subprogram) {
      Dwarf_Addr base, begin, end;
      for (std::ptrdiff_t next = 0; (next = dwarf_ranges(&die, next, &base, &begin, &end)) > 0;)
        all.push_back({begin, end, die});
    }
    const bool may_hold_functions = tag == DW_TAG_namespace || tag == DW_TAG_subprogram || tag == DW_TAG_lexical_block ||
                                    tag == DW_TAG_structure_type || tag == DW_TAG_class_type;
    if (may_hold_functions) collect_code(die, all);
  }
}

// The function at `pc`. (dwarf_getscopes() finds none that lies within another one, as a lambda's does.) A unit is read once,
// because reading it takes milliseconds, and a run asks for hundreds of places.
std::optional<Dwarf_Die> function_at(const Dwarf_Die& unit, Dwarf_Addr pc) {
  static std::map<const void*, std::vector<Code>> known;
  const auto [entry, fresh] = known.try_emplace(unit.addr);
  std::vector<Code>& code = entry->second;
  if (fresh) {
    collect_code(unit, code);
    std::sort(code.begin(), code.end(), [](const Code& a, const Code& b) { return a.begin < b.begin; });
  }
  const auto behind = std::upper_bound(code.begin(), code.end(), pc, [](Dwarf_Addr at, const Code& c) { return at < c.begin; });
  if (behind == code.begin() || pc >= std::prev(behind)->end) return {};
  return std::prev(behind)->function;
}

// What holds `pc` within a function, the innermost first.
bool find_scopes(Dwarf_Die parent, Dwarf_Addr pc, std::vector<Dwarf_Die>& scopes) {
  Dwarf_Die die;
  for (int more = dwarf_child(&parent, &die); more == 0; more = dwarf_siblingof(&die, &die)) {
    const bool inside = dwarf_haspc(&die, pc) > 0;
    const bool found = (inside || dwarf_tag(&die) == DW_TAG_lexical_block) && find_scopes(die, pc, scopes);
    if (inside) scopes.push_back(die);
    if (inside || found) return true;
  }
  return false;
}

// `innermost`, and for every function inlined at `pc`, from the innermost outwards: where it was called. The last place is in
// the function that was not inlined: the kernel.
std::vector<std::string> call_sites(Dwfl_Module* module, Dwarf_Addr pc, const std::string& innermost) {
  std::vector<std::string> places = {innermost};
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = dwfl_module_addrdie(module, pc, &bias);
  Dwarf_Files* files = nullptr;
  std::vector<Dwarf_Die> scopes;
  const std::optional<Dwarf_Die> function = unit == nullptr ? std::nullopt : function_at(*unit, pc - bias);
  if (function && find_scopes(*function, pc - bias, scopes)) dwarf_getsrcfiles(unit, &files, nullptr);
  for (Dwarf_Die& scope : scopes) {
    if (dwarf_tag(&scope) != DW_TAG_inlined_subroutine) continue;
    const char* file = dwarf_filesrc(files, unsigned_attribute(&scope, DW_AT_call_file, 0), nullptr, nullptr);
    if (file != nullptr) places.push_back(place(file, static_cast<int>(unsigned_attribute(&scope, DW_AT_call_line, 0))));
  }
  return places;
}

}  // namespace

std::string place_of(const std::source_location& where) { return place(where.file_name(), static_cast<int>(where.line())); }

namespace {

// The kernel's line that runs at `pc`, then where the functions around it were called; helpers are left out.
std::vector<std::string> find_places(const void* pc) {
  const Dwarf_Addr address = reinterpret_cast<Dwarf_Addr>(pc) - 1;  // inside the call, not after it
  Dwfl_Module* module = dwfl_addrmodule(process(), address);
  Dwfl_Line* line = module == nullptr ? nullptr : dwfl_module_getsrc(module, address);
  int number = 0;
  const char* file = line == nullptr ? nullptr : dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
  if (file == nullptr) return {"unknown place"};
  const std::vector<std::string> all = call_sites(module, address, place(file, number));
  std::vector<std::string> places;
  for (const std::string& site : all) {
    if (!is_helper(site) && (places.empty() || places.back() != site)) places.push_back(site);
  }
  return places.empty() ? std::vector{all.back()} : places;  // of code that is nothing but helpers, the outermost
}

const std::vector<std::string>& places_of(const void* pc) {
  static std::map<const void*, std::vector<std::string>> known;
  const auto [entry, fresh] = known.try_emplace(pc);
  if (fresh) entry->second = find_places(pc);
  return entry->second;
}

}  // namespace

std::string place_of(const void* pc) {
  const std::lock_guard lock(mutex);
  return places_of(pc).front();
}

std::string with_callers(const std::string& where, const void* pc) {
  if (pc == nullptr) return where;
  const std::lock_guard lock(mutex);
  std::string text = where;
  for (const std::string& place : places_of(pc)) {
    if (place != where && place != "unknown place") text += ", called at " + place;
  }
  return text;
}

std::string function_name(Function function) {
  const std::lock_guard lock(mutex);
  const auto address = reinterpret_cast<Dwarf_Addr>(function);
  Dwfl_Module* module = dwfl_addrmodule(process(), address);
  const char* name = module == nullptr ? nullptr : dwfl_module_addrname(module, address);
  if (name == nullptr) return "unknown kernel";
  std::string full = demangled(name);
  int open = 0;  // the parameters, whose types may have brackets of their own: (anonymous namespace)
  while (!full.empty() && (full.back() == ')' || open > 0)) {
    open += (full.back() == ')') - (full.back() == '(');
    full.pop_back();
  }
  if (full.starts_with("void ")) full = full.substr(5);  // templates are demangled with their return type
  return full;
}

std::string member_name(const void* type_anchor, std::size_t offset) {
  const std::lock_guard lock(mutex);
  std::string path;
  if (auto type = anchored_type(type_anchor)) {
    append_path(*type, offset, path);
    const char* name = dwarf_diename(&*type);
    if (!path.empty()) return std::string(name == nullptr ? "shared" : name) + "::" + path;
  }
  return "offset " + std::to_string(offset);
}

std::string describe_address(std::uintptr_t address) {
  const Allocation* allocation = nearest_allocation(address);
  if (allocation == nullptr) return "no allocation";
  const std::string name = "'" + allocation->name + "' (" + std::to_string(allocation->bytes) + " bytes)";
  const std::uintptr_t end = allocation->begin + allocation->bytes;
  if (address < allocation->begin) return std::to_string(allocation->begin - address) + " bytes before the start of " + name;
  if (address >= end) return std::to_string(address - end) + " bytes past the end of " + name;
  return "byte " + std::to_string(address - allocation->begin) + " of " + name;
}

}  // namespace simt

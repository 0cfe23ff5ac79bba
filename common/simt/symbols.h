// From addresses to names: places in the source, functions, and members of shared-memory structs, read from the program's own
// debug information.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/simt/simt.h"

namespace simt {

// The line whose code called the hook that returns to `pc`. Where helpers were inlined (load, store, the standard library), the
// line of the kernel that uses them.
std::string place_of(const void* pc);

// `where`, the place of `pc`, and from where the functions were called that were inlined there, up to the kernel:
// "steps/05_flash_v2/03_ldmatrix.cuh:26, called at steps/05_flash_v2/07_registers.cuh:45".
std::string with_callers(const std::string& where, const void* pc);

std::string function_name(Function function);  // without its parameter list

// "Smem::k_tile[3][5]" for a byte offset into the struct type T, given &type_anchor<T>; "offset 52" without debug information.
std::string member_name(const void* type_anchor, std::size_t offset);

// "byte 12 of 'q' (4096 bytes)", "4 bytes past the end of 'q' (4096 bytes)", for an address in or near device memory.
std::string describe_address(std::uintptr_t address);

}  // namespace simt

// What the benchmarks' attention libraries have beside library/attention_library.h.
#pragma once

#include "library/attention_library.h"

extern "C" {

// The roof of mma.sync: a kernel that executes about as many operations, and nothing else. fp16 or bf16.
AttentionProgram* attention_prepare_roof(const char* dtype, double operations);

}  // extern "C"

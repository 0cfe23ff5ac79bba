// What the benchmarks' attention libraries have beside library/attention_library.h.
#pragma once

#include "library/attention_library.h"

extern "C" {

// The roof of mma.sync: a kernel that executes about as many operations, and nothing else. fp16 or bf16.
AttentionProgram* attention_prepare_roof(const char* dtype, double operations);

// Puts a kernel into the stream that reads so many bytes of the current device's memory, a multiple of 16, and nothing else. It
// may leave a number at `found`. As attention_launch, it may be recorded into a CUDA graph.
bool attention_read_only(const void* data, size_t bytes, uint32_t* found, void* stream);

}  // extern "C"

// Arrays of the conformance kernels, on their way to the device and back.
#pragma once

#include <string>
#include <vector>

#include "common/runtime/runtime.h"

namespace conformance {

template <class T>
runtime::Buffer upload(const std::string& name, const std::vector<T>& values) {
  runtime::Buffer buffer(name, values.size() * sizeof(T));
  buffer.upload(values.data(), values.size() * sizeof(T));
  return buffer;
}

template <class T>
std::vector<T> download(const runtime::Buffer& buffer) {
  runtime::synchronize();
  std::vector<T> values(buffer.bytes() / sizeof(T));
  buffer.download(values.data(), buffer.bytes());
  return values;
}

template <class T>
runtime::Buffer zeros(const std::string& name, std::size_t count) {
  return upload(name, std::vector<T>(count, T{}));
}

}  // namespace conformance

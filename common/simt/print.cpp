// printf in a kernel. A GPU keeps what its threads print until the host waits for it, and so does the simulator, until the
// launch has ended: it may have to start again, and what it printed so far would come twice. The compiler makes puts() and
// putchar() of simple calls. Host code prints as ever.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/simt/engine.h"

namespace simt {
namespace {

void keep(std::string_view text) {
  Run& run = current_lane->block->run();
  const Unobserved unobserved;
  const std::lock_guard lock(run.mutex);
  run.printed += text;
}

}  // namespace
}  // namespace simt

#pragma GCC visibility push(default)
extern "C" {

int printf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length;
  if (simt::current_lane == nullptr) {
    length = std::vfprintf(stdout, format, arguments);
  } else {
    va_list again;
    va_copy(again, arguments);
    length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    if (length >= 0) {
      std::vector<char> text(static_cast<std::size_t>(length) + 1);
      std::vsnprintf(text.data(), text.size(), format, arguments);
      simt::keep({text.data(), static_cast<std::size_t>(length)});
    }
  }
  va_end(arguments);
  return length;
}

int puts(const char* text) {
  if (simt::current_lane == nullptr) return std::fputs(text, stdout) < 0 ? EOF : std::fputc('\n', stdout);
  simt::keep(std::string(text) + '\n');
  return 1;
}

// <cstdio> may define putchar() as an inline function; this is the one that others call.
int put_character(int character) __asm__("putchar");
int put_character(int character) {
  if (simt::current_lane == nullptr) return std::fputc(character, stdout);
  const char one = static_cast<char>(character);
  simt::keep({&one, 1});
  return character;
}

}  // extern "C"
#pragma GCC visibility pop

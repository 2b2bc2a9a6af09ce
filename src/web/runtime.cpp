// Debian's C++ runtime for WebAssembly lacks these. Exceptions: what is thrown is handed to the page as its text, and
// the call ends there. Nothing is unwound, so no `catch` runs, and what the call held stays in memory.
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <typeinfo>

#include "web/door.hpp"

extern "C" {

void* __cxa_allocate_exception(std::size_t bytes) noexcept { return std::malloc(bytes); }  // NOLINT
void __cxa_free_exception(void* exception) noexcept { std::free(exception); }              // NOLINT

// All that is thrown here is a std::exception, its first base.
[[noreturn]] void __cxa_throw(void* exception, std::type_info*, void (*)(void*)) {  // NOLINT
  attn_failed(static_cast<const std::exception*>(exception)->what());
}

// The one thread does not end before the page does.
int __cxa_thread_atexit(void (*)(void*), void*, void*) noexcept { return 0; }  // NOLINT

// In place of strtod(), which reads JSON's numbers: the page reads them to the same bits, and the C library's own is 3
// kB.
double __wrap_strtod(const char* text, char** end) {  // NOLINT
  if (end) *end = const_cast<char*>(text) + std::strlen(text);
  return attn_number(text);
}

// Likewise the texts of printf(), whose arguments lie one behind the other in memory; the C library's are 7 kB.
int __wrap_snprintf(char* to, std::size_t room, const char* format, ...) {  // NOLINT
  std::va_list arguments;
  va_start(arguments, format);
  const int length = attn_print(to, room, format, arguments);
  va_end(arguments);
  return length;
}
// Sines and cosines of angles of more than 1.6 million, whose remainders by pi are 2 kB of the C library: no rotary
// position turns as far.
int __wrap___rem_pio2_large(double*, double*, int, int, int) {  // NOLINT
  attn_failed("[page] expected angles of at most 1,647,099 radians; found a larger one");
}
// Drops what a program says before it gives up: there is no place where it could be read.
int __wrap_vfprintf(std::FILE*, const char*, std::va_list) { return 0; }  // NOLINT

}  // extern "C"

// What Debian's C++ runtime for WebAssembly lacks. Exceptions: what is thrown is handed to the page as its text, and
// the call ends there. Nothing is unwound, so no `catch` runs, and what the call held stays in memory.
#include <cstddef>
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

}  // extern "C"

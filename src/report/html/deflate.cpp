#include "report/html/deflate.hpp"

#include <limits>
#include <new>

#ifdef ATTN_ZLIB
#include <zlib.h>
#endif

namespace attn::report_page {

#ifdef ATTN_ZLIB

std::optional<std::string> deflated(std::string_view bytes) {
  constexpr int raw = -15, memory = 8;  // a window of 32 kB and no header
  if (bytes.size() > std::numeric_limits<uInt>::max()) return {};
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, raw, memory, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  std::string out;
  try {
    out.resize(deflateBound(&stream, static_cast<uLong>(bytes.size())));
  } catch (...) {
    deflateEnd(&stream);
    throw;
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib does not write there
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) return {};
  return out;
}

#else

std::optional<std::string> deflated(std::string_view) { return {}; }

#endif

}  // namespace attn::report_page

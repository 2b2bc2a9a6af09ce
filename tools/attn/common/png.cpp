#include "common/png.hpp"

#include "attn/error.hpp"

#ifdef ATTN_PNG
#include <fmt/format.h>
#include <librsvg/rsvg.h>

#include <cmath>
#include <memory>
#endif

namespace attn::tool {

#ifdef ATTN_PNG

namespace {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* pointer) const { Free(pointer); }
};
void unref(RsvgHandle* handle) { g_object_unref(handle); }
using Handle = std::unique_ptr<RsvgHandle, Freed<RsvgHandle, unref>>;
using Surface = std::unique_ptr<cairo_surface_t, Freed<cairo_surface_t, cairo_surface_destroy>>;
using Context = std::unique_ptr<cairo_t, Freed<cairo_t, cairo_destroy>>;

[[noreturn]] void fail(GError* error) {
  const std::string message = error ? error->message : "no reason given";
  g_clear_error(&error);
  throw Error(Error::Kind::data, "PNG", "an SVG that librsvg renders", message);
}

cairo_status_t append(void* bytes, const unsigned char* data, unsigned length) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

bool has_png() noexcept { return true; }

std::string png(std::string_view svg, double dpi) {
  GError* error = nullptr;
  const Handle handle(
      rsvg_handle_new_from_data(reinterpret_cast<const guint8*>(svg.data()), static_cast<gsize>(svg.size()), &error));
  if (!handle) fail(error);
  double width = 0, height = 0;
  if (!rsvg_handle_get_intrinsic_size_in_pixels(handle.get(), &width, &height)) fail(nullptr);
  const double scale = dpi / 96;
  constexpr double most = 32767;  // cairo's
  width = std::ceil(width * scale), height = std::ceil(height * scale);
  if (!(width >= 1 && height >= 1 && width <= most && height <= most)) {
    throw Error(Error::Kind::argument, "PNG", "at most 32767 pixels a side",
                fmt::format("{:.0f} × {:.0f}", width, height), "lower --dpi, or write .svg");
  }
  const Surface surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width), static_cast<int>(height)));
  const Context context(cairo_create(surface.get()));
  if (cairo_status(context.get()) == CAIRO_STATUS_NO_MEMORY) throw std::bad_alloc();
  const RsvgRectangle page{0, 0, width, height};
  if (!rsvg_handle_render_document(handle.get(), context.get(), &page, &error)) fail(error);
  std::string bytes;
  if (cairo_surface_write_to_png_stream(surface.get(), append, &bytes) != CAIRO_STATUS_SUCCESS) fail(nullptr);
  return bytes;
}

#else

bool has_png() noexcept { return false; }

std::string png(std::string_view, double) {
  throw Error(Error::Kind::argument, "PNG", "a command that was built with librsvg", "one without",
              "write .svg, or install librsvg2-dev and build again");
}

#endif

}  // namespace attn::tool

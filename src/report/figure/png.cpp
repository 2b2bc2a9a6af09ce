// SVG to PNG, by librsvg where it is installed.
#include <dlfcn.h>

#include <cmath>
#include <memory>
#include <new>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "core/decimal.hpp"

// The few functions that are used, as librsvg's, cairo's and GLib's headers declare them. With the headers everybody
// who builds would install a hundred packages; linked, 50 libraries would be loaded whenever a program starts.
extern "C" {
struct RsvgHandle;
struct cairo_t;
struct cairo_surface_t;
struct GError {
  std::uint32_t domain;
  int code;
  char* message;
};
struct RsvgRectangle {
  double x, y, width, height;
};
using WriteTo = int(void* closure, const unsigned char* data, unsigned length);
RsvgHandle* rsvg_handle_new_from_data(const unsigned char* data, std::size_t length, GError** error);
int rsvg_handle_get_intrinsic_size_in_pixels(RsvgHandle*, double* width, double* height);
int rsvg_handle_render_document(RsvgHandle*, cairo_t*, const RsvgRectangle* viewport, GError** error);
void g_object_unref(void* object);
cairo_surface_t* cairo_image_surface_create(int format, int width, int height);
void cairo_surface_destroy(cairo_surface_t*);
int cairo_surface_write_to_png_stream(cairo_surface_t*, WriteTo*, void* closure);
cairo_t* cairo_create(cairo_surface_t*);
void cairo_destroy(cairo_t*);
int cairo_status(cairo_t*);
void cairo_set_source_rgb(cairo_t*, double red, double green, double blue);
void cairo_paint(cairo_t*);
}

namespace attn::figure {
namespace {

constexpr int kSuccess = 0, kRgb24 = 1;  // cairo_status_t, cairo_format_t
constexpr double kMostPixels = 32767;    // a side, of cairo

void* library() {
  static void* const handle = dlopen("librsvg-2.so.2", RTLD_NOW);
  return handle;
}

void* symbol(const char* name) {
  void* address = library() == nullptr ? nullptr : dlsym(library(), name);
  if (address != nullptr) return address;
  throw Error(Error::Kind::argument, "PNG", "librsvg 2.52 or newer on this system", "none",
              "install librsvg2-2, or write .svg");
}

#define ATTN_LOADED(function) reinterpret_cast<decltype(&::function)>(symbol(#function))

template <class T, class Free>
using Owned = std::unique_ptr<T, Free*>;

[[noreturn]] void fail(const GError* error) {
  throw Error(Error::Kind::data, "PNG", "an SVG that librsvg renders", error ? error->message : "one that it does not");
}

int append(void* bytes, const unsigned char* data, unsigned length) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
  return kSuccess;
}

void require_size(double width, double height) {
  if (width >= 1 && height >= 1 && width <= kMostPixels && height <= kMostPixels) return;
  throw Error(Error::Kind::argument, "PNG",
              "at most " + std::to_string(static_cast<int>(kMostPixels)) + " pixels a side",
              decimal(width, 6) + " × " + decimal(height, 6), "lower the dpi, or write .svg");
}

}  // namespace

void require_png() { symbol("rsvg_handle_get_intrinsic_size_in_pixels"); }

std::string png(std::string_view svg, double dpi) {
  if (!(dpi > 0 && std::isfinite(dpi)))
    throw Error(Error::Kind::argument, "PNG", "a finite dpi above 0", shortest_decimal(dpi));
  GError* error = nullptr;
  const auto* data = reinterpret_cast<const unsigned char*>(svg.data());
  const Owned<RsvgHandle, void(void*)> handle(ATTN_LOADED(rsvg_handle_new_from_data)(data, svg.size(), &error),
                                              ATTN_LOADED(g_object_unref));
  if (!handle) fail(error);
  double width = 0, height = 0;
  if (!ATTN_LOADED(rsvg_handle_get_intrinsic_size_in_pixels)(handle.get(), &width, &height)) fail(nullptr);
  constexpr double units = 96;  // of the SVG an inch
  width = std::ceil(width * dpi / units), height = std::ceil(height * dpi / units);
  require_size(width, height);
  const Owned<cairo_surface_t, void(cairo_surface_t*)> surface(
      ATTN_LOADED(cairo_image_surface_create)(kRgb24, static_cast<int>(width), static_cast<int>(height)),
      ATTN_LOADED(cairo_surface_destroy));
  const Owned<cairo_t, void(cairo_t*)> context(ATTN_LOADED(cairo_create)(surface.get()), ATTN_LOADED(cairo_destroy));
  if (ATTN_LOADED(cairo_status)(context.get()) != kSuccess) throw std::bad_alloc();
  ATTN_LOADED(cairo_set_source_rgb)(context.get(), 1, 1, 1);
  ATTN_LOADED(cairo_paint)(context.get());
  const RsvgRectangle page{0, 0, width, height};
  if (!ATTN_LOADED(rsvg_handle_render_document)(handle.get(), context.get(), &page, &error)) fail(error);
  std::string bytes;
  if (ATTN_LOADED(cairo_surface_write_to_png_stream)(surface.get(), append, &bytes) != kSuccess) fail(nullptr);
  return bytes;
}

}  // namespace attn::figure

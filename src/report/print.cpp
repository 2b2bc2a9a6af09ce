// Tensors as PyTorch prints them. Three steps: pick the elements to show, choose one format for all of
// them, lay the formatted cells out in nested brackets.
#include "attn/print.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "attn/error.hpp"
#include "core/visit.hpp"

namespace attn {
namespace {

constexpr std::string_view kPrefix = "tensor(";
constexpr int kMaxPrecision = 64;

// The indices along one dimension that are shown: all, or the first and the last few.
struct Edges {
  std::int64_t size, head, tail;  // shown: [0, head) and [tail, size)
  bool gap() const { return head < tail; }
};

Edges edges_of(std::int64_t size, bool summarise, std::int64_t edge_items) {
  // Not 2 * edge_items, which may overflow.
  const bool gap = summarise && edge_items < size && edge_items < size - edge_items;
  return gap ? Edges{size, edge_items, size - edge_items} : Edges{size, size, size};
}

template <class F>
void for_each_shown(const Edges& edges, F&& f) {
  for (std::int64_t i = 0; i < edges.head; ++i) f(i);
  for (std::int64_t i = edges.tail; i < edges.size; ++i) f(i);
}

// How one element becomes text; PyTorch chooses it from the finite values other than zero alone.
struct Style {
  enum class Mode { fixed, integral, scientific } mode = Mode::integral;
  int precision = 4;
  std::size_t width = 1;
};

std::string print_double(double value, Style::Mode mode, int precision) {
  if (std::isnan(value)) return "nan";  // printf shows its sign
  char text[std::numeric_limits<double>::max_exponent10 + kMaxPrecision + 8];
  const int digits = mode == Style::Mode::integral ? 0 : precision;
  const auto form = mode == Style::Mode::scientific ? std::chars_format::scientific : std::chars_format::fixed;
  return {text, std::to_chars(text, text + sizeof text, value, form, digits).ptr};
}

Style choose_style(const std::vector<double>& shown, int precision) {
  Style style{.precision = precision};
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  bool integral = true;
  for (const double value : shown) {
    if (!std::isfinite(value) || value == 0) continue;
    smallest = std::min(smallest, std::abs(value));
    largest = std::max(largest, std::abs(value));
    integral = integral && value == std::ceil(value);
  }
  if (largest == 0) return style;
  if (largest / smallest > 1000 || largest > 1e8 || (!integral && smallest < 1e-4)) {
    style.mode = Style::Mode::scientific;
  } else if (!integral) {
    style.mode = Style::Mode::fixed;
  }
  const std::size_t point = style.mode == Style::Mode::integral;
  for (const double value : shown) {
    if (!std::isfinite(value) || value == 0) continue;
    style.width = std::max(style.width, print_double(value, style.mode, precision).size() + point);
  }
  return style;
}

// The shown elements in row-major order, already padded to one width (a few may be wider: zeros, inf
// and nan do not count), and that width.
struct Cells {
  std::vector<std::string> text;
  std::size_t width = 1;
};

void pad(Cells& cells) {
  for (std::string& cell : cells.text) {
    if (cell.size() < cells.width) cell.insert(0, cells.width - cell.size(), ' ');
  }
}

Cells float_cells(const std::vector<double>& shown, int precision) {
  const Style style = choose_style(shown, precision);
  Cells cells{.width = style.width};
  for (const double value : shown) {
    cells.text.push_back(print_double(value, style.mode, precision));
    if (style.mode == Style::Mode::integral && std::isfinite(value)) cells.text.back() += '.';
  }
  pad(cells);
  return cells;
}

template <class T>
Cells integer_cells(const std::vector<T>& shown) {
  Cells cells;
  for (const T value : shown) {
    if constexpr (std::is_same_v<T, bool>) {
      cells.text.emplace_back(value ? "True" : "False");
    } else {
      cells.text.push_back(std::to_string(value));
    }
    cells.width = std::max(cells.width, cells.text.back().size());
  }
  pad(cells);
  return cells;
}

template <class T, class Out>
void collect(const T* data, const Shape& shape, const Shape& strides, std::size_t dim, bool summarise,
             std::int64_t edge_items, std::vector<Out>& shown) {
  if (dim == shape.size()) {
    if constexpr (std::is_same_v<Out, double>) {
      shown.push_back(to_double(*data));
    } else {
      shown.push_back(*data);
    }
    return;
  }
  for_each_shown(edges_of(shape[dim], summarise, edge_items), [&](std::int64_t i) {
    collect(data + i * strides[dim], shape, strides, dim + 1, summarise, edge_items, shown);
  });
}

Cells make_cells(const Tensor& tensor, bool summarise, const PrintOptions& options) {
  return visit(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Out = std::conditional_t<std::is_integral_v<T>, T, double>;
    std::vector<Out> shown;
    collect(tensor.data<T>(), tensor.shape(), tensor.strides(), 0, summarise, options.edge_items, shown);
    if constexpr (std::is_integral_v<T>) {
      return integer_cells(shown);
    } else {
      return float_cells(shown, options.precision);
    }
  });
}

// Writes the cells between nested brackets, one call a dimension.
class Layout {
 public:
  Layout(const Shape& shape, bool summarise, const Cells& cells, const PrintOptions& options)
      : shape_(shape), summarise_(summarise), cells_(cells), options_(options) {}

  std::string text() {
    write(0, kPrefix.size());
    return std::move(out_);
  }

 private:
  void write(std::size_t dim, std::size_t indent) {
    if (dim == shape_.size()) {
      out_ += cells_.text[next_++];
    } else if (dim + 1 == shape_.size()) {
      write_vector(edges_of(shape_[dim], summarise_, options_.edge_items), indent);
    } else {
      write_slices(dim, edges_of(shape_[dim], summarise_, options_.edge_items), indent);
    }
  }

  void write_slices(std::size_t dim, const Edges& edges, std::size_t indent) {
    std::string separator(1, ',');
    separator.append(shape_.size() - dim - 1, '\n').append(indent + 1, ' ');
    out_ += '[';
    for_each_shown(edges, [&](std::int64_t i) {
      if (i != 0) out_ += separator;
      if (i != 0 && i == edges.tail) out_ += "..." + separator;
      write(dim + 1, indent + 1);
    });
    out_ += ']';
  }

  void write_vector(const Edges& edges, std::size_t indent) {
    const auto line_width = static_cast<std::size_t>(options_.line_width);
    const std::size_t room = line_width > indent ? line_width - indent : 0;
    const std::size_t per_line = std::max<std::size_t>(1, room / (cells_.width + 2));
    std::size_t written = 0;
    const auto put = [&](std::string_view cell) {
      if (written != 0) out_ += written % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      out_ += cell;
      ++written;
    };
    out_ += '[';
    for_each_shown(edges, [&](std::int64_t i) {
      if (edges.gap() && i == edges.tail) put(" ...");
      put(cells_.text[next_++]);
    });
    out_ += ']';
  }

  const Shape& shape_;
  bool summarise_;
  const Cells& cells_;
  const PrintOptions& options_;
  std::string out_;
  std::size_t next_ = 0;  // cell
};

// ", dtype=torch.float64" and the like, on a line of its own where the last line has no room for it.
void add_suffixes(std::string& text, const std::vector<std::string>& suffixes, int line_width) {
  // PyTorch counts two characters more than there are: npos + 1 is 0 on a single line.
  std::size_t used = text.size() - (text.rfind('\n') + 1) + 2;
  for (const std::string& suffix : suffixes) {
    if (used + suffix.size() + 2 > static_cast<std::size_t>(line_width)) {
      text += ",\n" + std::string(kPrefix.size(), ' ') + suffix;
      used = kPrefix.size() + suffix.size();
    } else {
      text += ", " + suffix;
      used += suffix.size() + 2;
    }
  }
}

std::vector<std::string> suffixes_of(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  const bool empty = tensor.numel() == 0;
  std::vector<std::string> suffixes;
  if (empty && tensor.rank() != 1) suffixes.push_back("size=" + tensor.shape().str());
  // Elements show int64 and bool for what they are; without elements only the default goes unsaid.
  const bool said = dtype == DType::f32 || (!empty && (dtype == DType::i64 || dtype == DType::boolean));
  if (!said) suffixes.push_back("dtype=torch." + std::string(name(dtype)));
  return suffixes;
}

void check(const Tensor& tensor, const PrintOptions& options) {
  const auto fail = [](std::string_view expected, const std::string& found) {
    throw Error(Error::Kind::argument, "to_string", expected, found);
  };
  if (!tensor.defined()) fail("a tensor", "an undefined one");
  if (options.precision < 0 || options.precision > kMaxPrecision) {
    fail("a precision in [0, " + std::to_string(kMaxPrecision) + "]", std::to_string(options.precision));
  }
  if (options.edge_items < 1) fail("edge_items >= 1", std::to_string(options.edge_items));
  if (options.threshold < 0) fail("threshold >= 0", std::to_string(options.threshold));
  if (options.line_width < 1) fail("line_width >= 1", std::to_string(options.line_width));
}

}  // namespace

std::string to_string(const Tensor& tensor, const PrintOptions& options) {
  check(tensor, options);
  std::string text(kPrefix);
  if (tensor.numel() == 0) {
    text += "[]";
  } else {
    const bool summarise = tensor.numel() > options.threshold;
    const Cells cells = make_cells(tensor, summarise, options);
    text += Layout(tensor.shape(), summarise, cells, options).text();
  }
  add_suffixes(text, suffixes_of(tensor), options.line_width);
  return text + ")";
}

}  // namespace attn

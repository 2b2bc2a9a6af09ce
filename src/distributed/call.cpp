// Ranks tell each other before they compute whether their inputs fit, and whether they mean the same call.
#include "distributed/call.hpp"

#include <optional>
#include <sstream>
#include <type_traits>

#include "attention/fields.hpp"
#include "attention/validate.hpp"
#include "attn/error.hpp"
#include "core/known.hpp"

namespace attn::distributed {
namespace {

constexpr const char* kOp = "distributed attention";

[[noreturn]] void fail(Error::Kind kind, const std::string& expected, const std::string& found, const char* hint = "") {
  throw Error(kind, kOp, expected, found, hint);
}

std::string shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  return "q " + q.shape().str() + ", k " + k.shape().str() + ", v " + v.shape().str();
}

// Hashes a tensor's bytes in the order of its elements (FNV-1a).
std::uint64_t fingerprint(const Tensor& t) {
  const Tensor all = t.contiguous();
  const auto* byte = static_cast<const unsigned char*>(all.raw());
  std::uint64_t hash = 14695981039346656037U;
  for (std::size_t i = 0; i < static_cast<std::size_t>(all.numel()) * size_of(all.dtype()); ++i)
    hash = (hash ^ byte[i]) * 1099511628211U;
  return hash;
}

void check_tensors(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!(q.rank() == 4 && k.rank() == 4 && v.rank() == 4))
    fail(Error::Kind::shape, "q (b, hq, tq, d), k (b, hkv, tk, d), v (b, hkv, tk, dv)", shapes(q, k, v));
  const bool fits = k.size(2) == v.size(2) && q.size(0) == k.size(0) && k.size(0) == v.size(0) &&
                    k.size(1) == v.size(1) && q.size(3) == k.size(3) && k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  if (!fits) fail(Error::Kind::shape, "q, k and v of one problem, with at least one head", shapes(q, k, v));
}

void check_options(const AttentionOptions& options) {
  if (options.return_weights)
    fail(Error::Kind::argument, "a call without return_weights", "return_weights",
         "ask attention() for a row's weights");
  if (options.query_offset.given() || options.key_offset.given())
    fail(Error::Kind::argument, "no offsets: positions are those of the layouts", "query_offset or key_offset");
}

// Rows of this rank and all columns, or 1 of either.
void check_cells(const Tensor& t, const char* what, std::int64_t rows, std::int64_t columns) {
  if (!t.defined()) return;
  const bool fits = t.rank() == 4 && (t.size(2) == 1 || t.size(2) == rows) && (t.size(3) == 1 || t.size(3) == columns);
  if (!fits) {
    fail(Error::Kind::shape,
         std::string(what) + " (b, h, this rank's " + std::to_string(rows) + " rows, all " + std::to_string(columns) +
             " columns), or 1 of any",
         t.shape().str());
  }
}

void check_layout(const Layout& layout, const char* what, const Transport& transport, std::int64_t rows) {
  if (!layout.defined()) return;
  if (layout.ranks() != transport.size()) {
    fail(Error::Kind::argument, std::string(what) + "' layout for " + std::to_string(transport.size()) + " ranks",
         "one for " + std::to_string(layout.ranks()));
  }
  if (layout.rows(transport.rank()) != rows) {
    fail(Error::Kind::shape,
         std::string("the layout's ") + std::to_string(layout.rows(transport.rank())) + " rows of " + what,
         std::to_string(rows));
  }
}

template <class T>
requires std::is_arithmetic_v<T>
void put(std::ostream& out, T number) { out << number; }
void put(std::ostream& out, std::string_view name) { out << name; }
void put(std::ostream& out, Align align) { out << (align == Align::top_left ? "top_left" : "bottom_right"); }
void put(std::ostream& out, Precision precision) { out << name(precision); }
void put(std::ostream& out, DType dtype) { out << name(dtype); }
void put(std::ostream& out, const ScoreFunction& function) { out << static_cast<bool>(function); }
void put(std::ostream& out, const HeadRange& heads) { out << heads.first << " of " << heads.all; }
void put(std::ostream& out, const Offset& offset) { out << offset.given(); }  // check_options() lets none be given
void put(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return put(out, "none");
  out << t.shape().str() << " of " << name(t.dtype()) << " (fingerprint " << std::hex << fingerprint(t) << std::dec
      << ')';
}
template <class T>
void put(std::ostream& out, const std::optional<T>& value) {
  value ? put(out, *value) : put(out, "none");
}
void put(std::ostream& out, const Layout& layout) {
  for (int r = 0; r < layout.ranks(); ++r) {
    for (const Run& run : layout.runs(r)) out << run.first << '-' << run.last << ' ';
    out << "; ";
  }
}

template <class... T>
void line(std::ostream& out, const char* field, const T&... values) {
  out << field;
  ((out << ' ', put(out, values)), ...);
  out << '\n';
}

// A line for each thing that all ranks must mean alike, every option among them.
std::string description(const Tensor& q, const Tensor& k, const Tensor& v, const Options& options,
                        const AttentionOptions& o, Kind kind) {
  std::ostringstream out;
  out.precision(17);
  line(out, "call", static_cast<int>(kind)), line(out, "scheme", name(options.scheme));
  line(out, "dtypes", q.dtype(), k.dtype(), v.dtype()), line(out, "batch", q.size(0));
  line(out, "heads", q.size(1), k.size(1)), line(out, "head_dim", q.size(3), v.size(3));
  visit_fields(o, [&out]<class T>(const char* field, FieldKind what, const T& value) {
    if constexpr (std::is_same_v<T, Tensor>) {  // a mask's rows are a rank's own: the other sizes are common
      if (what == FieldKind::cells && value.defined())
        return line(out, field, value.dtype(), value.size(0), value.size(1), value.size(3));
    }
    line(out, field, value);
  });
  const Costs& costs = options.costs;
  line(out, "most_bytes", options.most_bytes);
  line(out, "gradients", options.with_gradient ? "are followed" : "are not followed");
  line(out, "costs", costs.bytes_per_second, costs.latency, costs.flops_per_second);
  if (kind == Kind::decode) line(out, "q", q);
  line(out, "queries", options.queries), line(out, "keys", options.keys);
  return out.str();
}

std::string first_line_of_difference(const std::string& a, const std::string& b) {
  std::istringstream one(a), other(b);
  std::string x, y;
  while (std::getline(one, x) && std::getline(other, y) && x == y) {
  }
  return "\"" + x + "\" and \"" + y + "\"";
}

// An error of any rank is thrown on all of them.
void compare(Transport& transport, const std::string& error, const std::string& text) {
  const std::vector<std::string> all = transport.all_gather(error.empty() ? "+" + text : "-" + error);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r][0] == '-')
      fail(Error::Kind::argument, "inputs that fit on every rank",
           "on rank " + std::to_string(r) + ": " + all[r].substr(1));
  }
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    fail(Error::Kind::argument, "the same call on every rank",
         first_line_of_difference(all[0].substr(1), all[r].substr(1)) + " on ranks 0 and " + std::to_string(r));
  }
}

struct Rows {
  std::int64_t queries = 0, keys = 0;
  std::int64_t keep = 0, bias = 0, dropout_keep = 0;  // of masks
};

Rows rows_of(const Tensor& q, const Tensor& k, const AttentionOptions& o) {
  const auto rows = [](const Tensor& t) { return t.defined() && t.rank() == 4 ? t.size(2) : 0; };
  return {rows(q), rows(k), rows(o.mask.keep), rows(o.mask.bias), rows(o.dropout_keep)};
}

SharedRows shared_rows(const std::vector<Rows>& all) {
  SharedRows shared;
  for (const Rows& one : all) {
    if (one.queries == 1) continue;
    shared.keep = shared.keep || one.keep == 1, shared.bias = shared.bias || one.bias == 1;
    shared.dropout_keep = shared.dropout_keep || one.dropout_keep == 1;
  }
  return shared;
}

Layout layout_of(const Layout& given, const std::vector<Rows>& rows, std::int64_t Rows::*which) {
  if (given.defined()) return given;
  std::vector<std::int64_t> lengths;
  for (const Rows& one : rows) lengths.push_back(one.*which);
  return Layout::contiguous(lengths);
}

bool alike(const std::vector<Rows>& rows) {
  for (const Rows& one : rows) {
    if (one.queries != one.keys) return false;
  }
  return true;
}

Tensor of_rank_4(Tensor t) {
  while (t.defined() && t.rank() < 4) t = t.unsqueeze(0);
  return t;
}

// An option's mistakes are the operator's to find: on no rows at all.
void try_options(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  AttentionOptions none = call.options;
  visit_tensors(none, [](const char*, FieldKind what, Tensor& field) {
    if (what == FieldKind::tokens || what == FieldKind::blocks) field = {};
    if (what != FieldKind::cells || !field.defined()) return;
    if (field.size(2) != 1) field = field.slice(2, 0, 0);
    if (field.size(3) != 1) field = field.slice(3, 0, 0);
  });
  none.mask.block_query = none.mask.block_key = 0;  // which went with block_keep
  attn::attention(q.slice(2, 0, 0), k.slice(2, 0, 0), v.slice(2, 0, 0), none);
}

// Checks the positions of all ranks' tokens, which only the ranks together have.
void check_whole(const Call& call) {
  const Problem& p = call.problem;
  check_positions(call.options.mask, {p.batch, p.query_heads, p.key_heads, call.queries().tokens(),
                                      call.keys().tokens(), p.depth, p.value_depth, 1});
}

void require_able(std::string_view scheme, const std::string& why) {
  if (!why.empty())
    fail(Error::Kind::argument, "what " + std::string(scheme) + " can do", why, "choose another scheme");
}

void choose_scheme(Call& call, const Options& options) {
  require_known(kOp, "scheme", call.scheme, Scheme::ulysses);
  if (call.scheme != Scheme::automatic)
    return require_able(name(call.scheme), refusal(call.scheme, call.problem, call.options));
  Options whole = options;
  whole.attention = call.options;
  call.scheme = estimate(call.problem, whole).scheme;
}

// Gradients of what ranks share are sums of parts, which are not to be rounded before they are added.
void widen_what_is_shared(AttentionOptions& o) {
  for (Tensor* t : {&o.sinks, &o.relative_bias.table}) {
    if (t->defined() && is_floating(t->dtype())) *t = t->to(DType::f64);
  }
  Tensor& bias = o.mask.bias;
  if (bias.defined() && size_of(bias.dtype()) == 2) bias = bias.to(DType::f32);
}

// Unless there is an error already: f(), or what it threw. Whatever that is, the other ranks wait for this one.
template <class F>
void told(std::string& error, F&& f) {
  if (!error.empty()) return;
  try {
    f();
  } catch (const std::exception& e) {
    error = e.what();
  }
}

}  // namespace

// The messages of agree().
void refuse(Transport& transport, const std::string& why) {
  transport.all_values(Rows{});
  compare(transport, why.empty() ? "an error" : why, {});
  throw Error(Error::Kind::argument, kOp, "inputs that fit on every rank", why);  // compare() has thrown it
}

Call agree(Transport& transport, const Tensor& q, const Tensor& k, const Tensor& v, const Options& options, Kind kind,
           const std::function<void()>& check) {
  Call call{transport, options.attention, options.scheme, options.most_bytes, {}};
  AttentionOptions& o = call.options;
  std::string error, text;
  Rows own;
  told(error, [&] {
    visit_tensors(o, [](const char*, FieldKind what, Tensor& field) {
      if (what == FieldKind::cells || what == FieldKind::blocks) field = of_rank_4(field);
    });
    if (kind == Kind::backward) widen_what_is_shared(o);
    own = rows_of(q, k, o);
  });
  const std::vector<Rows> rows = transport.all_values(own);
  call.shared = shared_rows(rows);
  told(error, [&] {
    check_tensors(q, k, v), check_options(o);
    check_layout(options.queries, "queries", transport, own.queries);
    check_layout(options.keys, "keys", transport, own.keys);
    Layout queries =
        kind == Kind::decode ? Layout::even(own.queries, 1) : layout_of(options.queries, rows, &Rows::queries);
    const bool same = kind != Kind::decode && !options.keys.defined() && alike(rows);
    Layout keys = same ? queries : layout_of(options.keys, rows, &Rows::keys);
    call.problem = {q.size(0), q.size(1), k.size(1),          q.size(3),
                    v.size(3), q.dtype(), std::move(queries), std::move(keys)};
    const std::int64_t columns = call.keys().tokens();
    visit_tensors(o, [&](const char* field, FieldKind what, const Tensor& t) {
      if (what == FieldKind::cells) check_cells(t, field, own.queries, columns);
    });
    check_whole(call);
    if (check) check();
    try_options(call, q, k, v);
    text = description(q, k, v, options, o, kind);
  });
  compare(transport, error, text);
  if (kind == Kind::decode) {
    require_able("decode", refusal(Scheme::ring, call.problem, o));
  } else {
    choose_scheme(call, options);
  }
  return call;
}

}  // namespace attn::distributed

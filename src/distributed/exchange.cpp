#include "distributed/exchange.hpp"

namespace attn::distributed {
namespace {

Shape with_size(Shape shape, std::size_t dim, std::int64_t size) {
  shape[dim] = size;
  return shape;
}

}  // namespace

std::vector<Tensor> exchange(Transport& transport, const std::vector<Tensor>& to, const std::vector<Shape>& shapes) {
  std::vector<Tensor> sent, from;
  std::vector<Bytes> messages;
  std::vector<Room> rooms;
  for (std::size_t r = 0; r < to.size(); ++r) {
    sent.push_back(to[r].contiguous()), from.push_back(Tensor::empty(shapes[r], to[r].dtype()));
    messages.push_back(bytes_of(sent.back())), rooms.push_back(room_of(from.back()));
  }
  transport.all_to_all(messages, rooms);
  return from;
}

Tensor whole_rows(Transport& transport, const Layout& layout, const Tensor& rows) {
  const Tensor own = rows.contiguous();
  std::vector<Shape> shapes;
  for (int r = 0; r < transport.size(); ++r) shapes.push_back(with_size(own.shape(), 2, layout.rows(r)));
  const std::vector<Tensor> from = exchange(transport, std::vector<Tensor>(shapes.size(), own), shapes);
  const Tensor whole = Tensor::empty(with_size(own.shape(), 2, layout.tokens()), own.dtype());
  for (int r = 0; r < transport.size(); ++r) layout.put(from[static_cast<std::size_t>(r)], whole, 2, r);
  return whole;
}

Tensor rows_to_heads(Transport& transport, const Layout& layout, const Tensor& rows, const std::vector<Heads>& heads) {
  const Heads own = heads[static_cast<std::size_t>(transport.rank())];
  std::vector<Tensor> to;
  std::vector<Shape> shapes;
  const Shape shape = with_size(rows.shape(), 1, own.count());
  for (int r = 0; r < transport.size(); ++r) {
    const Heads& of = heads[static_cast<std::size_t>(r)];
    to.push_back(rows.slice(1, of.first, of.last));
    shapes.push_back(with_size(shape, 2, layout.rows(r)));
  }
  const std::vector<Tensor> from = exchange(transport, to, shapes);
  const Tensor whole = Tensor::empty(with_size(shape, 2, layout.tokens()), rows.dtype());
  for (int r = 0; r < transport.size(); ++r) layout.put(from[static_cast<std::size_t>(r)], whole, 2, r);
  return whole;
}

Tensor heads_to_rows(Transport& transport, const Layout& layout, const Tensor& own, const std::vector<Heads>& heads) {
  const std::int64_t rows = layout.rows(transport.rank());
  std::vector<Tensor> to;
  std::vector<Shape> shapes;
  for (int r = 0; r < transport.size(); ++r) {
    to.push_back(layout.take(own, 2, r));
    shapes.push_back(with_size(with_size(own.shape(), 1, heads[static_cast<std::size_t>(r)].count()), 2, rows));
  }
  const std::vector<Tensor> from = exchange(transport, to, shapes);
  const Tensor all = Tensor::empty(with_size(shapes[0], 1, heads.back().last), own.dtype());
  for (std::size_t r = 0; r < heads.size(); ++r) all.slice(1, heads[r].first, heads[r].last).copy_from(from[r]);
  return all;
}

Tensor sum_over_ranks(Transport& transport, const Tensor& part) {
  if (!part.defined()) return part;
  const Tensor all = part.to(DType::f64).contiguous();
  const auto ranks = static_cast<std::size_t>(transport.size());
  std::vector<std::int64_t> shares;
  std::vector<Room> from;
  const Tensor sum = Tensor::empty(all.shape(), DType::f64);
  double* const out = sum.data<double>();
  std::int64_t at = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const Heads share = share_of_heads(all.numel(), transport.size(), static_cast<std::int64_t>(r));
    shares.push_back(share.count());
    from.push_back(std::as_writable_bytes(std::span(out + at, static_cast<std::size_t>(share.count()))));
    at += share.count();
  }
  std::vector<double> own(static_cast<std::size_t>(shares[static_cast<std::size_t>(transport.rank())]));
  transport.reduce_scatter({all.data<double>(), static_cast<std::size_t>(all.numel())}, shares, own);
  transport.all_gather(std::as_bytes(std::span(own)), from);
  return sum;
}

}  // namespace attn::distributed

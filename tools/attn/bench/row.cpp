#include "bench/row.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attention/element.hpp"
#include "attn/error.hpp"
#include "bench/work.hpp"
#include "common/format.hpp"

namespace attn::tool {
namespace {

std::int64_t parse_size(const std::string& text, const std::string& shape) {
  constexpr std::int64_t most = 1 << 24;  // so that products of a few sizes fit
  const std::int64_t size = number_in<std::int64_t>(text).value_or(0);
  if (size >= 1 && size <= most) return size;
  throw Error(Error::Kind::data, "shape", formatted("sizes from 1 to {}, joined by commas", most), shape);
}

Row parse_row(const std::vector<std::string>& words) {
  if (words.size() < 3 || words.size() > 6) {
    throw Error(Error::Kind::data, "row", "op shape dtype [mask [precision [numbers]]]",
                formatted("{} words", words.size()));
  }
  Row row{words[0], words[1], words[2]};
  if (words.size() > 3) row.mask = words[3];
  if (words.size() > 4) row.precision = words[4];
  if (words.size() > 5) row.numbers = words[5];
  check_row(row);
  return row;
}

}  // namespace

Json row_json(const Row& row) {
  return {{"op", row.op},     {"shape", row.shape},         {"dtype", row.dtype},
          {"mask", row.mask}, {"precision", row.precision}, {"numbers", row.numbers}};
}

std::vector<Row> parse_rows(std::string_view list, const std::string& name) {
  std::istringstream lines{std::string(list)};
  std::vector<Row> rows;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    try {
      rows.push_back(parse_row(words));
    } catch (const Error& error) {
      throw Error(Error::Kind::data, formatted("{}:{}", name, number), "a row that can be timed",
                  formatted("\"{}\"", joined(words, " ")), error.what());
    }
  }
  return rows;
}

std::vector<Row> filtered(const std::vector<Row>& rows, const std::string& filter) {
  std::vector<Row> kept;
  const auto words = split(filter, ' ');
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept), [&](const Row& row) {
    const std::string text = row.text();
    return std::all_of(words.begin(), words.end(), [&](const auto& w) { return text.find(w) != std::string::npos; });
  });
  return kept;
}

std::vector<Extent> parse_shape(const std::string& shape) {
  std::vector<Extent> extents;
  for (const std::string& place : split(shape, ',')) {
    const auto sizes = split(place, '/');
    if (sizes.size() > 2) throw Error(Error::Kind::data, "shape", "at most two sizes a place: hq/hkv", shape);
    extents.push_back({parse_size(sizes.front(), shape), parse_size(sizes.back(), shape)});
  }
  return extents;
}

DType parse_dtype(const std::string& dtype) {
  const std::optional<DType> found = dtype_named(dtype);
  if (found && has_element(*found) && dtype != name(*found)) return *found;  // by its short name
  throw Error(Error::Kind::data, "dtype", "f32, bf16, f16 or i8", dtype);
}

}  // namespace attn::tool

// Where ranks write a text together, generate() differs in this.
#include <exception>
#include <string>

#include "attn/cut_cache.hpp"
#include "attn/error.hpp"

namespace attn::distributed {
namespace {

// Rank 0's token, or its error, on all ranks.
std::int64_t of_rank_0(Transport& transport, const std::function<std::int64_t()>& draw) {
  constexpr char failed = '!';
  std::string told;
  std::exception_ptr error;
  if (transport.rank() == 0) {
    try {
      told = std::to_string(draw());
    } catch (const std::exception& thrown) {
      error = std::current_exception(), told = failed + std::string(thrown.what());
    }
  }
  told = transport.all_gather(told).front();
  if (error) std::rethrow_exception(error);
  if (told.front() == failed) throw Error(Error::Kind::data, "generate", "a token from rank 0", told.substr(1));
  return std::stoll(told);
}

}  // namespace

GenerateOptions over_ranks(Transport& transport, GenerateOptions options) {
  options.make_cache = [&transport](const KVCacheConfig& config) {
    return std::make_unique<CutCache>(transport, config);
  };
  options.agree = [&transport](const std::function<std::int64_t()>& draw) { return of_rank_0(transport, draw); };
  return options;
}

}  // namespace attn::distributed

// Renders chat templates for tests that compare with Jinja: each line of the input is an object of a template, its
// special tokens and a conversation, and each line of the output one of the text or the error.
#include <iostream>
#include <nlohmann/json.hpp>

#include "attn/chat.hpp"
#include "attn/error.hpp"

int main() {
  using Json = nlohmann::ordered_json;
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const Json given = Json::parse(line);
    Json answer;
    try {
      const auto tokens = given.at("tokens").get<attn::ChatTemplate::Tokens>();
      const auto chat = attn::ChatTemplate::parse(given.at("template").get<std::string>(), tokens);
      std::tm now{};
      now.tm_year = 124, now.tm_mon = 6, now.tm_mday = 26, now.tm_wday = 5, now.tm_hour = 13, now.tm_min = 5;
      answer["text"] =
          chat.format(given.at("conversation").get<std::string>(), {.generation_prompt = false, .now = now});
    } catch (const attn::Error& error) {
      answer["error"] = error.what();
    }
    std::cout << answer.dump(-1, ' ', true, Json::error_handler_t::replace) << "\n";
  }
}

// Conversations beside what Jinja makes of their templates (make_chats.py).
#include "attn/chat.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "attn/error.hpp"
#include "cases.hpp"

namespace attn::test {
namespace {

using testing::HasSubstr;

TEST(Chat, IsWhatTheTemplateMakes) {
  const auto cases = nlohmann::json::parse(read_data("chats.json"));
  std::set<std::string> names;
  for (const auto& c : cases) {
    const ChatTemplate chat = ChatTemplate::parse(c["template"].get<std::string>());
    names.emplace(name(chat.form()));
    EXPECT_THAT(c["name"].get<std::string>(), testing::StartsWith(std::string(name(chat.form()))));
    std::vector<ChatMessage> messages;
    const auto words = c["messages"].get<std::vector<std::string>>();
    for (std::size_t i = 0; i < words.size(); i += 2) messages.push_back({words[i], words[i + 1]});
    const ChatOptions options{.generation_prompt = c["ask"].get<bool>()};
    SCOPED_TRACE(c["name"].get<std::string>() + ": " + words[1]);
    if (c["text"].is_null()) {
      EXPECT_THROW(chat.format(messages, options), Error);
    } else {
      EXPECT_EQ(chat.format(messages, options), c["text"].get<std::string>());
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"ChatML", "Llama 3", "Gemma"}));
}

void expect_refused(const std::string& jinja, const std::string& why) {
  try {
    ChatTemplate::parse(jinja);
    ADD_FAILURE() << "no Error; expected " << why;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data);
    EXPECT_THAT(error.what(), HasSubstr(why));
    EXPECT_THAT(error.what(), HasSubstr("ChatML, Llama 3 or Gemma"));
  }
}

TEST(Chat, OtherFormsAreRefusedByTheirMarks) {
  expect_refused("", "none");
  expect_refused("{{ messages }}", "one without their marks");
  expect_refused("{{ '[INST] ' + m + ' [/INST]' }}", "[INST]");
  expect_refused("{{ '<|user|>\\n' + m + '<|end|>' }}", "<|user|>");
  expect_refused("{{ '<|im_start|>' + role + '<|im_sep|>' + m + '<|im_end|>' }}", "<|im_sep|>");
  expect_refused("{{ '<|start_header_id|>' + '<|image|>' }}", "<|image|>");
  expect_refused("{{ '<|im_start|>' + strftime_now('%d') + '<|im_end|>' }}", "date");
  expect_refused("{{ '<|start_header_id|>' + strftime_now('%d') }}", "dates");
}

TEST(Chat, TheDateIsTodaysWhereTheTemplateAsksForIt) {
  const std::string jinja =
      "{{ '<|start_header_id|>Cutting Knowledge Date: December 2023' + strftime_now('%d %b %Y') }}";
  const std::vector<ChatMessage> messages{{"user", "a"}};
  const ChatTemplate chat = ChatTemplate::parse(jinja);
  EXPECT_THAT(chat.format(messages, {.date = "01 Feb 2030"}), HasSubstr("Today Date: 01 Feb 2030\n\n"));
  EXPECT_THAT(chat.format(messages), testing::ContainsRegex("Today Date: [0-9][0-9] [A-Z][a-z][a-z] 20[0-9][0-9]\n"));
  EXPECT_EQ(chat.end_of_turn(), "<|eot_id|>");
}

TEST(Chat, RolesThatNoFormHasAreErrors) {
  const std::vector<ChatMessage> messages{{"user", "a"}, {"tool", "b"}};
  for (const char* const jinja : {"<|im_start|>", "<|start_header_id|>", "<start_of_turn>"}) {
    EXPECT_THROW(ChatTemplate::parse(jinja).format(messages), Error) << jinja;
  }
}

}  // namespace
}  // namespace attn::test

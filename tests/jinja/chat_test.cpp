// Templates beside what transformers makes of them (make_templates.py), and their limits.
#include "attn/chat.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "attn/error.hpp"
#include "attn/tokenizer.hpp"

namespace attn::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(Chat, IsWhatTheTemplateMakes) {
  std::ifstream file(ATTN_TEST_DATA "/templates.json");
  const Json cases = Json::parse(file);
  EXPECT_GT(cases.size(), 60u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c["template"].get<std::string>());
    std::string text;
    bool refused = false;
    try {
      const auto chat = ChatTemplate::parse(c["template"].get<std::string>(), {{"bos_token", "<s>"}});
      text = chat.format(c["conversation"].dump());
    } catch (const Error& error) {
      refused = true;
      EXPECT_TRUE(c["text"].is_null()) << error.what();
    }
    if (!refused) {
      EXPECT_EQ(Json(text), c["text"]);
    }
  }
}

const std::vector<ChatMessage> kHello{{"user", "hello"}};

void expect_error(const std::string& jinja, Error::Kind kind, const std::string& told) {
  try {
    const std::string text = ChatTemplate::parse(jinja).format(kHello);
    ADD_FAILURE() << "no Error, but " << text.substr(0, 80) << "; expected " << told;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(told));
  }
}

TEST(Chat, WhatIsLackingIsRefusedByName) {
  expect_error("{{ messages | groupby('role') }}", Error::Kind::data, "the filter groupby");
  expect_error("{{ 'a' is filter }}", Error::Kind::data, "the test filter");
  expect_error("{% include 'x' %}", Error::Kind::data, "the tag include in line 1");
  for (const char* const tag : {"with", "block"}) {
    expect_error("{% " + std::string(tag) + " %}", Error::Kind::data, "the tag " + std::string(tag));
  }
  expect_error("{% for a in [] recursive %}", Error::Kind::data, "a recursive loop in line 1");
  expect_error("{% macro m() %}{{ varargs }}{% endmacro %}", Error::Kind::data, "the name varargs in a macro");
  expect_error("{% macro m(caller=1) %}{% endmacro %}", Error::Kind::data, "the name caller in a macro");
  expect_error("{% macro m() %}{% set caller = 1 %}{% endmacro %}", Error::Kind::data, "the name caller in a macro");
  expect_error("{% macro m(a=caller) %}{% endmacro %}", Error::Kind::data,
               "the name caller among a macro's parameters");
  expect_error("{{ 'a b c'.rsplit(none, 1) }}", Error::Kind::data, "a split at white space from the right");
  expect_error("{{ 'ä' is lower }}", Error::Kind::data, "the case of ä");
  expect_error("{% for a in 'b' %}{{ loop.cycle(1) }}{% endfor %}", Error::Kind::data, "loop.cycle");
  expect_error("{{ 1e5 }}", Error::Kind::data, "a number such as 1e");
  expect_error("{{ 'a'[0, 1] }}", Error::Kind::data, "a subscript of several values");
  expect_error("{{ 1.5 | round }}", Error::Kind::data, "the filter round");
  expect_error("{{ 'a'.replace('', 'b') }}", Error::Kind::data, "the replacement of an empty text");
  expect_error("{{ range == range }}", Error::Kind::data, "the comparison of a function");
  expect_error("{{ 'a'.encode() }}", Error::Kind::data, "the method encode of a str");
  expect_error("{{ 'a'.find('a', 1) }}", Error::Kind::data, "the arguments of find, of which it lacks start");
  expect_error("{{ '%5d' % 1 }}", Error::Kind::data, "the format %5");
  expect_error("{{ '{:>5}'.format(1) }}", Error::Kind::data, "the format {:>5}");
  expect_error("{{ 'ß' | upper }}", Error::Kind::data, "the case of the character ß");
  expect_error("{{ 2 ** 64 }}", Error::Kind::data, "the operator **");
  expect_error("{{ 9000000000000000000 * 2 }}", Error::Kind::data, "beyond 64 bits");
  expect_error("{{ cycler(1) }}", Error::Kind::data, "the name cycler");
  expect_error("{{ messages.append }}", Error::Kind::data, "a function as text");
  expect_error("{{ messages.append in {} }}", Error::Kind::data, "a function as a key");
  expect_error("\n\n{% if %}", Error::Kind::data, "line 3");
}

// The values are Jinja2's.
TEST(Chat, RawTextAndFormats) {
  const std::pair<const char*, const char*> cases[] = {
      {"a {% raw %}{{ x }}{% if %}{# c #}{% endraw %} b", "a {{ x }}{% if %}{# c #} b"},
      {"a\n {%- raw -%} \n{% b {%- endraw -%} \nc", "a{% bc"},
      {"  {% raw %}\n {{\n  {% endraw %}\nc", "\n {{\nc"},
      {"  {%+ raw %}x {%+ endraw +%}\nc", "  x \nc"},
      {"x{% raw %}", "x"},
      {"{{ '%s-%d%%' | format('a', 3) }}", "a-3%"},
      {"{{ 7 | format }}{{ '%s' | format(('a',)) }}", "7('a',)"},
      {"{{ '{i:d} {:d}'.format(4, i=-7) }}", "-7 4"},
  };
  for (const auto& [jinja, wanted] : cases) {
    EXPECT_EQ(ChatTemplate::parse(jinja).format(kHello), wanted) << jinja;
  }
  expect_error("{% raw %}x", Error::Kind::data, "the tag raw without its end in line 1");
  expect_error("{% raw +%}x{% endraw %}", Error::Kind::data, "raw");
  expect_error("{{ '%s' | format(a=1) }}", Error::Kind::data, "the filter format of values by name");
  expect_error("{{ '%s%s' | format(1) }}", Error::Kind::data, "fewer values");
  expect_error("{{ '{:d}'.format(1.5) }}", Error::Kind::data, "the format {:d} of a float");
}

TEST(Chat, WhatTheTemplateRefusesIsAnArgument) {
  expect_error("{{ raise_exception('roles must alternate') }}", Error::Kind::argument, "roles must alternate");
}

TEST(Chat, HostileTemplatesEnd) {
  expect_error("{{ 'x' * 1000000000 }}", Error::Kind::data, "more work");
  expect_error("{{ [0] * 2 }}", Error::Kind::data, "the operator * of a list");
  expect_error("{{ range(1000000000) | list }}", Error::Kind::data, "100000");
  expect_error("{{ 'x' | indent(1001) }}", Error::Kind::data, "an indent of more than 1000");
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Error::Kind::data, "1000 deep");
  expect_error("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}", Error::Kind::data,
               "1000 deep");
  const std::string many(100000, '('), ends(100000, ')');
  expect_error("{{ " + many + "1" + ends + " }}", Error::Kind::data, "150 deep");
  expect_error("{{ " + std::string(100000, '-') + "1 }}", Error::Kind::data, "150 deep");
  std::string sum = "1", otherwise;
  for (int i = 0; i < 100000; ++i) sum += "+1", otherwise += "{% elif 1 %}";
  expect_error("{{ " + sum + " }}", Error::Kind::data, "more than 150 parts");
  expect_error("{% if 1 %}" + otherwise + "{% endif %}", Error::Kind::data, "more than 150 parts");
  expect_error("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}",
               Error::Kind::data, "100 deep");
}

// Slow under a sanitizer, which sees what a step reads in the first of a million.
TEST(Chat, SlowTemplatesEndWhenTheirWorkIsDone) {
  expect_error("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
               Error::Kind::data, "more work");
  const std::string loop = "{% for i in range(99999) %}";
  expect_error(loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}", Error::Kind::data, "more work");
  const auto doubled = [](const std::string& begin, const std::string& twice) {
    return "{% set ns = namespace(x=" + begin + ") %}{% for i in range(60) %}{% set ns.x = " + twice +
           " %}{% endfor %}";
  };
  for (const char* const key : {"{ns.x: 1}", "{}.get(ns.x)", "[ns.x] | unique"}) {
    expect_error(doubled("1", "(ns.x, ns.x)") + "{{ " + key + " }}", Error::Kind::data, "more work");
  }
  const std::string texts = "{% set s = 'a' * 10000000 %}{% set q = 'a' * 5000000 + 'b' %}";
  for (const char* const search : {"s.find(q)", "s.rfind(q)", "s.count(q)", "s.split(q)", "s.replace(q, '')", "q in s",
                                   "s.strip('b' * 5000000 + 'a')"}) {
    expect_error(texts + "{{ " + search + " }}", Error::Kind::data, "more work");
  }
  const std::string sides =
      "{% set ns = namespace(x=('b',)) %}{% for i in range(17) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
  expect_error(sides + loop + "{{ 'a'.startswith(ns.x) }}{% endfor %}", Error::Kind::data, "more work");
  EXPECT_EQ(ChatTemplate::parse("{{ strftime_now('%%' * 1000000) | length }}").format(kHello), "1000000");
}

TEST(Chat, WhatPythonRefusesIsRefused) {
  expect_error("{{ 'a1' | trim(1) }}", Error::Kind::data, "chars that is a int");
  expect_error("{{ ['a'] | sum(start='') }}", Error::Kind::data, "a sum of texts");
}

TEST(Chat, ANamespaceMayHoldItself) {  // and is freed, as the sanitizers tell
  EXPECT_EQ(ChatTemplate::parse("{% set n = namespace() %}{% set n.n = [n] %}a").format(kHello), "a");
}

TEST(Chat, ConversationsWithToolsHaveTheirTemplate) {
  const auto tokenizer = BPETokenizer::parse(
      R"({"model": {"vocab": {"a": 0}, "merges": []}, "decoder": {"type": "Fuse"}})",
      R"({"bos_token": "a", "chat_template": [{"name": "default", "template": "{{ bos_token }} plain"},
          {"name": "tool_use", "template": "{{ bos_token }} {{ tools | length }} tools"}]})");
  const auto chat = ChatTemplate::of(tokenizer);
  EXPECT_EQ(chat.format(kHello), "a plain");
  const std::string messages = R"("messages": [{"role": "user", "content": "hello"}])";
  EXPECT_EQ(chat.format("{" + messages + "}"), "a plain");
  EXPECT_EQ(chat.format("{" + messages + R"(, "tools": null})"), "a plain");
  EXPECT_EQ(chat.format("{" + messages + R"(, "tools": [{"a": 1}, {"b": 2}]})"), "a 2 tools");
}

TEST(Chat, ATemplateForToolsAloneTakesThese) {
  const auto chat = ChatTemplate::of(
      BPETokenizer::parse(R"({"model": {"vocab": {"a": 0}, "merges": []}, "decoder": {"type": "Fuse"}})",
                          R"({"chat_template": [{"name": "tool_use", "template": "{{ tools | length }} tools"}]})"));
  EXPECT_EQ(chat.format(R"({"messages": [{"role": "user"}], "tools": [{"a": 1}]})"), "1 tools");
  try {
    chat.format(kHello);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("name the tools"));
  }
}

TEST(Chat, TimesAndOptionsReachTheTemplate) {
  std::tm now{};
  now.tm_year = 124, now.tm_mon = 6, now.tm_mday = 6;
  const auto chat =
      ChatTemplate::parse("{{ strftime_now('%d %b %Y, %-d') }}{{ add_generation_prompt }}{{ date_string }}");
  EXPECT_EQ(chat.format(kHello, {.generation_prompt = false, .now = now}), "06 Jul 2024, 6False");
  EXPECT_THAT(chat.format(kHello), testing::ContainsRegex("^[0-9][0-9] [A-Z][a-z][a-z] 20[0-9][0-9], [0-9]+True$"));
  const std::string json =
      R"({"messages": [{"role": "user"}], "date_string": "1 May", "add_generation_prompt": false})";
  EXPECT_THAT(chat.format(json), testing::EndsWith("False1 May"));
}

TEST(Chat, ConversationsAreReadAsTransformersReadsThem) {
  const auto chat = ChatTemplate::parse("{{ messages | tojson }}{{ tools }}{{ bos_token }}", {{"bos_token", "<s>"}});
  EXPECT_EQ(chat.format(R"([{"role": "user", "content": null, "reasoning": "r"}])"),
            R"([{"thinking": "r", "role": "user", "reasoning": "r", "reasoning_content": "r"}]None<s>)");
  const std::pair<const char*, const char*> wrong[] = {
      {"[]", "at least one message"},
      {"{}", "without \"messages\""},
      {"3", "messages to be a list"},
      {"[3]", "message 1 to be an object"},
      {R"([{"role": "user"}, {"content": "a"}])", "message 2 with a role"},
      {R"({"messages": [{"role": "user"}], "tools": {}})", "tools to be a list"},
      {R"({"messages": [{"role": "user"}], "tools": ["a"]})", "each of the tools"},
      {R"({"messages": [{"role": "user"}], "continue_final_message": true})", "continue_final_message"},
      {R"([{"role": "user", "n": 18446744073709551616}])", "64 bits"},
      {R"([{"role": "user", "content": "a", "content": "b"}])", "\"content\" twice"},
      {"[", "JSON; found its end at line 1, column 2 in the conversation"},
      {"\xef\xbb\xbf[{\"role\": \"user\"}]",
       "found a byte order mark in the conversation; save it as UTF-8 without one"},
  };
  for (const auto& [json, told] : wrong) {
    try {
      chat.format(json);
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::data);
      EXPECT_THAT(error.what(), HasSubstr(told)) << json;
    }
  }
  EXPECT_THROW(chat.format(std::vector<ChatMessage>{{"user", "\xff"}}), Error);
  EXPECT_THROW(chat.format(std::string(R"([{"role": "user"}])").append(1, '\0').append("lost")), Error);
}

TEST(ChatTemplate, AnEmptyOneSaysSo) {
  ChatTemplate empty, parsed = ChatTemplate::parse("{{ messages[0].content }}");
  const ChatTemplate moved = std::move(parsed);
  EXPECT_EQ(moved.format("[{\"role\": \"user\", \"content\": \"x\"}]"), "x");
  for (const ChatTemplate* one : {&empty, &parsed}) {
    EXPECT_THROW(one->format("[]"), Error);
    EXPECT_THROW(one->unnamed("[]"), Error);
  }
}

}  // namespace
}  // namespace attn::test

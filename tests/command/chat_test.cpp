// attn chat beside attn generate --messages, which reads the whole conversation anew.
#include "command/command.hpp"

namespace attn::test {
namespace {

class Chat : public Command {
 protected:
  // A small model's folder whose tokens are 61 letters and signs, "!" the first, and its template.
  void model(const std::string& name, const std::string& jinja) const {
    std::filesystem::remove_all(path("model"));
    std::filesystem::copy(kTests / "lm/data" / name, path("model"));
    json tokenizer = {{"model", {{"vocab", json::object()}, {"merges", json::array()}}},
                      {"decoder", {{"type", "Fuse"}}}};
    for (int id = 0; id < 61; ++id) tokenizer["model"]["vocab"][std::string(1, static_cast<char>('!' + id))] = id;
    write("model/tokenizer.json", tokenizer.dump());
    write("model/tokenizer_config.json", json{{"chat_template", jinja}}.dump());
  }
  json messages_of(const std::string& input, const std::string& flags = "") const {
    write("input.txt", input);
    return json::parse(out_of("attn chat --model model --temperature 0 --json --tokens 6 <input.txt " + flags));
  }
};

const std::string kWhole =
    "{% for m in messages %}{{ m.role[0] | upper }}{{ m.content }}{% endfor %}{{ 'A' if add_generation_prompt }}";
// Of older answers it keeps one letter.
const std::string kForgetful =
    "{% for m in messages %}{{ m.content if m.role == 'user' or loop.last else m.content[:1] }}{% endfor %}";

TEST_F(Chat, EachAnswerIsThatOfTheWholeConversation) {
  for (const char* const name : {"llama", "gemma2", "qwen3", "olmo_hybrid", "qwen3_5_text"}) {
    for (const std::string& jinja : {kWhole, kForgetful}) {
      SCOPED_TRACE(name + jinja);
      model(name, jinja);
      const json found = messages_of("AB\nCDE\nF\n");
      ASSERT_EQ(found["messages"].size(), 6u);
      for (std::size_t i = 1; i < 6; i += 2) {
        json before = found["messages"];
        before.erase(before.begin() + static_cast<std::ptrdiff_t>(i), before.end());
        write("before.json", before.dump());
        const json whole =
            json::parse(out_of("attn generate --model model --messages before.json --temperature 0 --tokens 6 --json"));
        EXPECT_EQ(found["messages"][i], json({{"role", "assistant"}, {"content", whole["text"]}}));
        EXPECT_EQ(found["answers"][i / 2]["finish"], whole["finish"]);
        EXPECT_EQ(found["answers"][i / 2]["tokens"], whole["ids"].size());
        const std::size_t all = whole["prompt_ids"].size(), read = found["answers"][i / 2]["tokens_read"];
        if (i > 1 && jinja == kWhole) {
          EXPECT_LT(read, all);
        }
        EXPECT_LE(read, all);
      }
    }
  }
}

TEST_F(Chat, ReadsALineForAMessage) {
  model("llama", kWhole);
  const json said = messages_of("\nA\\\nB\r\n\n\nC", "--system S")["messages"];
  EXPECT_EQ(said[0], json({{"role", "system"}, {"content", "S"}}));
  EXPECT_EQ(said[1]["content"], "A\nB");
  EXPECT_EQ(said[3]["content"], "C");
  EXPECT_EQ(said.size(), 5u);
  EXPECT_EQ(messages_of("")["messages"].size(), 0u);
}

TEST_F(Chat, PrintsAnswersAndTellsWhichIsCut) {
  model("llama", kWhole);
  const json said = messages_of("A\nB\n")["messages"];
  const Ran ran = run("attn chat --model model --temperature 0 --tokens 6 <input.txt");
  EXPECT_EQ(ran.out, said[1]["content"].get<std::string>() + "\n" + said[3]["content"].get<std::string>() + "\n");
  EXPECT_THAT(ran.err, HasSubstr("cut after 6 tokens"));
  const std::string stop = said[1]["content"].get<std::string>().substr(2, 1);
  const json stopped = messages_of("A\n", "--stop-text '" + stop + "'");
  EXPECT_EQ(stopped["answers"][0]["finish"], "stop-text");
  EXPECT_EQ(run("attn chat --model model --temperature 0 --stop-text '" + stop + "' <input.txt").err, "");
}

TEST_F(Chat, DrawsByOneGenerator) {
  model("llama", kWhole);
  write("input.txt", "A\nA\n");
  const std::string chat = "attn chat --model model --tokens 6 <input.txt ";
  EXPECT_EQ(out_of(chat + "--seed 5"), out_of(chat + "--seed 5"));
  EXPECT_NE(out_of(chat + "--seed 5"), out_of(chat + "--seed 6"));
}

TEST_F(Chat, AsksOnATerminal) {
  model("llama", kWhole);
  const std::string answer = messages_of("A\n")["messages"][1]["content"];
  const std::string chat = "attn chat --model model --temperature 0 --tokens 6 </proc/self/fd/1 2>errors";
  EXPECT_THAT(on_terminal(chat, 80, "A\n\004"), HasSubstr("> " + answer + "\r\n> \r\n"));
  EXPECT_THAT(read(path("errors")), HasSubstr("Ctrl-D ends the conversation"));
}

TEST_F(Chat, RefusesWhatItCannotFollow) {
  model("llama", kWhole);
  const auto refused = [&](const std::string& line, int status, const std::string& why) {
    const Ran ran = run("attn chat " + line);
    EXPECT_EQ(ran.status, status) << line;
    EXPECT_THAT(ran.err, HasSubstr(why)) << line;
  };
  refused("--model model <.", 3, "input that cannot be read");
  refused("--model model --temperature 0 --top-k 2 </dev/null", 2, "--top-k");
  refused("--model model --stop-text '' </dev/null", 2, "--stop-text");
  refused("--model model --prompt A </dev/null", 2, "--prompt");
  write("long.txt", "A\n" + std::string(70, 'B') + "\n");
  refused("--model model --tokens 1 <long.txt", 2, "a conversation of less than 64 tokens; found 7");
  model("llama", "{{ raise_exception('no') }}");
  refused("--model model <long.txt", 2, "no");
  std::filesystem::remove(path("model/tokenizer_config.json"));
  refused("--model model </dev/null", 3, "a chat template");
}

}  // namespace
}  // namespace attn::test

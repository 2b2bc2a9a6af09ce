#include "attn/chat.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <vector>

#include "attn/error.hpp"
#include "core/utf8.hpp"
#include "io/bytes.hpp"
#include "text/classes.hpp"

namespace attn {
namespace {

using Form = ChatTemplate::Form;

constexpr std::string_view kOp = "ChatTemplate";

struct Marks {
  Form form;
  std::string_view name, begin;              // what no other form has
  std::array<std::string_view, 6> others{};  // that its templates may have
};

constexpr std::array kForms{
    Marks{Form::chatml, "ChatML", "<|im_start|>", {"<|im_end|>", "<|endoftext|>"}},
    Marks{Form::llama3,
          "Llama 3",
          "<|start_header_id|>",
          {"<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<|eom_id|>", "<|python_tag|>", "<|end_of_text|>"}},
    Marks{Form::gemma, "Gemma", "<start_of_turn>", {"<end_of_turn>"}},
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// All "<|…|>" of a template, "<start_of_turn>" and "[INST]".
std::vector<std::string_view> marks_of(std::string_view jinja) {
  std::vector<std::string_view> marks;
  for (std::size_t at = 0; (at = jinja.find("<|", at)) != std::string_view::npos; ++at) {
    const std::size_t end = jinja.find("|>", at);
    const auto mark = jinja.substr(at, end == std::string_view::npos ? 0 : end + 2 - at);
    const bool whole = !mark.empty() && mark.find_first_of(" '\"\n{}") == std::string_view::npos;
    if (whole && std::ranges::find(marks, mark) == marks.end()) marks.push_back(mark);
  }
  for (const std::string_view mark : {"<start_of_turn>", "[INST]", "<|user|>"}) {
    if (contains(jinja, mark) && std::ranges::find(marks, mark) == marks.end()) marks.push_back(mark);
  }
  return marks;
}

[[noreturn]] void refuse(std::string_view why) {
  constexpr io::Origin origin{kOp, "the model's files"};
  origin.fail("a chat template of the form ChatML, Llama 3 or Gemma", why, "write the conversation's text yourself");
}

const Marks& form_of(std::string_view jinja) {
  const auto marks = marks_of(jinja);
  const auto* form =
      std::ranges::find_if(kForms, [&](const Marks& f) { return std::ranges::count(marks, f.begin) > 0; });
  if (form == kForms.end() && marks.empty()) refuse(jinja.empty() ? "none" : "one without their marks");
  if (form == kForms.end()) refuse("one with " + io::in_quotes(marks.front()));
  for (const std::string_view mark : marks) {
    if (mark != form->begin && std::ranges::count(form->others, mark) == 0) refuse("one with " + io::in_quotes(mark));
  }
  return *form;
}

// The text between two others, where the template has one without a quote in it; \n is a line end.
std::optional<std::string> written_between(std::string_view jinja, std::string_view before, std::string_view after) {
  for (std::size_t at = 0; (at = jinja.find(before, at)) != std::string_view::npos;) {
    at += before.size();
    const std::size_t end = jinja.find(after, at);
    if (end == std::string_view::npos) return {};
    const auto text = jinja.substr(at, end - at);
    if (text.empty() || text.find_first_of("'\"{}") != std::string_view::npos) continue;
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool line = text.substr(i).starts_with("\\n");
      plain.push_back(line ? '\n' : text[i]);
      i += line;
    }
    return plain;
  }
  return {};
}

// As Jinja's filter does.
std::string trimmed(std::string_view text) {
  std::size_t begin = text.size(), end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at));
    const bool space = c.valid && (text::has(c.code, text::Property::space) || (c.code >= 0x1c && c.code <= 0x1f));
    if (!space) begin = std::min(begin, at), end = at + c.length;
    at += c.length;
  }
  return std::string(text.substr(begin, end > begin ? end - begin : 0));
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  constexpr std::string_view months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  std::string date(parts.tm_mday < 10 ? 1 : 0, '0');
  date.append(std::to_string(parts.tm_mday)).append(" ");
  date.append(months.substr(3 * static_cast<std::size_t>(parts.tm_mon), 3)).append(" ");
  return date.append(std::to_string(1900 + parts.tm_year));
}

[[noreturn]] void wrong_message(const std::string& expected, const ChatMessage& message) {
  throw Error(Error::Kind::argument, kOp, expected, "the role " + io::in_quotes(message.role));
}

void require_roles(std::span<const ChatMessage> messages) {
  for (const ChatMessage& message : messages) {
    const bool known = message.role == "system" || message.role == "user" || message.role == "assistant";
    if (!known) wrong_message("system, user or assistant", message);
  }
}

bool has_system(std::span<const ChatMessage> messages) {
  return !messages.empty() && messages.front().role == "system";
}

}  // namespace

std::string_view name(Form form) noexcept { return std::ranges::find(kForms, form, &Marks::form)->name; }

ChatTemplate ChatTemplate::parse(std::string_view jinja) {
  const Marks& marks = form_of(jinja);
  const bool clock = contains(jinja, "strftime_now");
  ChatTemplate result;
  result.form_ = marks.form;
  result.begins_ = contains(jinja, "bos_token") || contains(jinja, "<|begin_of_text|>") || contains(jinja, "<bos>");
  result.drops_thoughts_ = contains(jinja, "</think>");
  if (marks.form == Form::chatml) {
    if (clock) refuse("ChatML with a date");
    for (const std::string_view line : {"<|im_start|>system\\n", "<|im_start|>system\n"}) {
      const auto text = written_between(jinja, line, "<|im_end|>");
      if (text && result.default_system_.empty()) result.default_system_ = *text;
    }
  } else if (marks.form == Form::llama3) {
    result.dated_ = contains(jinja, "Cutting Knowledge Date: December 2023");
    if (!result.dated_ && (clock || contains(jinja, "Cutting Knowledge"))) refuse("Llama 3 with dates of its own");
    if (!clock) result.date_ = written_between(jinja, "date_string = \"", "\"").value_or("");
  } else {
    result.system_ = !contains(jinja, "System role not supported");
  }
  return result;
}

std::string ChatTemplate::format(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  require_roles(messages);
  if (form_ == Form::chatml) return chatml(messages, options.generation_prompt);
  if (form_ == Form::llama3) return llama3(messages, options);
  return gemma(messages, options.generation_prompt);
}

std::string_view ChatTemplate::end_of_turn() const noexcept {
  return form_ == Form::chatml ? "<|im_end|>" : form_ == Form::llama3 ? "<|eot_id|>" : "<end_of_turn>";
}

std::string ChatTemplate::chatml(std::span<const ChatMessage> messages, bool generation_prompt) const {
  std::string text;
  const auto turn = [&](std::string_view role, std::string_view content) {
    text.append("<|im_start|>").append(role).append("\n").append(content).append("<|im_end|>\n");
  };
  if (!default_system_.empty() && !has_system(messages)) turn("system", default_system_);
  for (const ChatMessage& message : messages) {
    constexpr std::string_view end = "</think>";
    std::string_view content = message.content;
    if (const std::size_t at = content.rfind(end);
        message.role == "assistant" && drops_thoughts_ && at != content.npos) {
      content.remove_prefix(at + end.size());
      content.remove_prefix(std::min(content.find_first_not_of('\n'), content.size()));
    }
    turn(message.role, content);
  }
  return generation_prompt ? text + "<|im_start|>assistant\n" : text;
}

std::string ChatTemplate::llama3(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  std::string text = begins_ ? "<|begin_of_text|>" : "";
  const auto turn = [&](std::string_view role, std::string_view content) {
    text.append("<|start_header_id|>")
        .append(role)
        .append("<|end_header_id|>\n\n")
        .append(content)
        .append("<|eot_id|>");
  };
  if (dated_) {
    const std::string date = !options.date.empty() ? options.date : date_.empty() ? today() : date_;
    const std::string system = has_system(messages) ? trimmed(messages.front().content) : "";
    turn("system", "Cutting Knowledge Date: December 2023\nToday Date: " + date + "\n\n" + system);
    if (has_system(messages)) messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) turn(message.role, trimmed(message.content));
  return options.generation_prompt ? text + "<|start_header_id|>assistant<|end_header_id|>\n\n" : text;
}

// A system's message is the beginning of the first one of the user.
std::string ChatTemplate::gemma(std::span<const ChatMessage> messages, bool generation_prompt) const {
  std::string text = begins_ ? "<bos>" : "", before;
  if (has_system(messages)) {
    if (!system_) wrong_message("no system's message, which this model does not know", messages.front());
    before = messages.front().content + "\n\n";
    messages = messages.subspan(1);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool user = i % 2 == 0;
    if (messages[i].role != (user ? "user" : "assistant")) {
      wrong_message("user and assistant in turns, the user first", messages[i]);
    }
    text.append("<start_of_turn>").append(user ? "user" : "model").append("\n").append(i == 0 ? before : "");
    text.append(trimmed(messages[i].content)).append("<end_of_turn>\n");
  }
  return generation_prompt ? text + "<start_of_turn>model\n" : text;
}

}  // namespace attn

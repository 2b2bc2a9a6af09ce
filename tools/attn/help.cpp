// attn help: what --help prints, and the manual pages.
#include <memory>

#include "common/terminal.hpp"
#include "help/man.hpp"
#include "help/text.hpp"
#include "verbs.hpp"

namespace attn::tool {

void define_help(Verb& verb, int&) {
  struct Flags {
    std::string verb;
    bool man = false;
  };
  const auto flags = std::make_shared<Flags>();
  verb.add_option("VERB", flags->verb, "The verb to describe. Without it, all verbs are listed.").one_of(verb_names());
  verb.add_flag("--man", flags->man, "Print the manual page, as man and groff read it.");
  verb.examples(
      "attn help\n"
      "attn help train\n"
      "attn help train --man > attn-train.1");
  verb.callback([flags] {
    if (flags->verb.empty()) return write_stdout(flags->man ? man_page() : overview_text());
    int unused = 0;
    const auto asked = defined(*find_verb(flags->verb), unused);
    write_stdout(flags->man ? man_page(*asked) : help_text(*asked));
  });
}

}  // namespace attn::tool

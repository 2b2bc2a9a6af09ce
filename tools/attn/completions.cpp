// attn completions: what a shell needs to complete this command.
#include "help/completions.hpp"

#include <memory>

#include "common/terminal.hpp"
#include "verbs.hpp"

namespace attn::tool {

void define_completions(Verb& verb, int&) {
  const auto shell = std::make_shared<std::string>();
  verb.add_option("SHELL", *shell, "The shell: bash, zsh or fish.").required().one_of({"bash", "zsh", "fish"});
  verb.notes(
      "cmake --install and the Debian package put completions where each shell looks for them. Without them, bash and "
      "fish read the lines below as they stand; zsh looks for a file _attn in a folder of its fpath.");
  verb.examples(
      "attn completions bash > attn.bash    # and in ~/.bashrc: . ./attn.bash\n"
      "attn completions zsh > _attn\n"
      "attn completions fish > attn.fish    # in ~/.config/fish/completions");
  verb.callback([shell] {
    write_stdout(*shell == "bash" ? bash_completions() : *shell == "zsh" ? zsh_completions() : fish_completions());
  });
}

}  // namespace attn::tool

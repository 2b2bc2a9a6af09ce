// Writes the logits that follow token ids, for tests that compare with transformers: logits_of MODEL OUT.npy 1,2,3
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"

int main(int count, char** arguments) {
  if (count != 4) return 2;
  try {
    std::vector<std::int64_t> ids;
    std::istringstream list(arguments[3]);
    for (std::string id; std::getline(list, id, ',');) ids.push_back(std::stoll(id));
    attn::LanguageModel model = attn::load_language_model(arguments[1]);
    attn::Decoder decoder(model);
    attn::io::save_npy(arguments[2], decoder.read(0, ids));
  } catch (const attn::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}

// A page and the library in it talk by these calls, all of them of one thread.
//
// Texts are UTF-8 and end with a zero; texts and bytes that the page hands over lie in memory of attn_new(). A text
// that is returned is there until the next call. A call that fails hands the library's message to the page's
// attn_failed(), which throws, and so never returns.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

#if defined(__wasm__)  // the page's own
[[noreturn]] __attribute__((import_module("attn"), import_name("failed"))) void attn_failed(const char* text);
__attribute__((import_module("attn"), import_name("number"))) double attn_number(const char* text);
// As snprintf(): `arguments` lie in memory one behind the other.
__attribute__((import_module("attn"), import_name("print"))) int attn_print(char* to, std::size_t room,
                                                                            const char* format, const void* arguments);
// A text in Unicode's normal form C, or D, at `to`; returns how many bytes it has.
__attribute__((import_module("attn"), import_name("normal"))) std::size_t attn_normal(const char* text,
                                                                                      std::size_t bytes, int composed,
                                                                                      char* to, std::size_t room);
#endif

void* attn_new(std::size_t bytes);
void attn_delete(void* memory);

// A language model of the bytes of a safetensors or GGUF file, with the text of its config.json, or an empty one where
// the file has a config. `weights`: 0 keeps matrices in float32, 1 in bfloat16, 2 in int8, 3 as the file has them.
// Returns its size, {"vocab": 256, "context": 64, "layers": 2, "heads": 4, "weights": 480000, "family": "gpt2",
// "writes": true}. With a config of the family bert, or a GGUF file of that architecture, it is an encoder, in
// float32, which does not write.
const char* attn_open_model(const std::byte* bytes, std::size_t count, const char* config, int weights);
// Its tokenizer: the texts of tokenizer.json and of tokenizer_config.json or an empty one, or the GGUF file itself;
// with no text and no file each byte is a token. Returns how many tokens it has.
int attn_open_tokenizer(const char* json, const char* config, const std::byte* gguf, std::size_t count);
// A module of the book, {"name": "multihead", "d_in": 3, "d_out": 4, "num_heads": 2, …} as ModuleConfig names them,
// with the bytes of a safetensors file of its state_dict(), or without any. Its weights are drawn with "seed" before
// these take their place, so that with "training" its dropout, of a "flavour", is that of the command. Angles are
// "rope": {"invFreq": […], "factor": 1, "interleaved": false}.
void attn_open_module(const char* config, const std::byte* bytes, std::size_t count);

// {"ids": [84, 104], "tokens": ["T", "h"]}
const char* attn_encode(const char* text);
const char* attn_decode(const std::int32_t* ids, std::size_t count);  // the same of ids
// Words as vectors of `width` numbers (attn/words.hpp): {"tokens": ["the", "cat"], "at": 65536}, at that address.
const char* attn_embed(const char* text, int width);
// All steps of a forward pass of a model reading `count` ids, and the logits of each, or hidden states, with edits: a
// list of
// {"step": "h.0.attn.scores", "head": 1, "row": 3, "column": 0, "value": 0.5}, numbers of steps that are replaced,
// where a value may be "-inf", or "from" an earlier step, whose number at that place is taken, and of
// {"layer": 0, "head": 1}, heads that are switched off. Without edits it is "[]".
void attn_run(const std::int32_t* ids, std::size_t count, const char* edits);
// The cosine between an encoder's vectors of the text that it read last and of other ids, and where that was with edits
// what it is without: {"cosine": 0.5, "before": 0.75}. `first`: the vector of the first token, else the mean of all.
const char* attn_cosine(const std::int32_t* other, std::size_t count, int first);
// Reads `count` ids for what follows them, without steps and edits: those that the last call of this read, too, are in
// a cache of keys and values.
void attn_read(const std::int32_t* ids, std::size_t count);
// Does the same as attn_run() with a module, whose inputs are (tokens, width), and in cross-attention (sources, width).
void attn_run_module(const float* x, std::size_t tokens, std::size_t width, const float* source, std::size_t sources,
                     const char* edits);
// Returns what was recorded: [{"name": "h.0.attn.queries", "shape": [4, 16, 8], "at": 65536}, …], float32 numbers from
// address `at` on, which stay there until the next run.
const char* attn_steps();
// Attention's steps of it as a page that is made has them, and what it says of them: {"blocks": [{"label": "h.0.attn",
// "heads": 4, "causal": true, "scores": […], "steps": [{"name": "queries", "kind": "heads", …, "shape": [4, 16, 8],
// "at": 65536}, …]}, …]}. The numbers stay there until the next call of this one.
const char* attn_blocks();
// Returns whether these numbers are right: {"health": […]}. It takes as long as the pass.
const char* attn_checks();
// Returns where words and contexts of one of these layers lie: {"space": […]}.
const char* attn_space(int block);
// Returns what each head does while `count` ids, two at least, are read twice: {"named": 0.4, "layers": [{"kinds":
// [{"first": 0.1, "previous": 0.8, "same": 0.05, "induction": 0.05}, …]}, …]}. A head has the name of its largest from
// "named" on.
const char* attn_names(const std::int32_t* ids, std::size_t count);
// Experiments on `count` ids (attn/experiment.hpp). What each layer would say, and last what the model says:
// {"tokens": [["t", …], …], "chance": [[0.1, …], …], "loss": [3.5, …]}, of each layer the likeliest behind each token.
const char* attn_lens(const std::int32_t* ids, std::size_t count, const char* edits);
// The next two take many passes, and say how many: {"left": 12}. attn_go_on() runs at most `most` more of them, 1 or
// more, and says how many are left then, or, after the last one, what was found. What else is asked between them is
// answered; a model or an experiment that takes their place ends them. The loss, and what it becomes without each head:
// {"before": 2.5, "after": [[2.6, …], …]}, a list a layer.
const char* attn_effects(const std::int32_t* ids, std::size_t count, const char* edits);
// Patches each part of the text into a pass on the other, and says which share of the logit of token a less that of b
// this gives back. a is what the text makes likelier than the other does, by the most, and b the other way round:
// {"clean": 3, "corrupt": -2, "a": "t", "b": "d", "stream": [[0.5, …], …], "heads": [[0.1, …], …]}, lists a layer, of
// tokens and of heads.
const char* attn_patching(const std::int32_t* ids, std::size_t count, const std::int32_t* other, std::size_t others,
                          const char* edits);
const char* attn_go_on(int most);
// Each row by itself: "softmax", "naive", which is exp(s) / Σ exp(s), "sum", which is s / Σ s, or "divided", by the sum
// of what no query sees too early, with 0 for the rest. The numbers stay there until the next call of this one.
const float* attn_rows(const char* way, const float* numbers, std::size_t rows, std::size_t columns);
// Returns what the last pass says of its text and, where it had edits, what the last pass without any said of the same
// text: {"loss": 2.5, "before": 2.25, "tokens": [{"id": 32, "token": " ", "chance": 0.25, "before": 0.5}, …]}. The
// loss is the mean of -log of the chance of each token behind the first, or "nan" where there is none. The tokens are
// those that are most likely to follow in one of the two, at most `most`.
const char* attn_next(double temperature, int top_k, double top_p, int most);
// Draws one of all tokens that may follow, by their chances.
int attn_draw(double temperature, int top_k, double top_p, int seed);

}  // extern "C"

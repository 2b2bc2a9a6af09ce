// Keys of models' files that say nothing of what a model computes, with the reason.
#pragma once

#include <array>

#include "io/json_object.hpp"

namespace attn {

inline constexpr std::array<io::PassedOver, 9> kConfigPassedOver{
    {{"_name_or_path _model_name_or_path name_or_path architectures transformers_version auto_map tokenizer_class _commit_hash "
      "is_llama_config transformers.js_config unsloth_* finetuning_task xla_device",
      "", "who made the file, of what, and for which programs"},
     {"dtype torch_dtype use_bfloat16 initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop "
      "tf_legacy_loss",
      "", "how it was stored and trained; nothing here drops at random"},
     {"use_cache cache_implementation attn_implementation _attn_implementation* attention_implementation "
      "pretraining_tp chunk_size_feed_forward torchscript gradient_checkpointing output_past _flash_attn_2_enabled",
      "", "the way to the same numbers"},
     {"output_attentions output_hidden_states output_scores return_dict return_dict_in_generate tie_last_hidden_states",
      "", "what a call of Python returns"},
     {"id2label label2id num_labels _num_labels problem_type classifier_dropout task_specific_params prefix", "",
      "heads for other tasks"},
     {"bos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id", "",
      "the tokenizer's files say these"},
     {"max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k "
      "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
      "bad_words_ids num_return_sequences forced_bos_token_id forced_eos_token_id remove_invalid_values "
      "suppress_tokens begin_suppress_tokens exponential_decay_length_penalty",
      "", "transformers 5 reads settings of generation in generation_config.json alone"},
     {"is_encoder_decoder add_cross_attention is_decoder tie_encoder_decoder use_bidirectional_attention use_mrope "
      "rope_interleaved lm_head_bias attention_bias mlp_bias use_sliding_window",
      "[false]", "it would be another kind of model"},
     {"max_window_layers", "", "which layers have a window, in a family without windows"}}};

inline constexpr std::array<io::PassedOver, 3> kMoreConfigPassedOver{
    {{"pruned_heads per_layer_config", "[{}]", "layers that differ"},
     {"is_causal", "[true]", "it would be another kind of model"},
     {"full_attn_mod interpolate_factor", "[1]", "Phi-4's files have it, and it is always 1"}}};

// The keys of GPT-2's config.json, beside the first list.
inline constexpr std::array<io::PassedOver, 2> kGptPassedOver{
    {{"summary_* n_special predict_special_tokens", "", "heads for other tasks"},
     {"reorder_and_upcast_attn", "", "the way to the same numbers"}}};

// The keys of generation_config.json.
inline constexpr std::array<io::PassedOver, 7> kGenerationPassedOver{
    {{"do_sample temperature top_k top_p min_p repetition_penalty max_length max_new_tokens", "",
      "the flags of attn generate say these"},
     {"bos_token_id pad_token_id decoder_start_token_id length_penalty early_stopping", "",
      "other kinds of models and of search read these"},
     {"transformers_version _from_model_config _commit_hash use_cache cache_* max_cache_len prefill_chunk_size "
      "low_memory compile_config disable_compile continuous_batching_config renormalize_logits remove_invalid_values "
      "use_mtp is_assistant num_assistant_tokens* assistant_* prompt_lookup_num_tokens max_matching_ngram_size "
      "target_lookbehind speculation_type output_* return_dict_in_generate",
      "", "the way to the same tokens, and what a call of Python returns"},
     {"num_beams num_beam_groups num_return_sequences typical_p guidance_scale encoder_repetition_penalty", "[1]",
      "attn generate has no such mode"},
     {"min_length min_new_tokens top_h epsilon_cutoff eta_cutoff no_repeat_ngram_size encoder_no_repeat_ngram_size "
      "diversity_penalty penalty_alpha",
      "[0]", "attn generate has no such mode"},
     {"bad_words_ids suppress_tokens begin_suppress_tokens stop_strings sequence_bias", "[[], {}]",
      "attn generate has no such mode"},
     {"token_healing", "[false]", "attn generate has no such mode"}}};

// The keys of tokenizer.json.
inline constexpr std::array<io::PassedOver, 1> kTokenizerPassedOver{
    {{"version truncation padding pair trim_offsets add_prefix_space use_regex prepend_scheme split str_rep", "",
      "where a step does not read it, it asks for no other ids of one text"}}};

// The keys of tokenizer_config.json.
inline constexpr std::array<io::PassedOver, 5> kTokenizerConfigPassedOver{
    {{"tokenizer_class processor_class auto_map name_or_path _name_or_path transformers_version _commit_hash backend "
      "is_local local_files_only from_slow tokenizer_file vocab_file merges_file special_tokens_map_file "
      "tokenizer_type vocab_size init_inputs",
      "", "who made the file, and for which programs"},
     {"model_max_length max_len max_length padding* pad_* truncation* stride model_input_names return_token_type_ids",
      "", "how texts are cut and filled up for a batch"},
     {"clean_up_tokenization_spaces* spaces_between_special_tokens errors verbose response_schema response_template "
      "chat_control_tokens use_default_system_prompt",
      "", "what a call of Python makes of an answer"},
     {"add_prefix_space do_lower_case do_lowercase strip_accents tokenize_chinese_chars do_basic_tokenize never_split "
      "legacy sp_model_kwargs remove_space keep_accents",
      "", "tokenizer.json's steps say it"},
     {"*", "[false, \"\", [], {}]", "it could ask for other ids, and attn does not know it"}}};

// The keys of a GGUF file's tokenizer, without the beginning "tokenizer.".
inline constexpr std::array<io::PassedOver, 4> kTokenizerGgufPassedOver{
    {{"chat_template* huggingface.json", "", "other templates than the model's own, and what the other keys say"},
     {"ggml.scores ggml.merges ggml.pre ggml.token_type_count", "", "other kinds of tokenizers read these"},
     {"ggml.padding_token_id ggml.mask_token_id ggml.cls_token_id ggml.seperator_token_id "
      "ggml.prefix_token_id ggml.suffix_token_id ggml.middle_token_id",
      "", "tokens that encoding one text does not add"},
     {"ggml.add_space_prefix ggml.add_sep_token ggml.add_eos_token ggml.remove_extra_whitespaces ggml.normalizer.*",
      "[false]", "it would ask for other ids, in a kind of tokenizer that has none of it"}}};

// The keys of a GGUF file's model, without the architecture's prefix.
inline constexpr std::array<io::PassedOver, 8> kGgufPassedOver{
    {{"expert_count expert_used_count nextn_predict_layers pooling_type rope.scaling.yarn_log_multiplier", "[0]",
      "it would be another kind of model"},
     {"use_parallel_residual", "[false]", "it would be another kind of model"},
     {"attention.causal", "[true]", "it would be another kind of model"},
     {"tensor_data_layout", "[\"Meta AI original pth\"]", "the layout of queries and keys that is read"},
     {"rope.scaling.finetuned", "[true, false]", "whether a longer context was trained"},
     {"rope.scaling.attn_factor rope.scaling.yarn_ext_factor rope.scaling.yarn_beta_slow", "[1]", "the default"},
     {"rope.scaling.yarn_beta_fast", "[32]", "the default"},
     {"attention.sliding_window attention.scale attn_logit_softcapping final_logit_softcapping embedding_scale "
      "residual_scale logit_scale",
      "[0]", "0 stands for none"}}};

inline constexpr std::array<io::PassedOver, 4> kGgufGeneralPassedOver{
    {{"type", "[\"model\"]", "other files hold no language model"},
     {"quantization_version", "[2]", "the layout of blocks that is read"},
     {"tensor_extra.* sampling.*", "[]", "it changes what is computed, and is not supported"},
     {"*", "", "who made the file, and of what"}}};

}  // namespace attn

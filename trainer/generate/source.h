// What trainyard-generate makes text with: a model in memory, its tokenizer, and the tokens that end a text; of a
// Hugging Face directory, or of a checkpoint of ours. Thread-safety: free functions; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/checkpoint/adapter_source.h"
#include "trainer/checkpoint/foreign_model.h"
#include "trainer/checkpoint/model_description.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/use_lock.h"
#include "trainer/generate/request.h"
#include "trainer/generate/weights.h"
#include "trainer/tokenizer/tokenizer.h"

namespace trainyard::generate {

// A place with weights; its headers were read and no weights.
struct Source {
  std::string path;        // of the directory that is read
  std::string companions;  // directory with tokenizer, generation_config.json and config.json, as far as they exist
  checkpoint::ModelDescription model;
  // One of the two.
  std::optional<checkpoint::ForeignModel> foreign;
  std::optional<checkpoint::Reader> reader;
  checkpoint::UseLock lock;  // of the checkpoint: nobody removes it meanwhile
};

// `request.checkpoint` is one checkpoint, not a directory of them. Errors: those of ReadConfigJson and ForeignModel, of
// Reader and DescribeModel.
Result<Source> OpenSource(const Request& request);

// The adapter of the request; none. Where it says what it was trained on and the source is a Hugging Face directory,
// that is looked at: the weights are read once more. Errors: those of AdapterSource; kFailedPrecondition for another
// base.
Result<std::optional<checkpoint::AdapterSource>> OpenAdapter(const Request& request, Source& source);

// What is said of an adapter that is used.
struct UsedAdapter {
  std::string path;
  std::optional<int64_t> step;  // of a checkpoint in a directory that is named so
  bool base_compared = false;   // OpenAdapter had hashes to compare: it is the base that the adapter was trained on
};
UsedAdapter Describe(const checkpoint::AdapterSource& adapter, const Source& source);

// The type that a request means: where it says none, BF16 if all matrices are stored so, else FP32.
at::ScalarType TypeOf(const Request& request, const Source& source);
// Errors: as Weights::Load.
// With `adapter` every matrix that it is for becomes W + alpha / rank * B A, in fp32 and rounded once.
Result<std::unique_ptr<Weights>> LoadWeights(Source& source, at::ScalarType type,
                                             checkpoint::AdapterSource* adapter = nullptr);

// The tokenizer of the request, else the one that lies with the model, else bytes for a vocabulary of 256. Errors:
// those of Tokenizer::Open; kInvalidArgument where there is none, or one that has more tokens than the model.
Result<std::unique_ptr<tokenizer::Tokenizer>> OpenTokenizer(const Request& request, const Source& source);

// eos_token_id of generation_config.json in `directory`, else of config.json, else the token that the tokenizer's files
// name; none. Error: kInvalidArgument for one that is none of `vocab` tokens, naming the file.
Result<std::vector<int64_t>> EndTokens(const std::string& directory, int64_t vocab,
                                       const tokenizer::Tokenizer& tokenizer);

}  // namespace trainyard::generate

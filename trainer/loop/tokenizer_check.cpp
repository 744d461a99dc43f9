#include "trainer/loop/tokenizer_check.h"

#include <string>
#include <vector>

#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::loop {
namespace {

// Where a model's files lie, its tokenizer among them: where it comes from, and beside its checkpoints.
std::vector<std::string> ModelDirectories(const Session& s) {
  std::vector<std::string> directories;
  if (s.job.model.pretrained) directories.push_back(s.job.model.pretrained->Resolve(s.env.volume_root));
  if (!s.job.checkpoint) return directories;
  const config::Checkpoint& checkpoint = *s.job.checkpoint;
  directories.push_back(checkpoint.directory.Resolve(s.env.volume_root) + "/huggingface");
  if (checkpoint.resume_from) {
    directories.push_back(checkpoint.resume_from->directory.Resolve(s.env.volume_root) + "/huggingface");
  }
  return directories;
}

Outcome<void> CheckModel(const std::string& directory, const data::TokenOrigin& origin) {
  if (origin.tokenizer == 0) return {};
  const auto hash = tokenizer::HashIn(directory);
  if (!hash) return Fails(contract::kExitData, hash.error().message);
  if (!*hash || **hash == origin.tokenizer) return {};
  return Fails(contract::kExitData, "data file " + origin.tokenizer_file + " was made with another tokenizer (" +
                                        tokenizer::HashText(origin.tokenizer) + ") than the model's in " + directory +
                                        " (" + tokenizer::HashText(**hash) +
                                        "); make it again with 'trainyard data tokenize --tokenizer " + directory +
                                        "'");
}

constexpr int64_t kByteVocab = 256;

// Bytes as tokens are noise to a model with a tokenizer of its own. One of 256 tokens may have been trained on bytes.
Outcome<void> CheckBytes(const Session& s) {
  if (s.job.data.format != config::DataFormat::kText || s.description.vocab <= kByteVocab) return {};
  for (const std::string& directory : ModelDirectories(s)) {
    const auto hash = tokenizer::HashIn(directory);
    if (!hash) return Fails(contract::kExitData, hash.error().message);
    if (!*hash) continue;
    return Fails(contract::kExitData, "data.format Text makes each byte a token, and the model has a tokenizer in " +
                                          directory + "; make token files with 'trainyard data tokenize --tokenizer " +
                                          directory + "' and say data.format Tokens");
  }
  return {};
}

}  // namespace

Outcome<void> CheckTokenizers(const Session& s) {
  if (auto fits = CheckBytes(s); !fits) return fits;
  std::vector<const data::TokenSource*> sources;
  for (const auto& source : s.train_sources) sources.push_back(source.get());
  if (s.validation_source) sources.push_back(s.validation_source.get());
  for (size_t i = 0; i < sources.size(); ++i) {
    for (size_t j = i + 1; j < sources.size(); ++j) {
      const Status same = data::CheckSameOrigin(sources[i]->origin(), sources[j]->origin());
      if (!same) return Fails(contract::kExitData, same.error().message);
    }
    for (const std::string& directory : ModelDirectories(s)) {
      if (auto same = CheckModel(directory, sources[i]->origin()); !same) return same;
    }
  }
  return {};
}

}  // namespace trainyard::loop

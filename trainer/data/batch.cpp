#include "trainer/data/batch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/data/sampler.h"

namespace trainyard::data {
namespace {

// The target after a separator begins another document, and a source may say of its own tokens that they do not count:
// such targets get no weight.
void WeighTargets(const std::vector<uint8_t>& counts, std::optional<int64_t> separator, Batch& batch) {
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1) - 1;
  batch.weights = at::ones({rows, length}, at::kFloat);
  const int64_t* token = batch.tokens.const_data_ptr<int64_t>();
  float* weight = batch.weights.mutable_data_ptr<float>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t input = row * (length + 1) + t;
      const bool counted = counts.empty() || counts[static_cast<size_t>(input + 1)] != 0;
      if (counted && token[input] != separator) continue;
      weight[row * length + t] = 0;
      --batch.targets;
    }
  }
}

}  // namespace

std::vector<MicroBatchPlan> PlanStep(int64_t global_batch, int64_t micro_batch, int world, int rank) {
  const int64_t total = MicroBatchCount(global_batch, micro_batch);
  const int64_t least = total / world;
  const int64_t longer = total % world;  // ranks below this run one more
  const int64_t begin = rank * least + std::min<int64_t>(rank, longer);
  const int64_t end = begin + least + (rank < longer ? 1 : 0);
  std::vector<MicroBatchPlan> plan;
  for (int64_t k = begin; k < end; ++k) {
    const int64_t first = k * micro_batch;
    plan.push_back({first, std::min(micro_batch, global_batch - first), false});
  }
  if (longer != 0 && rank >= longer) {
    plan.push_back({0, 1, true});
  }
  return plan;
}

Result<BatchReader> BatchReader::Make(std::vector<const TokenSource*> sources, Mixture mixture, ReadOptions options) {
  std::vector<Source> read;
  for (size_t k = 0; k < sources.size(); ++k) {
    const int64_t samples = SampleCount(sources[k]->tokens(), options.sequence_length);
    if (samples < 1) {
      return Fail(ErrorCode::kInvalidArgument,
                  (sources.size() == 1 ? std::string("the data") : "source " + std::to_string(k) + " of the mixture") +
                      " holds " + std::to_string(sources[k]->tokens()) +
                      " tokens, fewer than one sample of training.sequenceLength " +
                      std::to_string(options.sequence_length) + " and its last target");
    }
    const TokenOrigin& origin = sources[k]->origin();
    if (options.separator && origin.separator && *origin.separator != *options.separator) {
      return Fail(ErrorCode::kInvalidArgument,
                  "documents of " + origin.separator_file + " end with token " + std::to_string(*origin.separator) +
                      ", data.documentSeparator says " + std::to_string(*options.separator));
    }
    // The first source is shuffled as it would be alone, the others each in an order of their own.
    read.push_back({sources[k], samples, options.seed + k * 0x9e3779b97f4a7c15ULL, sources[k]->has_target_bits()});
  }
  return BatchReader(std::move(read), std::move(mixture), options);
}

Result<BatchReader> BatchReader::Make(const TokenSource& source, ReadOptions options) {
  return Make({&source}, *Mixture::Make({1}), options);
}

int64_t BatchReader::samples() const {
  int64_t samples = 0;
  for (const Source& source : sources_) samples += source.samples;
  return samples;
}

std::string BatchReader::fingerprint() const {
  if (sources_.size() == 1) return sources_.front().tokens->fingerprint();
  std::string text;
  for (size_t k = 0; k < sources_.size(); ++k) {
    text += sources_[k].tokens->fingerprint() + ":" + std::to_string(mixture_.counts()[k]) + ";";
  }
  return Digest(text);
}

Result<Batch> BatchReader::Load(int64_t cursor, int64_t rows) const {
  const int64_t width = options_.sequence_length + 1;
  Batch batch{at::empty({rows, width}, at::kLong), {}, rows * options_.sequence_length};
  const bool bits = std::any_of(sources_.begin(), sources_.end(), [](const Source& s) { return s.bits; });
  std::vector<uint8_t> counts(bits ? static_cast<size_t>(rows * width) : 0);
  for (int64_t i = 0; i < rows; ++i) {
    const MixturePlace place = mixture_.At(cursor + i);
    const Source& source = sources_[static_cast<size_t>(place.source)];
    const int64_t sample = options_.order == Order::kShuffled ? SampleIndex(source.seed, source.samples, place.position)
                                                              : place.position % source.samples;
    Status copied = source.tokens->Copy(sample * options_.sequence_length, width,
                                        batch.tokens.mutable_data_ptr<int64_t>() + i * width);
    if (copied && bits) {
      copied = source.tokens->CopyTargetBits(sample * options_.sequence_length, width, counts.data() + i * width);
    }
    if (!copied) return Fail(copied.error());
  }
  if (bits || options_.separator) WeighTargets(counts, options_.separator, batch);
  return batch;
}

}  // namespace trainyard::data

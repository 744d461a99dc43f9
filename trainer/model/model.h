// A causal language model as training needs it, whatever its family: losses and logits over the parameters of a host.
// The root (embedding, final norm, head) is unit 0, block l is unit 1+l; uses of a unit are bracketed by PreForward and
// PostForward, so that a sharded engine can gather, free and reduce its parameters. Thread-safety: one rank's thread at
// a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"
#include "trainer/model/adapter.h"
#include "trainer/model/documents.h"
#include "trainer/model/kv_cache.h"
#include "trainer/model/linear.h"
#include "trainer/model/selective.h"

namespace trainyard::model {

// What a block keeps between forward and backward. kNone: the operands of all its operations. kSelective: what matrix
// products and attention gave (selective.h). kFull: its input (recompute.h). Same bits in all three.
enum class ActivationCheckpointing { kNone, kSelective, kFull };

// A token that the vocabulary does not have: data and model do not belong together.
class TokenError : public std::out_of_range {
 public:
  using std::out_of_range::out_of_range;
};

// One way of a batch through the model: what blocks are told besides their input and their parameters. A block that
// runs again in backward is told the same. Cheap to copy.
struct Pass {
  Keep keep = Keep::kAll;                      // what for backward
  std::shared_ptr<const Documents> documents;  // where those of the tokens begin; never null
  KeyValueCache* cache = nullptr;              // what came before the tokens; null: nothing did
  std::optional<BatchPlace> place;             // of the rows in training; none: nothing is dropped
  int64_t length = 0;                          // tokens of a row

  int64_t position() const { return cache == nullptr ? 0 : cache->length(); }  // of the first token
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Rows hold several documents, each of which ends with this token: from now on positions start anew after it, and
  // attention does not cross it.
  void SeparateDocuments(int64_t separator) { separator_ = separator; }

  // tokens: [b, s+1] int64, 1 <= s <= maximum positions. Sum over the b*s targets tokens[:, 1:] of weight times
  // cross-entropy in nats; fp64 scalar. weights: undefined (all one), [b] (of a row; 0: a padding micro-batch, whose
  // gradients are zeros) or [b, s] (of a target; 0: one that does not count, such as a prompt's).
  // place: which sequences of which step the rows are, on which an adapter's dropout depends; none: nothing is dropped,
  // as in evaluation.
  // Errors: std::invalid_argument for shapes, TokenError for a token outside the vocabulary (looked for on the CPU
  // only; elsewhere it would stall the queue).
  at::Tensor LossSum(const at::Tensor& tokens, const at::Tensor& weights = {},
                     std::optional<BatchPlace> place = std::nullopt);
  // tokens: [b, s] int64 -> [b, s, vocabulary] in the compute type. Errors as above.
  at::Tensor Logits(const at::Tensor& tokens);
  // What may follow the tokens: those that `cache` has seen, and `tokens`, [b, s] int64, which it has seen then.
  // -> [b, vocabulary] in the compute type, of the last token of each row, without a graph. Every row is one document.
  // The same values as Logits has there, but for rounding. Errors as above; std::invalid_argument for a cache that is
  // too small.
  at::Tensor NextLogits(const at::Tensor& tokens, KeyValueCache& cache);

 protected:
  struct Sizes {
    int64_t layers = 0, vocab = 0, max_positions = 0;
    bool input_first = false;  // matrices of the blocks are [in, out]
  };
  // `units` are the family's, without adapters. `host` (an engine::Engine in training) holds them, with the adapters,
  // and must outlive the model. Error: std::invalid_argument (AddAdapters).
  Model(const Sizes& sizes, std::vector<engine::UnitSpec> units, const std::optional<Adapter>& adapter,
        engine::ParameterHost& host, ActivationCheckpointing checkpointing);

  // What a family is. Embed: [b, s] -> [b, s, hidden]. Block: [b, s, hidden] to the same, a function of x, of the
  // parameters of its unit and of `pass`. FinalNorm: [b, s, hidden] -> [b*s, hidden]. Head: [vocabulary, hidden], a
  // parameter of the root.
  virtual at::Tensor Embed(const at::Tensor& tokens, const Pass& pass) = 0;
  virtual at::Tensor Block(int64_t layer, const at::Tensor& x, const Pass& pass) = 0;
  virtual at::Tensor FinalNorm(const at::Tensor& x) = 0;
  virtual const at::Tensor& Head() const = 0;

  const at::Tensor& BlockParam(int64_t layer, int index) const {
    return host_.Param(static_cast<int>(layer) + 1, index);
  }
  // The linear layer of matrix `index` of a block, with its bias where it has one (-1: none) and its adapter.
  Linear BlockLinear(int64_t layer, int index, int bias, const Pass& pass) const;

  engine::ParameterHost& host_;

 private:
  // Without FinalNorm: [b, s, hidden]; the root is gathered when it returns.
  at::Tensor Hidden(const at::Tensor& tokens, const Pass& pass);
  Pass PassOf(const at::Tensor& tokens, std::optional<BatchPlace> place) const;  // without a cache
  at::Tensor CheckpointedBlock(int64_t layer, const at::Tensor& x, const Pass& pass);
  void CheckTokens(const at::Tensor& tokens, int64_t positions) const;

  const Sizes sizes_;
  const std::optional<Adapter> adapter_;
  std::vector<engine::UnitSpec> units_;  // adapters included
  std::vector<int> adapter_places_;      // in a block
  const ActivationCheckpointing checkpointing_;
  std::optional<int64_t> separator_;
};

}  // namespace trainyard::model

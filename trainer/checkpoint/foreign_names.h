// How tensors of ours are called in safetensors files of others. Private to the room. Thread-safety: plain values.
#pragma once

#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/checkpoint/model_description.h"

namespace trainyard::checkpoint {

class ForeignNames {
 public:
  // Finds how the names are made from ours, by the embedding: as they are, without the "transformer." of GPT-2, or with
  // one prefix before all of them. Error: kInvalidArgument when there is no embedding, or there are several under
  // different prefixes.
  static Result<ForeignNames> Learn(const ModelDescription& model, const std::vector<std::string>& names);

  std::string Of(const std::string& ours) const;
  // The other way: as transformers calls it. Empty for a name without the prefix.
  std::string Whole(const std::string& foreign) const;
  // No prefix: transformers finds the tensors under these names.
  bool plain() const { return prefix_.empty(); }

 private:
  std::string prefix_;
  bool shortened_ = false;  // GPT-2 without "transformer."
};

}  // namespace trainyard::checkpoint

// From the flags of `trainyard data tokenize` to what is done with each document. Thread-safety: free functions.
#pragma once

#include "operator/base/error.h"
#include "operator/cli/data/encode.h"
#include "operator/cli/data/tokenize.h"

namespace trainyard::cli {

// Errors: kInvalidArgument, kNotFound: a token that the tokenizer does not have, no chat template or an unknown one,
// flags that do not go together, an output that is one of the inputs.
Result<Recipe> MakeRecipe(const TokenizeFlags& flags, const tokenizer::Tokenizer& tokenizer);

}  // namespace trainyard::cli

// Holds what a job trains on against the tokenizer of its model. Thread-safety: as Session.
#pragma once

#include "trainer/loop/failure.h"
#include "trainer/loop/session.h"

namespace trainyard::loop {

// Files of training and validation must be of one tokenizer and part documents with one token, as far as they know; and
// of the tokenizer in model.pretrained, and of the one beside the checkpoints that the job resumes from, where there is
// one. Text, whose tokens are bytes, is refused for a model with a tokenizer and more than 256 tokens. Failure: exit
// code 3 with both files or directories.
Outcome<void> CheckTokenizers(const Session& s);

}  // namespace trainyard::loop

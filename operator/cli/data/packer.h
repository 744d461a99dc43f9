// From encoded documents to the token file: one after the other, or packed into sequences so that none is cut.
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "operator/cli/data/encode.h"
#include "trainer/data/token_writer.h"

namespace trainyard::cli {

struct Packing {
  // 0: documents follow each other, and training cuts sequences where it likes. Else each document lies within one
  // sequence of so many tokens, in the order given (next fit); the rest of a sequence is filled with `filler`, which
  // counts nowhere, and the file ends with the one token more that the last target needs.
  int64_t sequence_length = 0;
  uint32_t filler = 0;
  bool skip_long = false;  // leave out documents that are longer, instead of an error
};

class Packer {
 public:
  Packer(data::TokenWriter& writer, Packing packing, std::vector<std::string> paths)
      : writer_(writer), packing_(packing), paths_(std::move(paths)) {}

  // Errors: those of the writer; kInvalidArgument for a document that is longer than a sequence ("FILE:LINE: ").
  Status Append(const EncodedBlock& block);
  // Fills the last sequence. The writer is not finished by it.
  Status Close();

  int64_t skipped() const { return skipped_; }  // documents that were too long
  int64_t filled() const { return filled_; }    // tokens of filling
  int64_t empty() const { return empty_; }      // documents without text

 private:
  Status Fill(int64_t tokens);
  Status MakeRoom(const EncodedBlock& block, const EncodedDocument& document, bool& skip);

  data::TokenWriter& writer_;
  const Packing packing_;
  const std::vector<std::string> paths_;
  int64_t skipped_ = 0, filled_ = 0, empty_ = 0;
};

}  // namespace trainyard::cli

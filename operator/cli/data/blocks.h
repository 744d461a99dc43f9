// Reads input files of any size in blocks of a bounded one, cut where the cut does not change the tokens.
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::cli {

struct Block {
  size_t file = 0;     // which of the inputs
  int64_t line = 1;    // of its first byte
  std::string text;    // never empty
  bool begins = true;  // at the start of the file
  bool ends = true;    // at its end
};

class BlockReader {
 public:
  enum class Cut {
    kLines,        // behind a line break: blocks of whole lines
    kBeforeSpace,  // between two words, the space with the second: for tokenizers that part words there
    kOverSpace,    // between two words, the space left out: for those that put one before each text
  };
  static constexpr size_t kBlockBytes = 256 << 10;  // about so long is a block: encoding takes some hundred times that
  static constexpr size_t kMostBytes = 256u << 20;  // and never longer

  BlockReader(std::vector<std::string> paths, Cut cut) : paths_(std::move(paths)), cut_(cut) {}
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // Blocks of the files in their order; none after the last. Errors name the file: kNotFound, kPermissionDenied,
  // kInvalidArgument (a directory, an empty file, a line longer than kMostBytes), kUnavailable.
  Result<std::optional<Block>> Next();

  // Bytes of all files together; 0: not known, since one is a pipe. Errors: kNotFound, kInvalidArgument (a directory).
  static Result<int64_t> TotalBytes(const std::vector<std::string>& paths);

 private:
  Status OpenNext();
  // Reads on until `pending_` has `bytes`, or the file ends.
  Status Fill(size_t bytes);
  // Where to cut `pending_`; npos: nowhere yet. `dropped`: bytes behind it that no block gets.
  size_t CutPlace(size_t& dropped) const;

  const std::vector<std::string> paths_;
  const Cut cut_;
  size_t file_ = 0;  // the open one, or the next
  int fd_ = -1;
  bool at_end_ = false;  // all of the open file is in `pending_`
  bool begins_ = true;
  int64_t line_ = 1;
  std::string pending_;
};

}  // namespace trainyard::cli

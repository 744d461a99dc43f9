#include "operator/cli/data/packer.h"

namespace trainyard::cli {

Status Packer::Fill(int64_t tokens) {
  const std::vector<uint32_t> ids(static_cast<size_t>(tokens), packing_.filler);
  const std::vector<uint8_t> counts(ids.size(), 0);
  filled_ += tokens;
  return writer_.Append(ids.data(), ids.size(), counts.data());
}

// The document gets a sequence where all of it fits.
Status Packer::MakeRoom(const EncodedBlock& block, const EncodedDocument& document, bool& skip) {
  const int64_t length = packing_.sequence_length, size = static_cast<int64_t>(document.size);
  if (size > length) {
    if (packing_.skip_long) {
      ++skipped_;
      skip = true;
      return {};
    }
    return Fail(ErrorCode::kInvalidArgument, paths_[block.file] + ":" + std::to_string(document.line) + ": is " +
                                                 std::to_string(size) + " tokens long, more than --sequence-length " +
                                                 std::to_string(length) +
                                                 "; raise it, or leave such out with --skip-long");
  }
  const int64_t used = writer_.tokens() % length;
  return used + size > length ? Fill(length - used) : Status();
}

Status Packer::Append(const EncodedBlock& block) {
  for (const EncodedDocument& document : block.documents) {
    bool skip = false;
    if (packing_.sequence_length > 0) {
      if (Status room = MakeRoom(block, document, skip); !room) return room;
    }
    if (skip) continue;
    const uint8_t* counts = block.counts.empty() ? nullptr : block.counts.data() + document.begin;
    if (Status written = writer_.Append(block.ids.data() + document.begin, document.size, counts); !written) {
      return written;
    }
    if (document.ends) writer_.EndDocument();
  }
  empty_ += block.empty;
  return {};
}

Status Packer::Close() {
  if (packing_.sequence_length == 0 || writer_.tokens() == 0) return {};
  const int64_t used = writer_.tokens() % packing_.sequence_length;
  return Fill(used == 0 ? 1 : packing_.sequence_length - used + 1);
}

}  // namespace trainyard::cli

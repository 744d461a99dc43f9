// A model and an adapter of it as one model. Thread-safety: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/file_system.h"

namespace trainyard::checkpoint {

// out[i, j] += scale * sum over k of left[i, k] * right[k, j], for a `left` of [rows, rank], a `right` of [rank,
// columns] and an `out` of [rows, columns], all in C order. The sum is in fp32, in the order of k, whatever `rows` is.
void AddLowRank(const float* left, const float* right, int64_t rows, int64_t rank, int64_t columns, float scale,
                float* out);

struct MergeOptions {
  std::string base;       // a Hugging Face directory
  std::string adapter;    // as AdapterSource::Open takes it
  std::string directory;  // that is made, or is empty
};

struct MergeInfo {
  ExportInfo written;
  AdapterDescription adapter;
  std::string adapter_path;  // what was taken
  int64_t matrices = 0;      // that have become others
  bool base_known = false;   // the adapter says its base, and this is it
};

// Writes the Hugging Face directory again with W + alpha / rank * B A for each matrix that has an adapter, computed in
// fp32 and rounded once to the dtype that W has (to nearest, ties to even). All else is the same byte for byte: files,
// headers, other tensors, config.json, tokenizer. Memory: pieces of 32 MiB and the A and B of one matrix. One pass over
// the base, in which it is hashed; where the adapter says that it belongs to another, nothing stays. config.json comes
// last. Errors: those of ReadConfigJson, ForeignModel::Open and AdapterSource::Open; kFailedPrecondition for another
// base than the adapter's, for an adapter that is not finite or makes a number too large for its dtype, or for parts of
// tensors as DCP writes them; kInvalidArgument for a `directory` within `base`; kAlreadyExists when `directory` is not
// empty; kDataLoss; of the file system.
Result<MergeInfo> MergeAdapter(const MergeOptions& options, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint

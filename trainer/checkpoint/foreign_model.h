// The weights of a model as others wrote them: found under their names, checked against config.json, read box by box
// into ours. Thread-safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/foreign_names.h"
#include "trainer/checkpoint/foreign_tensors.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/model_description.h"

namespace trainyard::checkpoint {

class ForeignModel {
 public:
  // Reads headers only. Names are taken as foreign_names.h says. Errors: those of ForeignTensors::Open;
  // kInvalidArgument for a tensor that is missing, of another shape, or of no float type, and for parameters of
  // blocks that the model does not have: file and tensor are named.
  static Result<ForeignModel> Open(const std::string& directory, const ModelDescription& model,
                                   FileSystem& fs = PosixFileSystem());

  // Fills `data` of every box with the values of the source in the box's own dtype. Rows that follow each other are one
  // range of bytes of the file; memory: a piece of 4 MiB. Errors: kDataLoss, naming the file, when it has become
  // shorter; kInvalidArgument for a box of no tensor of the model; of the file system. With `hash` the boxes are whole
  // rows, and the hash of each row, as the file has it, is added (base_hash.h); memory: a row where that is more.
  Status Read(const std::vector<TensorSlice>& wanted, uint64_t* hash = nullptr);
  int64_t bytes_read() const { return bytes_; }  // of tensors, so far

  const ForeignTensors& tensors() const { return tensors_; }
  const ForeignNames& names() const { return names_; }
  int64_t ignored() const { return ignored_; }  // tensors of the source that are no parameters of the model

 private:
  ForeignModel(ForeignTensors tensors, ForeignNames names, int64_t ignored)
      : tensors_(std::move(tensors)), names_(std::move(names)), ignored_(ignored) {}
  Result<int64_t> ReadHashed(const ForeignTensors::Tensor& tensor, const TensorSlice& slice, uint64_t& hash);

  ForeignTensors tensors_;
  ForeignNames names_;
  int64_t ignored_;
  int64_t bytes_ = 0;
  std::vector<char> rows_;  // as the file has them, of the piece that is hashed
};

}  // namespace trainyard::checkpoint

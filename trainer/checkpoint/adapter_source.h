// An adapter wherever it lies: in a directory of PEFT's layout, or in a checkpoint of ours. Thread-safety: an object
// belongs to one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/foreign_tensors.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

class AdapterSource {
 public:
  // `path`: a directory with adapter_config.json, a checkpoint of an adapter, or the checkpoint directory of a job,
  // whose newest valid one is taken. It has to fit `model`. Errors: kNotFound; kInvalidArgument for an adapter of
  // another model or one that our trainer does not compute alike, naming what differs; kFailedPrecondition for a
  // checkpoint of a whole model; kDataLoss, naming the file; of the file system.
  static Result<AdapterSource> Open(const std::string& path, const ModelDescription& model,
                                    FileSystem& fs = PosixFileSystem());

  const AdapterDescription& adapter() const { return adapter_; }
  const std::optional<BaseReference>& base() const { return base_; }  // nothing where it is not said
  const std::string& path() const { return path_; }                   // what was taken

  // Fills `data` of each box, of the tensors of AdapterTensorsOf and in F32. Errors: kDataLoss, naming the file; of the
  // file system.
  Status Read(const std::vector<TensorSlice>& wanted);

 private:
  static Result<AdapterSource> OpenPeft(const std::string& path, const ModelDescription& model, FileSystem& fs);
  static Result<AdapterSource> OpenCheckpoint(const std::string& path, const ModelDescription& model, FileSystem& fs);

  AdapterDescription adapter_;
  std::optional<BaseReference> base_;
  std::string path_;
  std::optional<Reader> reader_;        // of a checkpoint
  std::optional<ForeignTensors> peft_;  // else
};

// True for a directory in PEFT's layout.
bool IsPeft(const std::string& path, FileSystem& fs = PosixFileSystem());

}  // namespace trainyard::checkpoint

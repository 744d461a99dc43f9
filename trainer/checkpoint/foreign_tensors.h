// The tensors of a directory of safetensors files that others wrote. Thread-safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/box.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/safetensors_file.h"

namespace trainyard::checkpoint {

// A whole small file, as ReadWholeFile, but symbolic links are followed.
Result<std::string> ReadFollowed(FileSystem& fs, const std::string& path, int64_t limit);

class ForeignTensors {
 public:
  struct Part {
    size_t file = 0;
    Box box;
    int64_t begin = 0, end = 0;  // bytes in the file
  };
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;  // of the whole
    std::vector<Part> parts;     // tile it
  };

  // The files that model.safetensors.index.json names, else all *.safetensors of the directory. Reads headers only.
  // Errors: kNotFound without any; kInvalidArgument for an index that names a path instead of a file, or a tensor that
  // its file does not have, and for parts that do not tile a tensor; kDataLoss, naming the file.
  static Result<ForeignTensors> Open(const std::string& directory, FileSystem& fs);

  // The tensors of this file alone. Errors: kNotFound; kDataLoss, naming the file.
  static Result<ForeignTensors> OfFile(const std::string& path, FileSystem& fs);

  const std::map<std::string, Tensor>& all() const { return tensors_; }
  const std::vector<std::string>& files() const { return files_; }  // paths
  // Fills `out` with the whole tensor in C order, in its own dtype. Error: kDataLoss, naming the file.
  Status Read(const Tensor& tensor, std::vector<char>& out) const;
  // Fills `out` with the elements of `box` in C order, as `dtype`; both are float formats. Reads their bytes alone, in
  // pieces of 4 MiB. Returns how many. Errors: as above; kInvalidArgument for a dtype that cannot be converted.
  Result<int64_t> ReadBox(const Tensor& tensor, const Box& box, const std::string& dtype, void* out) const;

 private:
  explicit ForeignTensors(FileSystem& fs) : fs_(&fs) {}
  Status AddFile(const std::string& path);
  Status CheckTiling() const;

  FileSystem* fs_;
  std::vector<std::string> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace trainyard::checkpoint

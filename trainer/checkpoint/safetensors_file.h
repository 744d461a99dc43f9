// Safetensors files of other programs: what the header of one says, checked before anything is believed, and a writer
// that needs no memory for the tensors. The format: https://huggingface.co/docs/safetensors. Our own shards are read
// through the manifest instead (shard_reader.h). Thread-safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/checkpoint/box.h"
#include "trainer/checkpoint/file_system.h"

namespace trainyard::checkpoint {

// The path without symbolic links, which a download of the Hub consists of; the path itself where it leads nowhere.
std::string FollowLinks(const std::string& path);

struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  Box box;            // in the whole tensor; from zero where the file has no DCP_SHARDING_INFO
  int64_t begin = 0;  // byte range in the file
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // in file order
  std::map<std::string, std::string> metadata;  // __metadata__
  int64_t data_begin = 0;
  bool sharded = false;  // it has DCP_SHARDING_INFO: a box may be part of a tensor
};

// The header in `text`, the first bytes of a file of `file_bytes` bytes: its length and the JSON. Sizes and byte ranges
// must be those of the tensors, which follow each other without holes to the end of the file; PyTorch's
// DCP_SHARDING_INFO, where there is one, has an offset for every tensor. Error: kDataLoss, without the file's name.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, int64_t file_bytes);
// The same of a file; symbolic links are followed. Errors: kNotFound; kDataLoss, naming the file; of the file system.
Result<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path, FileSystem& fs);

// The first bytes of such a file, up to the first tensor. Errors: as above.
Result<std::string> ReadHeaderBytes(const std::string& path, FileSystem& fs);

// A tensor that is going to be written. `offset`: where it lies in the whole one; empty: it is the whole.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> offset;
};

// Writes one file from front to back.
class SafetensorsWriter {
 public:
  // Creates `path`, which must not exist, and writes the header. With `sharded` it says where the tensors lie, as
  // PyTorch's sharded safetensors do. Errors: kInvalidArgument (a name twice, a bad shape); of the file system.
  static Result<SafetensorsWriter> Create(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                                          bool sharded, FileSystem& fs);
  // The same with a header that is given: its length and the JSON, of these tensors in this order. Error: kInternal
  // when they are not those of the header.
  static Result<SafetensorsWriter> CreateWith(const std::string& path, const std::string& header,
                                              const std::vector<SafetensorsTensor>& tensors, FileSystem& fs);
  // The next bytes of the tensors, in their order.
  Status Append(const void* data, int64_t bytes);
  // Syncs and closes. Error: kInternal when bytes are missing; of the file system.
  Status Finish();

  int64_t bytes() const { return end_; }  // of the whole file

 private:
  static Result<SafetensorsWriter> Begin(const std::string& path, const std::string& header, int64_t data_bytes,
                                         FileSystem& fs);
  SafetensorsWriter(FileSystem& fs, OpenFile file, int64_t end) : fs_(&fs), file_(std::move(file)), end_(end) {}

  FileSystem* fs_;
  OpenFile file_;
  int64_t at_ = 0, end_ = 0;
  int64_t started_ = 0;  // the disk works on everything before
};

}  // namespace trainyard::checkpoint

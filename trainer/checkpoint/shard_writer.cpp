#include "trainer/checkpoint/shard_writer.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/block_hashes.h"

namespace trainyard::checkpoint {
namespace {

// One write call: a multiple of the largest hash block, and small enough that what was just hashed is still in the
// processor's cache when it is copied.
constexpr int64_t kWriteBytes = 1 << 20;
// The disk is set to work after so many bytes.
constexpr int64_t kWritebackBytes = 8 << 20;
static_assert(kWriteBytes % kMaxBlockBytes == 0);

// Appends to a file; small pieces are gathered, large ones written from where they lie.
class Appender {
 public:
  Appender(FileSystem& fs, const OpenFile& file) : fs_(fs), file_(file) {}

  Status Append(const char* data, int64_t n) {
    const bool direct = n >= kWriteBytes / 2;
    if (direct || static_cast<int64_t>(buffer_.size()) + n > kWriteBytes) {
      if (Status s = Flush(); !s) return s;
    }
    if (direct) return Write(data, n);
    buffer_.append(data, static_cast<size_t>(n));
    return {};
  }

  Status Flush() {
    if (buffer_.empty()) return {};
    Status s = Write(buffer_.data(), static_cast<int64_t>(buffer_.size()));
    buffer_.clear();
    return s;
  }

 private:
  Status Write(const char* data, int64_t n) {
    if (Status s = fs_.WriteAt(file_.fd(), data, n, at_, file_.path()); !s) return s;
    at_ += n;
    if (at_ - started_ >= kWritebackBytes) {
      fs_.StartWriteback(file_.fd(), at_ - started_, started_);
      started_ = at_;
    }
    return {};
  }

  FileSystem& fs_;
  const OpenFile& file_;
  std::string buffer_;
  int64_t at_ = 0;
  int64_t started_ = 0;  // the disk works on everything before
};

// Length and JSON header, padded with spaces (which safetensors allows) so that the data begins on a page.
std::string Header(const std::vector<const TensorSlice*>& slices, const std::vector<Chunk>& chunks) {
  nlohmann::json sharding = nlohmann::json::object();
  for (const TensorSlice* slice : slices) sharding[slice->name] = {{"saved_offsets", slice->offset}};
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", sharding.dump()}};
  for (size_t i = 0; i < slices.size(); ++i) {
    header[slices[i]->name] = {
        {"dtype", slices[i]->dtype}, {"shape", slices[i]->shape}, {"data_offsets", {chunks[i].begin, chunks[i].end}}};
  }
  std::string text = header.dump();
  const int64_t used = 8 + static_cast<int64_t>(text.size());
  text.append(static_cast<size_t>((kDataAlignment - used % kDataAlignment) % kDataAlignment), ' ');
  const uint64_t length = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + text;
}

// Hashes and appends one chunk piece by piece.
Status AppendChunk(Appender& out, const char* data, ChunkHashes& hashes) {
  for (int64_t at = 0; at < hashes.bytes; at += kWriteBytes) {
    const int64_t piece = std::min(kWriteBytes, hashes.bytes - at);
    for (int64_t block = at; block < at + piece; block += hashes.block_bytes) {
      const int64_t n = std::min(hashes.block_bytes, hashes.bytes - block);
      hashes.blocks.push_back(XXH3_64bits(data + block, static_cast<size_t>(n)));
    }
    if (Status s = out.Append(data + at, piece); !s) return s;
  }
  return {};
}

Result<OpenFile> Create(FileSystem& fs, const std::string& path) {
  // A failed save of the same step may have left a file. It is replaced, not overwritten: a process that still holds it
  // then writes to nothing.
  if (Status s = fs.RemoveFile(path); !s && s.error().code != ErrorCode::kNotFound) return Fail(s.error());
  Result<int> fd = fs.OpenCreate(path);
  if (!fd) return Fail(fd.error());
  return OpenFile(fs, *fd, path);
}

}  // namespace

Status WrittenShard::Finish(FileSystem& fs) {
  for (OpenFile* file : {&data, &hashes}) {
    if (Status s = fs.Sync(file->fd(), file->path()); !s) return s;
    if (Status s = file->Close(); !s) return s;
  }
  return {};
}

Result<WrittenShard> WriteShardFile(const std::string& directory, std::string_view group, int rank,
                                    const std::vector<const TensorSlice*>& slices,
                                    const std::function<Result<const void*>(const TensorSlice&)>& fetch,
                                    FileSystem& fs) {
  ShardFile out;
  out.path = ShardPath(group, rank);
  out.rank = rank;
  int64_t at = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const Box box{slices[i]->offset, slices[i]->shape};
    const int64_t bytes = box.elements() * *DtypeBytes(slices[i]->dtype);
    out.chunks.push_back({static_cast<int64_t>(i), box, at, at + bytes});
    at += bytes;
  }
  const std::string header = Header(slices, out.chunks);
  out.data_begin = static_cast<int64_t>(header.size());
  out.bytes = out.data_begin + at;
  for (Chunk& chunk : out.chunks) {
    chunk.begin += out.data_begin;
    chunk.end += out.data_begin;
  }

  Result<OpenFile> file = Create(fs, directory + "/" + out.path);
  if (!file) return Fail(file.error());
  Appender appender(fs, *file);
  BlockHashes hashes;
  hashes.header = Digest(header);
  if (Status s = appender.Append(header.data(), out.data_begin); !s) return Fail(s.error());
  for (size_t i = 0; i < slices.size(); ++i) {
    const int64_t bytes = out.chunks[i].end - out.chunks[i].begin;
    ChunkHashes& chunk = hashes.chunks.emplace_back(ChunkHashes{bytes, BlockBytes(bytes), {}});
    Result<const void*> data = slices[i]->data;
    if (fetch) data = fetch(*slices[i]);
    if (!data) return Fail(data.error());
    if (Status s = AppendChunk(appender, static_cast<const char*>(*data), chunk); !s) return Fail(s.error());
  }
  if (Status s = appender.Flush(); !s) return Fail(s.error());

  const std::string text = EncodeHashes(hashes);
  out.hash_bytes = static_cast<int64_t>(text.size());
  out.digest = Digest(text);
  Result<OpenFile> hash_file = Create(fs, directory + "/" + HashPath(out.path));
  if (!hash_file) return Fail(hash_file.error());
  if (Status s = fs.WriteAt(hash_file->fd(), text.data(), out.hash_bytes, 0, hash_file->path()); !s) {
    return Fail(s.error());
  }
  fs.StartWriteback(hash_file->fd(), out.hash_bytes, 0);
  return WrittenShard{std::move(out), std::move(*file), std::move(*hash_file)};
}

}  // namespace trainyard::checkpoint

#include "trainer/checkpoint/shard_reader.h"

#include <xxhash.h>

#include <algorithm>

namespace trainyard::checkpoint {
namespace {

// One read call at most; a multiple of the largest hash block.
constexpr int64_t kReadBytes = 8 << 20;

tl::unexpected<Error> Loss(const std::string& what) { return Fail(ErrorCode::kDataLoss, what); }

// A missing part of a checkpoint is a loss; a full table of open files or a vanished mount is not.
Error AsLoss(Error error) {
  if (error.code == ErrorCode::kNotFound || error.code == ErrorCode::kFailedPrecondition)
    error.code = ErrorCode::kDataLoss;
  return error;
}

}  // namespace

Result<ShardReader> ShardReader::Open(const std::string& directory, const ShardFile& file, FileSystem& fs,
                                      int64_t& bytes_read) {
  const std::string hash_path = directory + "/" + HashPath(file.path);
  Result<std::string> text = ReadWholeFile(fs, hash_path, file.hash_bytes);
  if (!text && text.error().code == ErrorCode::kNotFound)
    return Loss("its hash file " + HashPath(file.path) + " is missing");
  if (!text && text.error().code != ErrorCode::kResourceExhausted) return Fail(AsLoss(text.error()));
  if (text) bytes_read += static_cast<int64_t>(text->size());
  if (!text || Digest(*text) != file.digest) {
    return Loss("its hash file " + HashPath(file.path) + " does not match the digest in the manifest");
  }
  Result<BlockHashes> hashes = DecodeHashes(*text);
  if (!hashes) return Loss("its hash file " + HashPath(file.path) + ": " + hashes.error().message);
  bool fits = hashes->chunks.size() == file.chunks.size();
  for (size_t i = 0; fits && i < file.chunks.size(); ++i) {
    fits = hashes->chunks[i].bytes == file.chunks[i].end - file.chunks[i].begin;
  }
  if (!fits) return Loss("its hash file " + HashPath(file.path) + " is of other chunks than the manifest");

  const std::string path = directory + "/" + file.path;
  Result<FileStat> stat = fs.Stat(path);
  if (!stat && stat.error().code == ErrorCode::kNotFound) return Loss("the file is missing");
  if (!stat) return Fail(AsLoss(stat.error()));
  if (stat->kind != FileKind::kFile) return Loss("it is not a regular file");
  if (stat->bytes != file.bytes) {
    return Loss("it has " + std::to_string(stat->bytes) + " bytes instead of " + std::to_string(file.bytes));
  }
  Result<int> fd = fs.OpenRead(path);
  if (!fd) return Fail(AsLoss(fd.error()));
  return ShardReader(file, OpenFile(fs, *fd, path), std::move(*hashes), fs, bytes_read);
}

BlockRange ShardReader::Covering(int64_t chunk, int64_t begin, int64_t end) const {
  const int64_t block = hashes_.chunks[static_cast<size_t>(chunk)].block_bytes;
  return {chunk, begin / block, (end - 1) / block - begin / block + 1};
}

BlockRange ShardReader::All(int64_t chunk) const {
  return {chunk, 0, static_cast<int64_t>(hashes_.chunks[static_cast<size_t>(chunk)].blocks.size())};
}

int64_t ShardReader::Begin(const BlockRange& range) const {
  return range.first * hashes_.chunks[static_cast<size_t>(range.chunk)].block_bytes;
}

int64_t ShardReader::End(const BlockRange& range) const {
  const ChunkHashes& chunk = hashes_.chunks[static_cast<size_t>(range.chunk)];
  return std::min((range.first + range.count) * chunk.block_bytes, chunk.bytes);
}

Status ShardReader::Read(const std::vector<BlockRange>& ranges, const Visit& visit) {
  // Long ranges are cut, then neighbours in the file are read together.
  std::vector<BlockRange> pieces;
  for (BlockRange range : ranges) {
    const int64_t most = kReadBytes / hashes_.chunks[static_cast<size_t>(range.chunk)].block_bytes;
    while (range.count > 0) {
      const int64_t count = std::min(range.count, most);
      pieces.push_back({range.chunk, range.first, count});
      range.first += count;
      range.count -= count;
    }
  }
  const auto file_begin = [&](const BlockRange& r) {
    return file_->chunks[static_cast<size_t>(r.chunk)].begin + Begin(r);
  };
  const auto file_end = [&](const BlockRange& r) { return file_->chunks[static_cast<size_t>(r.chunk)].begin + End(r); };
  for (size_t first = 0; first < pieces.size();) {
    size_t last = first + 1;
    while (last < pieces.size() && file_begin(pieces[last]) == file_end(pieces[last - 1]) &&
           file_end(pieces[last]) - file_begin(pieces[first]) <= kReadBytes) {
      ++last;
    }
    if (Status s = VisitGroup(&pieces[first], last - first, visit); !s) return s;
    first = last;
  }
  return {};
}

Status ShardReader::VisitGroup(const BlockRange* ranges, size_t count, const Visit& visit) {
  const int64_t from = file_->chunks[static_cast<size_t>(ranges[0].chunk)].begin + Begin(ranges[0]);
  int64_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += End(ranges[i]) - Begin(ranges[i]);
  if (static_cast<int64_t>(buffer_.size()) < bytes) buffer_.resize(static_cast<size_t>(bytes));
  const Result<int64_t> got = fs_->ReadAt(open_.fd(), buffer_.data(), bytes, from, open_.path());
  *bytes_read_ += got.value_or(0);
  int64_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t n = End(ranges[i]) - Begin(ranges[i]);
    const std::string_view data(buffer_.data() + at, static_cast<size_t>(n));
    at += n;
    Status check;
    if (!got) {
      check = Fail(AsLoss(got.error()));
    } else if (at > *got) {
      check = Loss("the file ends at byte " + std::to_string(from + *got));
    } else {
      check = CheckBlocks(ranges[i], data);
    }
    if (Status s = visit(ranges[i].chunk, Begin(ranges[i]), data, check); !s) return s;
  }
  return {};
}

Status ShardReader::CheckBlocks(const BlockRange& range, std::string_view bytes) const {
  const ChunkHashes& chunk = hashes_.chunks[static_cast<size_t>(range.chunk)];
  for (int64_t i = 0; i < range.count; ++i) {
    const std::string_view block = bytes.substr(static_cast<size_t>(i * chunk.block_bytes),
                                                static_cast<size_t>(chunk.block_bytes));  // the last one may be shorter
    if (XXH3_64bits(block.data(), block.size()) != chunk.blocks[static_cast<size_t>(range.first + i)]) {
      const int64_t from =
          file_->chunks[static_cast<size_t>(range.chunk)].begin + (range.first + i) * chunk.block_bytes;
      return Loss("bytes " + std::to_string(from) + " to " + std::to_string(from + static_cast<int64_t>(block.size())) +
                  " do not match their hash");
    }
  }
  return {};
}

Status ShardReader::CheckHeader() {
  std::string header(static_cast<size_t>(file_->data_begin), '\0');
  const Result<int64_t> got = fs_->ReadAt(open_.fd(), header.data(), file_->data_begin, 0, open_.path());
  if (!got) return Fail(AsLoss(got.error()));
  *bytes_read_ += *got;
  if (*got != file_->data_begin || Digest(header) != hashes_.header) return Loss("its header does not match its hash");
  return {};
}

}  // namespace trainyard::checkpoint

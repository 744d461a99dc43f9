#include "trainer/checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "trainer/checkpoint/manifest_file.h"
#include "trainer/checkpoint/shard_reader.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {
namespace {

// What one wanted box takes from one chunk.
struct Take {
  const TensorSlice* slice = nullptr;
  Box common;
};

// A view of the chunks of one file that are wanted: chunk index -> boxes. Ordered, since reading goes in file order.
using FileTakes = std::map<int64_t, std::vector<Take>>;

Error Named(const Error& error, const ShardFile& file, const std::string& tensor, const std::string& directory) {
  return error.Wrap(directory + "/" + file.path + ": tensor " + tensor + " of rank " + std::to_string(file.rank));
}

// Whole blocks that the takes of one chunk need, without overlap.
void AddRanges(const ShardReader& reader, int64_t chunk, const Box& box, int64_t element,
               const std::vector<Take>& takes, std::vector<BlockRange>& out) {
  std::vector<BlockRange> ranges;
  for (const Take& take : takes) {
    const SharedRuns runs(box, box, take.common);
    for (int64_t i = 0; i < runs.count(); ++i) {
      const int64_t begin = runs.At(i).a * element;
      const BlockRange range = reader.Covering(chunk, begin, begin + runs.length() * element);
      if (!ranges.empty() && range.first <= ranges.back().first + ranges.back().count &&
          range.first >= ranges.back().first) {
        ranges.back().count = std::max(ranges.back().count, range.first + range.count - ranges.back().first);
      } else {
        ranges.push_back(range);
      }
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const BlockRange& x, const BlockRange& y) { return x.first < y.first; });
  const size_t first = out.size();
  for (const BlockRange& range : ranges) {
    if (out.size() > first && range.first <= out.back().first + out.back().count) {
      out.back().count = std::max(out.back().count, range.first + range.count - out.back().first);
    } else {
      out.push_back(range);
    }
  }
}

// Copies what the take wants of the chunk's bytes [begin, begin + bytes.size()).
void Copy(const Take& take, const Box& box, int64_t element, int64_t begin, std::string_view bytes) {
  const SharedRuns runs(box, Box{take.slice->offset, take.slice->shape}, take.common);
  const int64_t end = begin + static_cast<int64_t>(bytes.size());
  const int64_t length = runs.length() * element;
  // First run that ends after `begin`.
  int64_t lo = 0, hi = runs.count();
  while (lo < hi) {
    const int64_t middle = lo + (hi - lo) / 2;
    (runs.At(middle).a * element + length <= begin) ? lo = middle + 1 : hi = middle;
  }
  for (int64_t i = lo; i < runs.count(); ++i) {
    const SharedRuns::Start start = runs.At(i);
    const int64_t from = start.a * element;
    if (from >= end) break;
    const int64_t a = std::max(from, begin), b = std::min(from + length, end);
    std::memcpy(static_cast<char*>(take.slice->data) + start.b * element + (a - from), bytes.data() + (a - begin),
                static_cast<size_t>(b - a));
  }
}

}  // namespace

struct Reader::Impl {
  UseLock in_use;
  std::string path;
  FileSystem* fs = nullptr;
  Manifest manifest;
  nlohmann::json train_state;
  int64_t bytes_read = 0;
  std::unordered_map<std::string, int64_t> index;
  // tensor -> (file, chunk) pairs
  std::vector<std::vector<std::pair<int64_t, int64_t>>> places;

  Status Plan(const TensorSlice& slice, std::map<int64_t, FileTakes>& plan) const;
  Status ReadFile(const ShardFile& file, const FileTakes& takes);
};

Reader::Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

Result<Reader> Reader::Open(const std::string& path, FileSystem& fs) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->fs = &fs;
  Result<UseLock> in_use = UseLock::ToRead(path);
  if (!in_use) return Fail(in_use.error());
  impl->in_use = std::move(*in_use);
  Result<Manifest> manifest = LoadManifest(path, fs, impl->bytes_read);
  if (!manifest) return Fail(manifest.error());
  impl->manifest = std::move(*manifest);
  for (const Untiled& untiled : FindUntiled(impl->manifest)) {
    return Fail(ErrorCode::kDataLoss, path + ": tensor " + untiled.tensor + ": " + untiled.reason);
  }
  Result<nlohmann::json> state = LoadTrainState(path, impl->manifest, fs, impl->bytes_read);
  if (!state) return Fail(state.error());
  impl->train_state = std::move(*state);
  const Manifest& m = impl->manifest;
  impl->places.resize(m.tensors.size());
  for (size_t i = 0; i < m.tensors.size(); ++i) impl->index.emplace(m.tensors[i].name, static_cast<int64_t>(i));
  for (size_t f = 0; f < m.files.size(); ++f) {
    for (size_t c = 0; c < m.files[f].chunks.size(); ++c) {
      impl->places[static_cast<size_t>(m.files[f].chunks[c].tensor)].emplace_back(f, c);
    }
  }
  return Reader(std::move(impl));
}

int64_t Reader::step() const { return impl_->manifest.step; }
int Reader::world() const { return impl_->manifest.world; }
const std::string& Reader::job_uid() const { return impl_->manifest.fence.job_uid; }
int64_t Reader::attempt() const { return impl_->manifest.fence.attempt; }
const nlohmann::json& Reader::train_state() const { return impl_->train_state; }
const std::vector<TensorInfo>& Reader::tensors() const { return impl_->manifest.tensors; }
int64_t Reader::bytes_read() const { return impl_->bytes_read; }

const TensorInfo* Reader::Find(const std::string& name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->manifest.tensors[static_cast<size_t>(found->second)];
}

Status Reader::Impl::Plan(const TensorSlice& slice, std::map<int64_t, FileTakes>& plan) const {
  if (Status s = CheckSlice(slice); !s) return s;
  const auto found = index.find(slice.name);
  if (found == index.end()) {
    return Fail(ErrorCode::kFailedPrecondition, path + " has no tensor " + slice.name + ": it is of another model");
  }
  const TensorInfo& tensor = manifest.tensors[static_cast<size_t>(found->second)];
  if (tensor.dtype != slice.dtype || tensor.global_shape != slice.global_shape) {
    const auto shape = [](const std::vector<int64_t>& s) {
      return Box{std::vector<int64_t>(s.size(), 0), s}.ToString();
    };
    return Fail(ErrorCode::kFailedPrecondition, path + ": tensor " + slice.name + " is " + tensor.dtype + " " +
                                                    shape(tensor.global_shape) + " there, not " + slice.dtype + " " +
                                                    shape(slice.global_shape) + ": it is of another model");
  }
  if (*ElementCount(slice.shape) == 0) return {};
  if (slice.data == nullptr)
    return Fail(ErrorCode::kInvalidArgument, "tensor \"" + slice.name + "\" has no destination");
  const Box wanted{slice.offset, slice.shape};
  for (const auto& [file, chunk] : places[static_cast<size_t>(found->second)]) {
    const Box& box = manifest.files[static_cast<size_t>(file)].chunks[static_cast<size_t>(chunk)].box;
    if (std::optional<Box> common = Intersect(box, wanted)) plan[file][chunk].push_back({&slice, std::move(*common)});
  }
  return {};
}

Status Reader::Impl::ReadFile(const ShardFile& file, const FileTakes& takes) {
  const auto tensor_of = [&](int64_t chunk) -> const TensorInfo& {
    return manifest.tensors[static_cast<size_t>(file.chunks[static_cast<size_t>(chunk)].tensor)];
  };
  Result<ShardReader> reader = ShardReader::Open(path, file, *fs, bytes_read);
  if (!reader) return Fail(Named(reader.error(), file, tensor_of(takes.begin()->first).name, path));
  std::vector<BlockRange> ranges;
  for (const auto& [chunk, list] : takes) {
    AddRanges(*reader, chunk, file.chunks[static_cast<size_t>(chunk)].box, *DtypeBytes(tensor_of(chunk).dtype), list,
              ranges);
  }
  return reader->Read(ranges, [&](int64_t chunk, int64_t begin, std::string_view bytes, const Status& check) -> Status {
    const TensorInfo& tensor = tensor_of(chunk);
    if (!check) return Fail(Named(check.error(), file, tensor.name, path));
    for (const Take& take : takes.at(chunk)) {
      Copy(take, file.chunks[static_cast<size_t>(chunk)].box, *DtypeBytes(tensor.dtype), begin, bytes);
    }
    return {};
  });
}

Status Reader::Read(const std::vector<TensorSlice>& wanted) {
  std::map<int64_t, FileTakes> plan;
  for (const TensorSlice& slice : wanted) {
    if (Status s = impl_->Plan(slice, plan); !s) return s;
  }
  for (const auto& [file, takes] : plan) {
    if (Status s = impl_->ReadFile(impl_->manifest.files[static_cast<size_t>(file)], takes); !s) return s;
  }
  return {};
}

}  // namespace trainyard::checkpoint

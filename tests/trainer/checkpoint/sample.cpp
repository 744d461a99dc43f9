#include "tests/trainer/checkpoint/sample.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "operator/base/ids.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {
namespace {

TensorSlice RowsOf(const SampleTensor& tensor, const std::string& name, int rank, int world) {
  TensorSlice slice{name, "F32", tensor.shape, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape, nullptr};
  if (tensor.shape.empty()) return slice;
  const int64_t rows = tensor.shape[0], per_rank = (rows + world - 1) / world;
  const int64_t lo = std::min(rows, rank * per_rank), hi = std::min(rows, lo + per_rank);
  slice.offset[0] = lo;
  slice.shape[0] = hi - lo;
  return slice;
}

}  // namespace

SampleShards::SampleShards(const std::vector<SampleTensor>& tensors, int rank, int world, int64_t step) {
  const auto add = [&](std::vector<TensorSlice>& out, const SampleTensor& tensor, const std::string& name) {
    if (tensor.shape.empty() && rank != 0) return;  // a scalar has no rows to split
    TensorSlice slice = RowsOf(tensor, name, rank, world);
    std::vector<float>& memory = memory_.emplace_back(static_cast<size_t>(*ElementCount(slice.shape)), -1.0f);
    slice.data = memory.data();
    if (step >= 0) {
      const uint64_t hash = StableHash(name);
      ForEachElement(
          slice, [&](int64_t index, int64_t i) { memory[static_cast<size_t>(i)] = SampleValue(hash, index, step); });
    }
    out.push_back(std::move(slice));
  };
  memory_.reserve(tensors.size() * 3);
  for (const SampleTensor& tensor : tensors) {
    add(model, tensor, tensor.name);
    add(optim, tensor, "state." + tensor.name + ".exp_avg");
    add(optim, tensor, "state." + tensor.name + ".exp_avg_sq");
  }
}

std::vector<TensorSlice> SampleShards::all() const {
  std::vector<TensorSlice> out = model;
  out.insert(out.end(), optim.begin(), optim.end());
  return out;
}

int64_t SampleShards::bytes() const {
  int64_t total = 0;
  for (const std::vector<float>& memory : memory_) total += static_cast<int64_t>(memory.size()) * 4;
  return total;
}

int64_t SampleShards::Wrong(int64_t step) const {
  int64_t wrong = 0;
  for (const TensorSlice& slice : all()) {
    const uint64_t hash = StableHash(slice.name);
    ForEachElement(slice, [&](int64_t index, int64_t i) {
      wrong += static_cast<const float*>(slice.data)[i] != SampleValue(hash, index, step);
    });
  }
  return wrong;
}

float SampleValue(uint64_t name_hash, int64_t index, int64_t step) {
  constexpr uint64_t kPrime = 8388593;  // the largest below 2^23
  return static_cast<float>(
      (name_hash % kPrime + static_cast<uint64_t>(index) * 2654435761u + static_cast<uint64_t>(step)) % kPrime);
}

const std::vector<SampleTensor>& SmallModel() {
  static const std::vector<SampleTensor> model = {{"model.embed_tokens.weight", {37, 24}},
                                                  {"model.layers.0.self_attn.q_proj.weight", {24, 24}},
                                                  {"model.layers.0.mlp.down_proj.weight", {7, 100}},
                                                  {"model.norm.weight", {3}}};
  return model;
}

SaveRequest SampleRequest(const std::string& root, int64_t step, const Fence& fence, int rank, int world) {
  SaveRequest request;
  request.root = root;
  request.step = step;
  request.fence = fence;
  request.rank = rank;
  request.world = world;
  request.time = TimePoint(std::chrono::milliseconds(1'700'000'000'000 + step));
  return request;
}

Result<CommitInfo> SaveSample(const std::string& root, int64_t step, const Fence& fence, int world,
                              const std::vector<SampleTensor>& tensors, FileSystem& fs) {
  std::vector<std::string> reports;
  for (int rank = 0; rank < world; ++rank) {
    const SampleShards shards(tensors, rank, world, step);
    SaveRequest request = SampleRequest(root, step, fence, rank, world);
    request.model = shards.model;
    request.optim = shards.optim;
    Result<RankReport> report = WriteShards(request, fs);
    if (!report) return Fail(report.error());
    reports.push_back(report->manifest);
  }
  const std::string state = "{\"step\":" + std::to_string(step) + "}";
  return Commit(SampleRequest(root, step, fence, 0, world), state, reports, fs);
}

std::string LoadSample(const std::string& path, int64_t step, int world, const std::vector<SampleTensor>& tensors,
                       int64_t* bytes_read) {
  for (int rank = 0; rank < world; ++rank) {
    SampleShards shards(tensors, rank, world, -1);
    Result<Reader> reader = Reader::Open(path);
    if (!reader) return reader.error().message;
    if (reader->train_state().value("step", int64_t{-1}) != step) return "train state of another step";
    if (Status s = reader->Read(shards.all()); !s) return s.error().message;
    if (bytes_read != nullptr) *bytes_read += reader->bytes_read();
    if (int64_t wrong = shards.Wrong(step))
      return std::to_string(wrong) + " elements of rank " + std::to_string(rank) + " are wrong";
  }
  return "";
}

TempDirectory::TempDirectory(Storage storage) {
  const char* configured = ::getenv("TMPDIR");
  std::string base = configured != nullptr ? configured : "/tmp";
  if (storage == Storage::kMemory && ::access("/dev/shm", W_OK) == 0) base = "/dev/shm";
  path_ = base + "/checkpoint-test-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary directory in " + base);
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;  // a test that removed its own directory is fine
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace trainyard::checkpoint

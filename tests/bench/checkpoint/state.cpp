#include "tests/bench/checkpoint/state.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard::bench {

using checkpoint::TensorSlice;

namespace {

const checkpoint::Fence kFence{"bench", 1, 0};

void Fill(std::vector<float>& data, uint64_t seed) {
  uint64_t state = 0x9e3779b97f4a7c15u + seed;
  for (float& x : data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<float>(static_cast<int32_t>(state >> 32)) * 1e-9f;
  }
}

}  // namespace

Shards::Shards(int64_t layers, int rank, int world, bool fill) {
  const auto add = [&](std::vector<TensorSlice>& out, const std::string& name, const std::vector<int64_t>& shape) {
    TensorSlice slice{name, "F32", shape, std::vector<int64_t>(shape.size(), 0), shape, nullptr};
    const int64_t per_rank = (shape[0] + world - 1) / world;
    slice.offset[0] = std::min(shape[0], rank * per_rank);
    slice.shape[0] = std::min(shape[0], slice.offset[0] + per_rank) - slice.offset[0];
    std::vector<float>& data = memory.emplace_back(static_cast<size_t>(*checkpoint::ElementCount(slice.shape)));
    if (fill) Fill(data, memory.size());
    slice.data = data.data();
    bytes += static_cast<int64_t>(data.size()) * 4;
    out.push_back(std::move(slice));
  };
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer);
    for (const auto& [tensor, shape] : {std::pair(name + ".weight", std::vector<int64_t>{kRows, kHidden}),
                                        std::pair(name + ".norm.weight", std::vector<int64_t>{kHidden})}) {
      add(model, tensor, shape);
      add(optim, "state." + tensor + ".exp_avg", shape);
      add(optim, "state." + tensor + ".exp_avg_sq", shape);
    }
  }
}

std::vector<TensorSlice> Shards::all() const {
  std::vector<TensorSlice> out = model;
  out.insert(out.end(), optim.begin(), optim.end());
  return out;
}

int64_t LayersFor(int64_t megabytes) { return std::max<int64_t>(1, megabytes * 1'000'000 / (3 * 4 * kRows * kHidden)); }

void Die(const std::string& message) {
  std::fprintf(stderr, "checkpoint benchmark: %s\n", message.c_str());
  std::exit(1);
}

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Own(const std::string& root) {
  if (const auto taken = checkpoint::TakeOver(root, kFence); !taken) Die(taken.error().message);
}

void Save(const std::string& root, int64_t step, const std::vector<Shards>& ranks) {
  std::vector<std::string> reports;
  checkpoint::SaveRequest request;
  request.root = root;
  request.step = step;
  request.fence = kFence;
  request.world = static_cast<int>(ranks.size());
  for (int rank = 0; rank < request.world; ++rank) {
    request.rank = rank;
    request.model = ranks[static_cast<size_t>(rank)].model;
    request.optim = ranks[static_cast<size_t>(rank)].optim;
    const auto report = checkpoint::WriteShards(request);
    if (!report) Die(report.error().message);
    reports.push_back(report->manifest);
  }
  request.rank = 0;
  if (const auto info = checkpoint::Commit(request, "{}", reports); !info) Die(info.error().message);
}

int64_t Load(const std::string& path, Shards& shards) {
  Result<checkpoint::Reader> reader = checkpoint::Reader::Open(path);
  if (!reader) Die(reader.error().message);
  if (Status s = reader->Read(shards.all()); !s) Die(s.error().message);
  return reader->bytes_read();
}

void DropCache(const std::string& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::fsync(fd) != 0 || ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
      Die("cannot drop " + entry.path().string() + " from the page cache");
    }
    ::close(fd);
  }
}

}  // namespace trainyard::bench

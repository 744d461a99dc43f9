// How fast a checkpoint gets to disk, against a plain sequential write with fsync of as many bytes on the same disk,
// and how many bytes a rank reads at another world size.
//   checkpoint_bench [--json FILE] [--dir DIRECTORY] [--pairs N] [--mb N]
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard::checkpoint {
namespace {

const Fence kFence{"bench", 1, 0};
constexpr int64_t kHidden = 1024;

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "checkpoint_bench: %s\n", message.c_str());
  std::exit(1);
}

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One rank's rows of a model of `layers` matrices and as many norms, with both moments.
struct Shards {
  std::vector<std::vector<float>> memory;
  std::vector<TensorSlice> model, optim;
  int64_t bytes = 0;

  Shards(int64_t layers, int rank, int world) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer);
      Add(name + ".weight", {4096, kHidden}, rank, world);
      Add(name + ".norm.weight", {kHidden}, rank, world);
    }
  }
  void Add(const std::string& name, const std::vector<int64_t>& shape, int rank, int world) {
    for (const auto& [out, full] : {std::pair(&model, name), std::pair(&optim, "state." + name + ".exp_avg"),
                                    std::pair(&optim, "state." + name + ".exp_avg_sq")}) {
      TensorSlice slice{full, "F32", shape, std::vector<int64_t>(shape.size(), 0), shape, nullptr};
      const int64_t per_rank = (shape[0] + world - 1) / world;
      slice.offset[0] = std::min(shape[0], rank * per_rank);
      slice.shape[0] = std::min(shape[0], slice.offset[0] + per_rank) - slice.offset[0];
      std::vector<float>& data = memory.emplace_back(static_cast<size_t>(*ElementCount(slice.shape)));
      // Numbers without a pattern, so that a disk that compresses gains nothing.
      uint64_t state = 0x9e3779b97f4a7c15u + memory.size();
      for (float& x : data) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x = static_cast<float>(static_cast<int32_t>(state >> 32)) * 1e-9f;
      }
      slice.data = data.data();
      bytes += static_cast<int64_t>(data.size()) * 4;
      out->push_back(std::move(slice));
    }
  }
};

void Save(const std::string& root, int64_t step, const std::vector<Shards>& ranks) {
  std::vector<std::string> reports;
  SaveRequest request;
  request.root = root;
  request.step = step;
  request.fence = kFence;
  request.world = static_cast<int>(ranks.size());
  for (int rank = 0; rank < request.world; ++rank) {
    request.rank = rank;
    request.model = ranks[static_cast<size_t>(rank)].model;
    request.optim = ranks[static_cast<size_t>(rank)].optim;
    Result<RankReport> report = WriteShards(request);
    if (!report) Die(report.error().message);
    reports.push_back(report->manifest);
  }
  request.rank = 0;
  if (Result<CommitInfo> info = Commit(request, "{}", reports); !info) Die(info.error().message);
}

// The baseline: one file, large writes from memory, one fsync.
void PlainWrite(const std::string& path, const std::vector<Shards>& ranks) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) Die("create " + path + ": " + std::strerror(errno));
  for (const Shards& rank : ranks) {
    for (const std::vector<float>& data : rank.memory) {
      const char* at = reinterpret_cast<const char*>(data.data());
      for (size_t left = data.size() * 4; left > 0;) {
        const ssize_t n = ::write(fd, at, std::min<size_t>(left, 8 << 20));
        if (n <= 0) Die("write " + path + ": " + std::strerror(errno));
        at += n;
        left -= static_cast<size_t>(n);
      }
    }
  }
  if (::fsync(fd) != 0 || ::close(fd) != 0) Die("fsync " + path + ": " + std::strerror(errno));
}

bench::Row WriteRate(const std::string& directory, const std::vector<Shards>& ranks, int pairs) {
  double megabytes = 0;
  for (const Shards& rank : ranks) megabytes += static_cast<double>(rank.bytes) / 1e6;
  const std::string root = directory + "/job", plain = directory + "/plain";
  if (Result<TakeOverInfo> taken = TakeOver(root, kFence); !taken) Die(taken.error().message);
  std::vector<double> ours, theirs;
  for (int pair = -1; pair < pairs; ++pair) {  // the first pair warms up
    const auto save = [&] { ours.push_back(megabytes / Seconds([&] { Save(root, pair + 1, ranks); })); };
    const auto write = [&] { theirs.push_back(megabytes / Seconds([&] { PlainWrite(plain, ranks); })); };
    pair % 2 == 0 ? save() : write();
    pair % 2 == 0 ? write() : save();
    std::filesystem::remove_all(root + "/" + StepDirectory(pair + 1));
    std::filesystem::remove(plain);
    ::sync();  // what was removed is not written back during the next pair
  }
  ours.erase(ours.begin());
  theirs.erase(theirs.begin());
  return bench::FromPairs("checkpoint_write_rate", "MB/s", ours, "plain_write_fsync", theirs, "higher", 0.9);
}

// Largest ratio of bytes read to bytes owned over the ranks of another world size.
bench::Row ReshardBytes(const std::string& directory, int64_t layers, int saved, int loaded) {
  const std::string root = directory + "/reshard";
  if (Result<TakeOverInfo> taken = TakeOver(root, kFence); !taken) Die(taken.error().message);
  std::vector<Shards> ranks;
  for (int rank = 0; rank < saved; ++rank) ranks.emplace_back(layers, rank, saved);
  Save(root, 1, ranks);
  ranks.clear();
  bench::Row row;
  for (int rank = 0; rank < loaded; ++rank) {
    Shards shards(layers, rank, loaded);
    std::vector<TensorSlice> wanted = shards.model;
    wanted.insert(wanted.end(), shards.optim.begin(), shards.optim.end());
    Result<Reader> reader = Reader::Open(root + "/" + StepDirectory(1));
    if (!reader) Die(reader.error().message);
    if (Status s = reader->Read(wanted); !s) Die(s.error().message);
    const double ratio = static_cast<double>(reader->bytes_read()) / static_cast<double>(shards.bytes);
    if (ratio <= row.ratio) continue;
    row.ratio = ratio;
    row.value = static_cast<double>(reader->bytes_read()) / 1e6;
    row.baseline_value = static_cast<double>(shards.bytes) / 1e6;
  }
  std::filesystem::remove_all(root);
  row.name = "reshard_bytes_" + std::to_string(saved) + "_to_" + std::to_string(loaded);
  row.unit = "MB";
  row.baseline = "bytes_owned";
  row.better = "lower";
  row.target = 1.02;
  return row;
}

}  // namespace
}  // namespace trainyard::checkpoint

int main(int argc, char** argv) {
  using namespace trainyard;  // NOLINT: a program of one page
  std::string json, directory = ".";
  int pairs = 7;
  int64_t megabytes = 256;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) checkpoint::Die("usage: checkpoint_bench [--json FILE] [--dir DIRECTORY] [--pairs N] [--mb N]");
    if (flag == "--json") {
      json = argv[i + 1];
    } else if (flag == "--dir") {
      directory = argv[i + 1];
    } else if (flag == "--pairs") {
      pairs = std::max(5, std::atoi(argv[i + 1]));
    } else if (flag == "--mb") {
      megabytes = std::max(48, std::atoi(argv[i + 1]));
    } else {
      checkpoint::Die("unknown flag " + flag);
    }
  }
  std::string temporary = directory + "/checkpoint-bench-XXXXXX";
  if (::mkdtemp(temporary.data()) == nullptr) checkpoint::Die("no temporary directory in " + directory);
  const int64_t layers = std::max<int64_t>(1, megabytes * 1'000'000 / (3 * 4 * 4096 * checkpoint::kHidden));
  std::vector<bench::Row> rows;
  {
    std::vector<checkpoint::Shards> one_rank;
    one_rank.emplace_back(layers, 0, 1);
    rows.push_back(checkpoint::WriteRate(temporary, one_rank, pairs));
  }
  // 50 million parameters.
  rows.push_back(checkpoint::ReshardBytes(temporary, 12, 8, 3));
  rows.push_back(checkpoint::ReshardBytes(temporary, 12, 3, 8));
  std::filesystem::remove_all(temporary);
  bench::PrintTable(rows);
  if (!json.empty() && !bench::WriteJson(json, rows)) checkpoint::Die("cannot write " + json);
  return 0;
}

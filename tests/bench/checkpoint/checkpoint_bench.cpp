// What our checkpoints cost, against what the same bytes cost without us on the same disk in the same run: writing
// against one sequential write with fsync, reading at another number of ranks against one sequential read, hashing,
// memory over many saves.
//   checkpoint_bench [--json FILE] [--dir DIRECTORY] [--pairs N] [--mb N]
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/bench/checkpoint/state.h"
#include "tests/bench/report.h"

namespace trainyard::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCallBytes = 8 << 20;

std::string StepPath(const std::string& root, int64_t step) { return root + "/" + checkpoint::StepDirectory(step); }

// The baseline of writing: one file, large writes from memory, one fsync.
void PlainWrite(const std::string& path, const std::vector<Shards>& ranks) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) Die("create " + path + ": " + std::strerror(errno));
  for (const Shards& rank : ranks) {
    for (const std::vector<float>& data : rank.memory) {
      const char* at = reinterpret_cast<const char*>(data.data());
      for (size_t left = data.size() * 4; left > 0;) {
        const ssize_t n = ::write(fd, at, std::min<size_t>(left, kCallBytes));
        if (n <= 0) Die("write " + path + ": " + std::strerror(errno));
        at += n;
        left -= static_cast<size_t>(n);
      }
    }
  }
  if (::fsync(fd) != 0 || ::close(fd) != 0) Die("fsync " + path + ": " + std::strerror(errno));
}

// The baseline of reading: `bytes` of one file into memory that is there already.
void PlainRead(const std::string& path, int64_t bytes, std::vector<char>& memory) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) Die("open " + path + ": " + std::strerror(errno));
  for (int64_t at = 0; at < bytes;) {
    const ssize_t n = ::read(fd, memory.data() + at, static_cast<size_t>(std::min(bytes - at, kCallBytes)));
    if (n <= 0) Die("read " + path + ": " + std::strerror(errno));
    at += n;
  }
  ::close(fd);
}

// Both sides in alternating order, the first pair to warm up.
template <typename One, typename Other>
void Alternate(int pairs, const One& one, const Other& other) {
  for (int pair = -1; pair < pairs; ++pair) {
    const bool counted = pair >= 0;
    pair % 2 == 0 ? one(counted) : other(counted);
    pair % 2 == 0 ? other(counted) : one(counted);
  }
}

Row Write(const std::string& directory, const std::vector<Shards>& ranks, int pairs) {
  const double megabytes = static_cast<double>(ranks[0].bytes) / 1e6;
  const std::string root = directory + "/job", plain = directory + "/plain";
  Own(root);
  std::vector<double> ours, theirs;
  int64_t step = 0;
  Alternate(
      pairs,
      [&](bool counted) {
        const double rate = megabytes / Seconds([&] { Save(root, ++step, ranks); });
        if (counted) ours.push_back(rate);
        fs::remove_all(StepPath(root, step));
        ::sync();  // what was removed is not written back while the other side works
      },
      [&](bool counted) {
        const double rate = megabytes / Seconds([&] { PlainWrite(plain, ranks); });
        if (counted) theirs.push_back(rate);
        fs::remove(plain);
        ::sync();
      });
  return FromPairs("write", "MB/s", ours, "plain_write_fsync", theirs, "higher", 0.9);
}

// Saved by 8 ranks; the largest of 3 reads its part, from the disk or from the page cache.
Row ReadResharded(const std::string& directory, int64_t layers, int pairs, bool cold) {
  const std::string root = directory + "/job", plain = directory + "/plain";
  Own(root);
  std::vector<Shards> ranks;
  for (int rank = 0; rank < 8; ++rank) ranks.emplace_back(layers, rank, 8);
  Save(root, 1, ranks);
  PlainWrite(plain, ranks);
  ranks.clear();
  Shards wanted(layers, 0, 3, /*fill=*/false);
  std::vector<char> memory(static_cast<size_t>(wanted.bytes));
  const double megabytes = static_cast<double>(wanted.bytes) / 1e6;
  std::vector<double> ours, theirs;
  Alternate(
      pairs,
      [&](bool counted) {
        if (cold) DropCache(root);
        const double rate = megabytes / Seconds([&] { Load(StepPath(root, 1), wanted); });
        if (counted) ours.push_back(rate);
      },
      [&](bool counted) {
        if (cold) DropCache(directory);
        const double rate = megabytes / Seconds([&] { PlainRead(plain, wanted.bytes, memory); });
        if (counted) theirs.push_back(rate);
      });
  fs::remove_all(root);
  fs::remove(plain);
  return FromPairs(cold ? "read_resharded" : "read_resharded_cached", "MB/s", ours, "plain_read", theirs, "higher", 0);
}

// Largest ratio of bytes read to bytes owned over the ranks of another number of ranks.
Row BytesRead(const std::string& directory, int64_t layers, int saved, int loaded) {
  const std::string root = directory + "/job";
  Own(root);
  std::vector<Shards> ranks;
  for (int rank = 0; rank < saved; ++rank) ranks.emplace_back(layers, rank, saved);
  Save(root, 1, ranks);
  ranks.clear();
  Row row;
  for (int rank = 0; rank < loaded; ++rank) {
    Shards shards(layers, rank, loaded, /*fill=*/false);
    const auto read = static_cast<double>(Load(StepPath(root, 1), shards));
    const double ratio = read / static_cast<double>(shards.bytes);
    if (ratio <= row.ratio) continue;
    row.ratio = ratio;
    row.value = read / 1e6;
    row.baseline_value = static_cast<double>(shards.bytes) / 1e6;
  }
  fs::remove_all(root);
  row.name = "bytes_read_" + std::to_string(saved) + "_to_" + std::to_string(loaded);
  row.unit = "MB";
  row.baseline = "bytes_owned";
  row.better = "lower";
  row.target = 1.02;
  return row;
}

// Hashing all blocks alone, as a share of a save: what the hashes could cost at most.
Row HashCost(const std::string& directory, const std::vector<Shards>& ranks, int pairs) {
  const std::string root = directory + "/job";
  Own(root);
  std::vector<double> hashing, saving;
  int64_t step = 0;
  uint64_t sum = 0;  // so that no hash is left out as unused
  Alternate(
      pairs,
      [&](bool counted) {
        const double seconds = Seconds([&] {
          for (const Shards& rank : ranks) {
            for (const std::vector<float>& data : rank.memory) {
              const auto bytes = static_cast<int64_t>(data.size()) * 4, block = checkpoint::BlockBytes(bytes);
              for (int64_t at = 0; at < bytes; at += block) {
                sum += XXH3_64bits(reinterpret_cast<const char*>(data.data()) + at,
                                   static_cast<size_t>(std::min(block, bytes - at)));
              }
            }
          }
        });
        if (counted) hashing.push_back(seconds);
      },
      [&](bool counted) {
        const double seconds = Seconds([&] { Save(root, ++step, ranks); });
        if (counted) saving.push_back(seconds);
        fs::remove_all(StepPath(root, step));
        ::sync();
      });
  if (sum == 0) Die("the hashes add up to zero");
  return FromPairs("hash_cost", "s", hashing, "whole_save", saving, "lower", 0);
}

double ResidentMegabytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  if (!(statm >> pages >> resident)) Die("cannot read /proc/self/statm");
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

// Resident memory after 50 saves against that after 5.
Row Rss50Saves(const std::string& directory) {
  const std::string root = directory + "/job";
  Own(root);
  std::vector<Shards> ranks;
  ranks.emplace_back(LayersFor(50), 0, 1);
  Row row;
  for (int64_t step = 1; step <= 50; ++step) {
    Save(root, step, ranks);
    fs::remove_all(StepPath(root, step));
    if (step == 5) row.baseline_value = ResidentMegabytes();
  }
  row.value = ResidentMegabytes();
  row.ratio = row.value / row.baseline_value;
  row.name = "rss_50_saves", row.unit = "MB", row.baseline = "rss_5_saves", row.better = "lower", row.target = 1.02;
  fs::remove_all(root);
  return row;
}

std::vector<Row> Run(const std::string& directory, int64_t megabytes, int pairs) {
  std::vector<Row> rows;
  {
    std::vector<Shards> one_rank;
    one_rank.emplace_back(LayersFor(megabytes), 0, 1);
    rows.push_back(Write(directory, one_rank, pairs));
    rows.push_back(HashCost(directory, one_rank, pairs));
    fs::remove_all(directory + "/job");
  }
  constexpr int64_t kLayers = 12;  // 50 million parameters
  rows.push_back(ReadResharded(directory, kLayers, pairs, /*cold=*/true));
  rows.push_back(ReadResharded(directory, kLayers, pairs, /*cold=*/false));
  rows.push_back(BytesRead(directory, kLayers, 8, 3));
  rows.push_back(BytesRead(directory, kLayers, 3, 8));
  rows.push_back(Rss50Saves(directory));
  return rows;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard;  // NOLINT: a program of one page
  std::string json, directory = ".";
  int pairs = 7;
  int64_t megabytes = 256;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) bench::Die("usage: checkpoint_bench [--json FILE] [--dir DIRECTORY] [--pairs N] [--mb N]");
    if (flag == "--json") {
      json = argv[i + 1];
    } else if (flag == "--dir") {
      directory = argv[i + 1];
    } else if (flag == "--pairs") {
      pairs = std::max(5, std::atoi(argv[i + 1]));
    } else if (flag == "--mb") {
      megabytes = std::max(51, std::atoi(argv[i + 1]));
    } else {
      bench::Die("unknown flag " + flag);
    }
  }
  std::string temporary = directory + "/checkpoint-bench-XXXXXX";
  if (::mkdtemp(temporary.data()) == nullptr) bench::Die("no temporary directory in " + directory);
  const std::vector<bench::Row> rows = bench::Run(temporary, megabytes, pairs);
  std::filesystem::remove_all(temporary);
  bench::PrintTable(rows);
  if (!json.empty() && !bench::WriteJson(json, rows)) bench::Die("cannot write " + json);
  return 0;
}

// What it takes to start from a published model: a rank's rows of a BF16 directory into fp32 shards, against a plain
// read of the same bytes, both from a disk that has forgotten them; and the memory that a rank needs besides its shard.
// --help says how it is called.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tests/bench/report.h"
#include "trainer/checkpoint/foreign_model.h"
#include "trainer/checkpoint/huggingface.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;
using checkpoint::ModelDescription;
using checkpoint::TensorInfo;

constexpr int64_t kPiece = 4 << 20;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "import_bench: %s\n", why.c_str());
  std::exit(1);
}

// A Qwen2 of about so many megabytes in BF16.
ModelDescription Model(int64_t megabytes) {
  ModelDescription m;
  m.family = checkpoint::ModelFamily::kQwen2;
  m.hidden = 1024, m.heads = 16, m.kv_heads = 4, m.ffn = 2816, m.vocab = 32000, m.max_positions = 4096;
  m.qkv_bias = true;
  m.layers = std::max<int64_t>(1, (megabytes - 131) / 23);
  return m;
}

std::string WriteSource(const std::string& directory, const ModelDescription& model) {
  std::vector<checkpoint::SafetensorsTensor> list;
  for (const TensorInfo& t : checkpoint::TensorsOf(model)) list.push_back({t.name, "BF16", t.global_shape, {}});
  const std::string path = directory + "/model.safetensors";
  auto writer = checkpoint::SafetensorsWriter::Create(path, list, false, checkpoint::PosixFileSystem());
  if (!writer) Die(writer.error().message);
  std::vector<uint16_t> block(kPiece / 2);
  uint32_t state = 1;
  for (uint16_t& value : block) value = static_cast<uint16_t>((state = state * 1664525 + 1013904223) >> 16 & 0xbf7f);
  for (const auto& t : list) {
    for (int64_t left = *checkpoint::ElementCount(t.shape) * 2; left > 0; left -= std::min(left, kPiece)) {
      if (auto s = writer->Append(block.data(), std::min(left, kPiece)); !s) Die(s.error().message);
    }
  }
  if (auto s = writer->Finish(); !s) Die(s.error().message);
  return path;
}

void Forget(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) Die(path + " cannot be forgotten");
  close(fd);
}

double PlainRead(const std::string& path) {
  std::vector<char> buffer(kPiece, 0);
  const auto begin = Clock::now();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) Die(path + " cannot be opened");
  ssize_t got = 0;
  while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
  }
  close(fd);
  if (got < 0) Die(path + " cannot be read");
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Rows of a rank: [r*ceil(R/W), min(R, (r+1)*ceil(R/W))).
struct Shard {
  std::vector<checkpoint::TensorSlice> slices;
  std::vector<std::vector<float>> values;
  int64_t bytes = 0;
};
Shard ShardOf(const ModelDescription& model, int rank, int world) {
  Shard shard;
  for (const TensorInfo& t : checkpoint::TensorsOf(model)) {
    const int64_t each = (t.global_shape[0] + world - 1) / world, lo = std::min(t.global_shape[0], rank * each);
    std::vector<int64_t> offset(t.global_shape.size(), 0), shape = t.global_shape;
    offset[0] = lo, shape[0] = std::min(t.global_shape[0], lo + each) - lo;
    if (shape[0] == 0) continue;
    shard.values.emplace_back(static_cast<size_t>(*checkpoint::ElementCount(shape)), 1.0f);  // there already
    shard.bytes += static_cast<int64_t>(shard.values.back().size()) * 4;
    shard.slices.push_back({t.name, "F32", t.global_shape, offset, shape, shard.values.back().data()});
  }
  return shard;
}

double Import(const std::string& directory, const ModelDescription& model, const Shard& shard) {
  const auto begin = Clock::now();
  auto source = checkpoint::ForeignModel::Open(directory, model);
  if (!source) Die(source.error().message);
  if (auto s = source->Read(shard.slices); !s) Die(s.error().message);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

int Main(int argc, char** argv) {
  std::string json, place = "/var/tmp";
  int pairs = 7;
  int64_t megabytes = 800;
  CLI::App app("How fast and in how much memory a rank reads its rows of a Hugging Face directory", "import_bench");
  app.add_option("--json", json, "File to put the rows in, beside those that others wrote");
  app.add_option("--pairs", pairs, "Imports and plain reads, in turns")->check(CLI::Range(5, 1000));
  app.add_option("--directory", place, "Where the weights are written and read: the disk that is measured");
  app.add_option("--megabytes", megabytes, "Of weights in BF16")->check(CLI::Range(200, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  std::string directory = place + "/trainyard-import-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) Die("no directory can be made in " + place);
  const ModelDescription model = Model(megabytes);
  const std::string path = WriteSource(directory, model);
  const double size = static_cast<double>(std::filesystem::file_size(path)) / 1e6;
  std::vector<bench::Row> rows;
  {
    const Shard whole = ShardOf(model, 0, 1);
    std::vector<double> imported, plain;
    for (int i = 0; i < pairs; ++i) {
      Forget(path);
      imported.push_back(size / Import(directory, model, whole));
      Forget(path);
      plain.push_back(size / PlainRead(path));
    }
    rows.push_back(bench::FromPairs("import_cold", "MB/s", imported, "plain_read", plain, "higher", 0.9));
  }
  std::vector<double> held, own;
  for (int rank = 0; rank < 3; ++rank) {
    const Shard shard = ShardOf(model, rank, 3);
    std::ofstream("/proc/self/clear_refs") << "5";
    const int64_t before = PeakBytes();
    Import(directory, model, shard);
    own.push_back(static_cast<double>(shard.bytes) / 1e6);
    held.push_back(own.back() + static_cast<double>(PeakBytes() - before) / 1e6);
  }
  rows.push_back(bench::FromPairs("import_memory_of_3_ranks", "MB", held, "shard", own, "lower", 1.1));
  std::filesystem::remove_all(directory);
  std::printf("%.0f MB in BF16, %d pairs, %s\n", size, pairs, place.c_str());
  bench::PrintTable(rows);
  return json.empty() || bench::WriteJson(json, rows, /*keep_others=*/true) ? 0 : 1;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }

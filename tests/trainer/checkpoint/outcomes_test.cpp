// The table of outcomes in docs/checkpoint-format.md, row by row: what happens to a directory with the checkpoints of
// steps 100 and 200 while step 300 is being saved, which checkpoint the next attempt loads, and what is said.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/faulty_file_system.h"
#include "tests/trainer/checkpoint/forwarding_file_system.h"
#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest_file.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;

const Fence kFirst{"uid", 1, 0}, kSecond{"uid", 2, 0}, kOther{"another", 1, 0};
constexpr int kWorld = 2;

// A row of the table.
struct Row {
  std::string happens, loaded, said;
};

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" `"), end = text.find_last_not_of(" `");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<Row> Table() {
  std::ifstream in(TRAINYARD_SOURCE_DIR "/docs/checkpoint-format.md");
  std::vector<Row> rows;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("| what happens |")) inside = true;
    if (inside && !line.starts_with("|")) break;
    if (!inside || line.starts_with("| what happens |") || line.starts_with("| --- |")) continue;
    std::vector<std::string> cells;
    std::istringstream cut(line.substr(1));
    for (std::string cell; std::getline(cut, cell, '|');) cells.push_back(Trim(cell));
    rows.push_back({cells.at(0), cells.at(1), cells.at(2)});
  }
  return rows;
}

// Dies, as a process does, right before or right after the rename that commits.
class DiesAtTheCommit : public ForwardingFileSystem {
 public:
  explicit DiesAtTheCommit(bool after) : after_(after) {}
  Status Rename(const std::string& a, const std::string& b) override {
    if (!after_) throw ProcessDied();
    static_cast<void>(ForwardingFileSystem::Rename(a, b));
    throw ProcessDied();
  }

 private:
  const bool after_;
};

class Outcomes : public testing::Test {
 protected:
  void Begin() {
    temp_ = std::make_unique<TempDirectory>(Storage::kMemory);
    root_ = temp_->path() + "/job";
    ASSERT_TRUE(TakeOver(root_, kFirst));
    for (const int64_t step : {100, 200}) ASSERT_TRUE(SaveSample(root_, step, kFirst, kWorld));
    said_.clear();
  }
  std::string Step(int64_t step) const { return root_ + "/" + StepDirectory(step); }
  std::string Shard(int64_t step, int rank) const { return Step(step) + "/" + ShardPath(kModelGroup, rank); }

  void Save(FileSystem& files, const Fence& fence = kFirst) {
    try {
      if (const auto info = SaveSample(root_, 300, fence, kWorld, SmallModel(), files); !info) {
        said_ += info.error().message + "\n";
      }
    } catch (const ProcessDied&) {
    }
  }
  void SaveWith(Fault fault, int64_t k) {
    FaultyFileSystem files(fault, k);
    Save(files);
    if (fault == Fault::kPowerLoss) files.LosePower();
    EXPECT_TRUE(files.fired());
  }
  static void Flip(const std::string& path, int64_t from_end) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-from_end, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(-from_end, std::ios::end);
    file.put(byte);
    ASSERT_TRUE(file.good());
  }
  void ChangeManifest(int64_t step, const std::function<void(Manifest&)>& change) {
    int64_t read = 0;
    Result<Manifest> manifest = LoadManifest(Step(step), PosixFileSystem(), read);
    ASSERT_TRUE(manifest);
    change(*manifest);
    std::ofstream(Step(step) + "/manifest.json") << EncodeManifest(*manifest);
  }
  static void CopyOver(const std::string& from, const std::string& to) {
    for (const auto& name : {std::pair(from, to), std::pair(HashPath(from), HashPath(to))}) {
      fs::copy_file(name.first, name.second, fs::copy_options::overwrite_existing);
    }
  }

  // As a job resumes: the newest valid one, the next older one where reading finds damage.
  std::string Loaded() {
    for (int64_t below = std::numeric_limits<int64_t>::max();;) {
      const Result<CheckpointInfo> info = NewestValid(root_, below);
      if (!info) {
        said_ += info.error().message + "\n";
        return "none";
      }
      for (const std::string& line : info->skipped) said_ += line + "\n";
      const std::string problem = LoadSample(info->path, info->step, 3);
      if (problem.empty()) return std::to_string(info->step);
      said_ += problem + "\n";
      below = info->step;
    }
  }
  // What a person is told who verifies all that are there.
  void VerifyAll() {
    const auto list = List(root_, Check::kEverything);
    if (!list) return;
    for (const CheckpointInfo& info : *list) said_ += info.problem + "\n";
  }

  std::map<std::string, std::function<void()>> Cases();

  std::unique_ptr<TempDirectory> temp_;
  std::string root_;
  std::string said_;
};

std::map<std::string, std::function<void()>> Outcomes::Cases() {
  return {
      {"the process is killed while it writes", [this] { SaveWith(Fault::kDeath, 12); }},
      {"it is killed right before the commit",
       [this] {
         DiesAtTheCommit files(/*after=*/false);
         Save(files);
       }},
      {"it is killed right after the commit",
       [this] {
         DiesAtTheCommit files(/*after=*/true);
         Save(files);
       }},
      {"the machine loses power while it writes", [this] { SaveWith(Fault::kPowerLoss, 30); }},
      {"the disk is full", [this] { SaveWith(Fault::kNoSpace, 12); }},
      {"a write fails", [this] { SaveWith(Fault::kIoErrorOnce, 12); }},
      {"the mount vanishes",
       [this] {
         fs::rename(root_, root_ + "-elsewhere");
         Save(PosixFileSystem());
         fs::rename(root_ + "-elsewhere", root_);
       }},
      {"a newer attempt takes over while an older one saves",
       [this] {
         ASSERT_TRUE(TakeOver(root_, kSecond));
         Save(PosixFileSystem());
       }},
      {"another job takes over while this one saves",
       [this] {
         ASSERT_TRUE(TakeOver(root_, kOther));
         Save(PosixFileSystem());
       }},
      {"a bit of the tensors flips", [this] { Flip(Shard(200, 1), 1); }},
      {"a bit of a shard's header flips",
       [this] { Flip(Shard(200, 1), static_cast<int64_t>(fs::file_size(Shard(200, 1))) - 20); }},
      {"a bit of a hash file flips", [this] { Flip(HashPath(Shard(200, 1)), 1); }},
      {"a bit of manifest.json flips", [this] { Flip(Step(200) + "/manifest.json", 40); }},
      {"a bit of train_state.json flips", [this] { Flip(Step(200) + "/train_state.json", 2); }},
      {"a shard is cut", [this] { fs::resize_file(Shard(200, 1), 5000); }},
      {"a shard is gone", [this] { fs::remove(Shard(200, 1)); }},
      {"a shard is that of another step", [this] { CopyOver(Shard(100, 1), Shard(200, 1)); }},
      {"a shard is that of another rank", [this] { CopyOver(Shard(200, 0), Shard(200, 1)); }},
      {"there is a shard too many", [this] { CopyOver(Shard(200, 1), Shard(200, 6)); }},
      {"manifest.json is gone", [this] { fs::remove(Step(200) + "/manifest.json"); }},
      {"manifest.json is 1 MB of brackets",
       [this] { std::ofstream(Step(200) + "/manifest.json") << "{\"a\":" << std::string(1 << 20, '['); }},
      {"manifest.json is 100 MB of brackets",
       [this] { std::ofstream(Step(200) + "/manifest.json") << "{\"a\":" << std::string(100 << 20, '['); }},
      {"manifest.json names a file outside",
       [this] { ChangeManifest(200, [](Manifest& m) { m.files[0].path = "../../../../etc/passwd"; }); }},
      {"the directory is that of another step", [this] { fs::rename(Step(200), Step(250)); }},
      {"the directory is a symbolic link",
       [this] {
         fs::rename(Step(200), temp_->path() + "/kept");
         fs::create_directory_symlink(temp_->path() + "/kept", Step(200));
       }},
      {"the directory is a pipe",
       [this] {
         fs::remove_all(Step(200));
         ASSERT_EQ(mkfifo(Step(200).c_str(), 0600), 0);
       }},
      {"the directory is full of junk",
       [this] {
         std::ofstream(root_ + "/notes.txt") << "x";
         std::ofstream(root_ + "/step-300") << "x";
         fs::create_directory(root_ + "/step-00000300.tmp");
         fs::create_directory(root_ + "/step-0000000x");
         fs::create_directory(root_ + "/lost+found");
         fs::create_symlink("nowhere", root_ + "/latest");
         ASSERT_EQ(mkfifo((root_ + "/pipe").c_str(), 0600), 0);
         for (int i = 0; i < 200; ++i) std::ofstream(root_ + "/.nfs" + std::to_string(i)) << "";
         ASSERT_TRUE(TakeOver(root_, kSecond)) << "nor does it stand in the way of the next attempt";
         ASSERT_TRUE(SaveSample(root_, 200, kSecond, kWorld));
       }},
      {"the clock jumps by a century",
       [this] {
         ChangeManifest(100, [](Manifest& m) { m.created_ms += int64_t{100} * 365 * 86'400'000; });
         for (const auto& entry : fs::recursive_directory_iterator(Step(100))) {
           fs::last_write_time(entry, fs::file_time_type::clock::now() + std::chrono::hours(24 * 365 * 100));
         }
       }},
      {"all are damaged",
       [this] {
         fs::remove(Shard(200, 0));
         fs::remove(Shard(100, 1));
       }},
  };
}

TEST_F(Outcomes, AreThoseOfTheTable) {
  const std::vector<Row> table = Table();
  const auto cases = Cases();
  std::vector<std::string> rows, tested;
  for (const Row& row : table) rows.push_back(row.happens);
  for (const auto& [name, inflict] : cases) tested.push_back(name);
  ASSERT_THAT(rows, testing::UnorderedElementsAreArray(tested));
  for (const Row& row : table) {
    SCOPED_TRACE(row.happens);
    Begin();
    cases.at(row.happens)();
    const std::string loaded = Loaded();
    EXPECT_EQ(loaded, row.loaded) << said_;
    VerifyAll();
    if (row.said == "nothing") {
      EXPECT_EQ(said_.find_first_not_of('\n'), std::string::npos) << said_;
    } else {
      EXPECT_THAT(said_, testing::HasSubstr(row.said));
    }
    // Nothing valid is lost by what the next attempt does, and it can go on.
    const Fence next{"next", 1, 0};
    const auto taken = TakeOver(root_, next);
    ASSERT_TRUE(taken) << taken.error().message;
    if (loaded == "none") continue;
    EXPECT_EQ(LoadSample(Step(std::stoll(loaded)), std::stoll(loaded), 1), "");
    ASSERT_TRUE(AbandonLater(root_, std::stoll(loaded), 2));
    const auto saved = SaveSample(root_, 400, next, kWorld);
    ASSERT_TRUE(saved) << saved.error().message;
    ASSERT_TRUE(Prune(root_, Keep{.last = 1}));
    EXPECT_EQ(LoadSample(Step(400), 400, 1), "");
  }
}

}  // namespace
}  // namespace trainyard::checkpoint

// Reads checkpoints back beside training and checks every hash, past the page cache: the newest after each save, all
// that are kept on a schedule. What is bad is named and left where it is. Runs on rank 0, at the lowest priority.
// Thread-safety: the functions are called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::loop {

class Verifier {
 public:
  // What the last look at a checkpoint gave.
  struct Finding {
    int64_t step = 0;
    bool good = false;
    double seconds = 0;   // that it took
    std::string problem;  // when it is not good: file, tensor, rank
  };

  // All checkpoints in `root` every so many hours; 0: only what Look asks for.
  Verifier(std::string root, double every_hours, checkpoint::FileSystem& fs);
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // Looks at the checkpoint of `step` next; what was asked for before and has not begun is passed over.
  void Look(int64_t step);
  // Returns when what was asked for has been looked at.
  void Finish();
  // Of the checkpoint of `step`, if it has been looked at.
  std::optional<Finding> Found(int64_t step) const;
  // What is wrong with the newest that is bad and still there: "step 200: " and file, tensor, rank. Empty: none is
  // known.
  std::string Damage() const;
  // What is not among these has gone.
  void KeepOnly(const std::vector<checkpoint::CheckpointInfo>& there);
  // Steps whose checkpoints are there and known to be bad, ascending.
  std::vector<int64_t> Bad() const;

 private:
  void Run();
  void LookAt(int64_t step);
  void LookAtAll();

  const std::string root_;
  const std::chrono::duration<double> every_;
  checkpoint::FileSystem& fs_;
  std::atomic<bool> stopping_{false};

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::optional<int64_t> asked_;
  bool looking_ = false;
  std::map<int64_t, Finding> found_;
  std::thread thread_;
};

}  // namespace trainyard::loop

// How far a running job is, asked over HTTP of the launcher in node rank 0's pod. Nobody waits for a pod: Read() tells
// what is known and has a few threads ask again, and the listener hears when an answer matters.
// Thread-safety: all members from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "operator/base/backoff.h"
#include "operator/base/clock.h"
#include "operator/cluster/progress.h"
#include "operator/http/transport.h"

namespace trainyard::kube {

struct PodProgressOptions {
  int threads = 4;
  Milliseconds timeout{2'000};                                    // of one question
  Milliseconds refresh_interval{10'000};                          // a pod that has answered is asked at most so often
  Backoff first_answer{Milliseconds(250), Milliseconds(30'000)};  // between questions until the first answer
  Milliseconds stale_after{60'000};    // an answer older than this gives way to the error of the last question
  Milliseconds forget_after{600'000};  // a pod that nobody reads
  size_t max_pods = 20'000;            // beyond it the one unread for longest is forgotten
  int port = 0;                        // of the launcher; 0: the contract's
};

class PodProgress : public cluster::ProgressSource {
 public:
  // `transport` sends the questions. A pod runs its user's program, so that the one for strangers is the right one.
  explicit PodProgress(PodProgressOptions options = {},
                       std::unique_ptr<http::Transport> transport = http::NewPlainTransport());
  ~PodProgress() override;

  // The newest answer of this pod, at once. kNotFound: none has come yet; others: it no longer answers.
  Result<nlohmann::json> Read(const api::PodSnapshot& rank0_pod) override;
  // Called from a thread of ours, with no lock held, on a pod's first answer and when its phase has changed.
  void SetListener(std::function<void(const std::string& job_uid)> listener) override;
  // Ends the threads. Read() goes on telling what was known.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::kube

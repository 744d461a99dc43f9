// The door to c10d: no other file includes its headers.
#include "trainer/dist/gloo_group.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trainer/dist/peer_names.h"

namespace trainyard::dist {
namespace {

using std::chrono::milliseconds;

milliseconds Left(SteadyTime deadline) {
  // Gloo takes zero for "for ever".
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()));
}

// Gives access to the contexts, which the base class keeps to itself.
class ClosableGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void CloseConnections() {
    for (const auto& context : contexts_) {
      context->closeConnections();
    }
  }
};

class Group final : public GlooGroup {
 public:
  Group(c10::intrusive_ptr<c10d::Store> store, std::string bind_host, int rank, int size, milliseconds timeout)
      : store_(std::move(store)), bind_host_(std::move(bind_host)) {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(bind_host_));
    options->threads = 1;  // they serve collectives, of which there are none
    gloo_ = c10::make_intrusive<ClosableGloo>(store_, rank, size, options);
  }

  std::unique_ptr<GlooMessage> Send(const at::Tensor& t, int to, uint32_t tag) override {
    std::lock_guard lock(mutex_);
    CheckOpen();
    std::vector<at::Tensor> tensors{t};
    return std::make_unique<Message>(*this, gloo_->send(tensors, to, static_cast<int>(tag)));
  }
  std::unique_ptr<GlooMessage> Recv(const at::Tensor& t, int from, uint32_t tag) override {
    std::lock_guard lock(mutex_);
    CheckOpen();
    std::vector<at::Tensor> tensors{t};
    return std::make_unique<Message>(*this, gloo_->recv(tensors, from, static_cast<int>(tag)));
  }

  const std::string& host() const override { return bind_host_; }

  void Close() override {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      closed_ = true;
      gloo_->CloseConnections();
      for (c10d::Work* work : under_way_) {
        work->abort();
      }
    }
  }

  std::unique_ptr<GlooGroup> Subgroup(const std::string& prefix, int rank, int size, milliseconds timeout) override {
    return std::make_unique<Group>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_), bind_host_, rank, size,
                                   timeout);
  }

 private:
  class Message final : public GlooMessage {
   public:
    // With the group's mutex held.
    Message(Group& group, c10::intrusive_ptr<c10d::Work> work) : group_(group), work_(std::move(work)) {
      group_.under_way_.insert(work_.get());
    }
    ~Message() override {
      std::lock_guard lock(group_.mutex_);
      group_.under_way_.erase(work_.get());
    }
    void Wait(SteadyTime deadline) override {
      if (!work_->wait(Left(deadline))) {
        throw std::runtime_error("the group was closed");
      }
    }

   private:
    Group& group_;
    const c10::intrusive_ptr<c10d::Work> work_;
  };

  void CheckOpen() const {
    if (closed_) {
      throw std::runtime_error("the group was closed");
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string bind_host_;
  c10::intrusive_ptr<ClosableGloo> gloo_;
  std::mutex mutex_;  // guards calls into gloo_ that start or close, and everything below
  std::set<c10d::Work*> under_way_;
  bool closed_ = false;
};

// The first line of a c10d error without its C++ stack.
std::string Plain(const std::exception& e) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&e);
  std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : e.what();
  return text.substr(0, text.find('\n'));
}

std::string Join(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < 16; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return ranks.size() > 16 ? text + " and " + std::to_string(ranks.size() - 16) + " more" : text;
}

// c10d logs each obstacle with a C++ stack, and looks up names to do so; our errors say the same in one line. Its log
// is back where the user asks for it.
void QuietC10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = c10::GLOG_ERROR;
  }
}

// Gloo writes to a peer that has just gone as if there were no SIGPIPE, which would end this process without a word.
void IgnoreBrokenPipes() {
  struct sigaction now{};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

// Ranks that have not left their mark. Error: the store is gone.
Result<std::vector<int>> Missing(c10d::Store& store, const std::vector<std::string>& marks) {
  std::vector<int> missing;
  try {
    for (size_t r = 0; r < marks.size(); ++r) {
      if (!store.check({marks[r]})) {
        missing.push_back(static_cast<int>(r));
      }
    }
  } catch (const std::exception& e) {
    return Fail(ErrorCode::kUnavailable, Plain(e));
  }
  return missing;
}

// Every rank leaves its mark and waits for the others', so that an absent rank can be named.
Status Meet(c10d::Store& store, const Rendezvous& to, SteadyTime deadline) {
  std::vector<std::string> marks;
  for (int r = 0; r < to.world; ++r) {
    marks.push_back("rank/" + std::to_string(r));
  }
  if (store.add("claims/" + std::to_string(to.rank), 1) > 1) {
    return Fail(ErrorCode::kInvalidArgument, "two processes claim rank " + std::to_string(to.rank) +
                                                 " of this round; RANK must differ between processes");
  }
  store.set(marks[to.rank], "here");
  for (;;) {
    try {
      store.wait(marks, std::min(Left(deadline), to.say_every));
      return {};
    } catch (const std::exception& late) {
      Result<std::vector<int>> missing = Missing(store, marks);
      if (!missing) {
        return Fail(ErrorCode::kUnavailable,
                    "rendezvous: rank 0 left before all ranks had come (" + Plain(late) + "); see what it said");
      }
      const bool over = std::chrono::steady_clock::now() >= deadline;
      if (over && missing->empty()) {
        throw;
      }
      if (over) {
        return Fail(ErrorCode::kDeadlineExceeded, "rendezvous: rank " + Join(*missing) + " did not come within " +
                                                      std::to_string(to.timeout.count()) +
                                                      " ms; look at the logs of those ranks");
      }
      if (to.say && !missing->empty()) {
        to.say("waiting for rank " + Join(*missing) + " of " + std::to_string(to.world));
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<GlooGroup>> FormGlooGroup(const Rendezvous& to) {
  QuietC10d();
  IgnoreBrokenPipes();
  // Links it. Without it the ranks would meet as well, only late where a name server does not answer.
  static_cast<void>(PeersAreNamedByAddress());
  const SteadyTime deadline = std::chrono::steady_clock::now() + to.timeout;
  const std::string where = to.host + ":" + std::to_string(to.port);
  const bool ipv6 = to.bind_host.find(':') != std::string::npos || to.host.find(':') != std::string::npos;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(to.port);
  options.isServer = to.rank == 0;
  options.waitWorkers = false;
  options.useLibUV = false;  // its server looks up names in any case, see below
  options.numWorkers = to.world;
  if (to.rank == 0) {
    // Not one socket for both families: c10d names every peer that connects, on the thread that serves all of them (see
    // peer_names.h), and 127.0.0.1 seen through IPv6 is in no hosts file.
    Result<int> fd = BindPort(to.port, ipv6);
    if (!fd) {
      return Fail(fd.error());
    }
    options.masterListenFd = *fd;
  }
  try {
    c10::intrusive_ptr<c10d::Store> tcp;
    std::string bind_host = to.bind_host;
    options.timeout = Left(deadline);
    if (to.rank == 0) {
      // Its own name may not resolve yet.
      tcp = c10::make_intrusive<c10d::TCPStore>(ipv6 ? "::1" : "127.0.0.1", options);
    }
    if (to.rank != 0 || bind_host.empty()) {
      Result<std::string> local = Reach(to.host, to.port, deadline, to.say, to.say_every);
      if (!local) {
        return Fail(local.error());
      }
      bind_host = bind_host.empty() ? *local : bind_host;
      options.timeout = Left(deadline);
    }
    if (to.rank != 0) {
      tcp = c10::make_intrusive<c10d::TCPStore>(to.host, options);
    }
    auto store = c10::make_intrusive<c10d::PrefixStore>(to.prefix, tcp);
    if (Status met = Meet(*store, to, deadline); !met) {
      return Fail(met.error());
    }
    return std::make_unique<Group>(store, bind_host, to.rank, to.world, Left(deadline));
  } catch (const std::exception& e) {
    const bool late = std::chrono::steady_clock::now() >= deadline;
    return Fail(late ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                "rendezvous at " + where + " failed on rank " + std::to_string(to.rank) + ": " + Plain(e));
  }
}

}  // namespace trainyard::dist

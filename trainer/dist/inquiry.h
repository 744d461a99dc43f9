// Questions between ranks past all collectives: one short TCP exchange of two lines of text per question, made only
// when something is wrong. A stopped process answers nobody, though its kernel still takes the connection; a process
// that has ended refuses it: so an asker can tell the two apart. Thread-safety: Ask and Tell may be called from any
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::dist {

// Where a rank is to be asked. `key` is a secret of the job's ranks: a message without it is not read.
struct Desk {
  std::string host;  // digits
  int port = 0;
  std::string key;
};

struct Answer {
  enum class Kind {
    kText,    // it answered
    kGone,    // nobody listens there any more: the process has ended
    kSilent,  // no answer in time: stopped, hung in the kernel, or the machine cannot be reached
  };
  Kind kind = Kind::kSilent;
  std::string text;
};

// The desk of this process: a listening socket and a thread that answers.
class InquiryServer {
 public:
  // `answer` is called on the server's thread, one question at a time, and must not block. The desk's host is left to
  // the caller. Error: kUnavailable.
  static Result<std::unique_ptr<InquiryServer>> Start(bool ipv6, std::string key,
                                                      std::function<std::string(const std::string&)> answer);
  ~InquiryServer();
  InquiryServer(const InquiryServer&) = delete;
  InquiryServer& operator=(const InquiryServer&) = delete;

  int port() const { return port_; }

 private:
  InquiryServer(int listen_fd, int wake_fd, int port, std::string key,
                std::function<std::string(const std::string&)> answer);
  void Serve();
  void ServeOne(int fd);

  const int listen_fd_, wake_fd_, port_;
  const std::string key_;
  const std::function<std::string(const std::string&)> answer_;
  std::thread thread_;
};

// Asks all desks the same question at once; index = desk. Returns when all have answered or `timeout` has passed.
std::vector<Answer> Ask(const std::vector<Desk>& desks, const std::string& question, std::chrono::milliseconds timeout);
// Tells all desks something and waits for no answer, only until their kernels have it or `timeout` has passed.
void Tell(const std::vector<Desk>& desks, const std::string& message, std::chrono::milliseconds timeout);

}  // namespace trainyard::dist

#include "trainer/dist/inquiry.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace trainyard::dist {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kLongest = 8192;  // of a question or an answer
// A connected asker sends its question at once; one that does not keeps the others waiting.
constexpr milliseconds kPatience{200};
constexpr size_t kAtOnce = 128;  // connections of one Ask: their descriptors shall not be many

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
};

Endpoint At(const std::string& host, int port) {
  Endpoint to;
  auto* four = reinterpret_cast<sockaddr_in*>(&to.address);
  auto* six = reinterpret_cast<sockaddr_in6*>(&to.address);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    to.length = sizeof *four;
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    to.length = sizeof *six;
  }
  return to;
}

// One question under way: connects, sends, and unless nobody wants the answer reads until the other side closes.
class Conversation {
 public:
  Conversation(const Desk& desk, std::string text, bool listen) : text_(std::move(text)), listen_(listen) {
    const Endpoint to = At(desk.host, desk.port);
    fd_ = to.length == 0 ? -1 : socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ >= 0 && connect(fd_, reinterpret_cast<const sockaddr*>(&to.address), to.length) != 0 &&
        errno != EINPROGRESS) {
      Finish(errno == ECONNREFUSED ? Answer::Kind::kGone : Answer::Kind::kSilent);
    }
  }
  ~Conversation() { Finish(Answer::Kind::kSilent); }
  Conversation(const Conversation&) = delete;
  Conversation(Conversation&& other) noexcept
      : text_(std::move(other.text_)),
        listen_(other.listen_),
        fd_(std::exchange(other.fd_, -1)),
        sent_(other.sent_),
        answer_(std::move(other.answer_)) {}

  bool open() const { return fd_ >= 0; }
  pollfd Wanted() const { return {fd_, static_cast<short>(sent_ < text_.size() ? POLLOUT : POLLIN), 0}; }
  const Answer& answer() const { return answer_; }

  void Advance() { sent_ < text_.size() ? Send() : Read(); }

 private:
  void Finish(Answer::Kind kind) {
    if (fd_ < 0) return;
    answer_.kind = kind;
    close(std::exchange(fd_, -1));
  }
  void Send() {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Finish(error == ECONNREFUSED ? Answer::Kind::kGone : Answer::Kind::kSilent);
    const ssize_t n = send(fd_, text_.data() + sent_, text_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN ? void() : Finish(Answer::Kind::kGone);
    sent_ += static_cast<size_t>(n);
    if (sent_ == text_.size() && !listen_) Finish(Answer::Kind::kText);
  }
  void Read() {
    char buffer[1024];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0) return errno == EAGAIN ? void() : Finish(Answer::Kind::kGone);
    if (n == 0) return Finish(answer_.text.empty() ? Answer::Kind::kGone : Answer::Kind::kText);
    answer_.text.append(buffer, static_cast<size_t>(n));
    if (answer_.text.size() > kLongest) Finish(Answer::Kind::kText);
  }

  std::string text_;
  bool listen_;
  int fd_ = -1;
  size_t sent_ = 0;
  Answer answer_;
};

std::vector<Answer> Converse(const std::vector<Desk>& desks, const std::string& text, bool listen,
                             milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::vector<Answer> answers;
  for (size_t first = 0; first < desks.size(); first += kAtOnce) {
    std::vector<Conversation> all;
    for (size_t i = first; i < std::min(desks.size(), first + kAtOnce); ++i) {
      all.emplace_back(desks[i], desks[i].key + "\n" + text + "\n", listen);
    }
    for (;;) {
      std::vector<pollfd> waiting;
      std::vector<Conversation*> open;
      for (Conversation& one : all) {
        if (!one.open()) continue;
        waiting.push_back(one.Wanted());
        open.push_back(&one);
      }
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (open.empty() || left.count() <= 0) break;
      if (poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) break;
      for (size_t i = 0; i < open.size(); ++i) {
        if (waiting[i].revents != 0) open[i]->Advance();
      }
    }
    for (const Conversation& one : all) answers.push_back(one.open() ? Answer{} : one.answer());
  }
  return answers;
}

}  // namespace

Result<std::unique_ptr<InquiryServer>> InquiryServer::Start(bool ipv6, std::string key,
                                                            std::function<std::string(const std::string&)> answer) {
  Endpoint any = At(ipv6 ? "::" : "0.0.0.0", 0);
  const int fd = socket(any.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int wake = eventfd(0, EFD_CLOEXEC);
  if (fd < 0 || wake < 0 || bind(fd, reinterpret_cast<sockaddr*>(&any.address), any.length) != 0 ||
      listen(fd, SOMAXCONN) != 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&any.address), &any.length) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    if (wake >= 0) close(wake);
    return Fail(ErrorCode::kUnavailable, std::string("cannot listen for questions of peers: ") + std::strerror(error));
  }
  const int port = ntohs(ipv6 ? reinterpret_cast<sockaddr_in6*>(&any.address)->sin6_port
                              : reinterpret_cast<sockaddr_in*>(&any.address)->sin_port);
  return std::unique_ptr<InquiryServer>(new InquiryServer(fd, wake, port, std::move(key), std::move(answer)));
}

InquiryServer::InquiryServer(int listen_fd, int wake_fd, int port, std::string key,
                             std::function<std::string(const std::string&)> answer)
    : listen_fd_(listen_fd), wake_fd_(wake_fd), port_(port), key_(std::move(key)), answer_(std::move(answer)) {
  thread_ = std::thread([this] { Serve(); });
}

InquiryServer::~InquiryServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof one);
  thread_.join();
  close(listen_fd_);
  close(wake_fd_);
}

void InquiryServer::Serve() {
  for (;;) {
    pollfd waiting[2] = {{listen_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(waiting, 2, -1) < 0) continue;  // EINTR
    if (waiting[1].revents != 0) return;
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {  // no descriptors are left, for example: the caller stays in the queue
      poll(&waiting[1], 1, 50);
      continue;
    }
    ServeOne(fd);
    close(fd);
  }
}

void InquiryServer::ServeOne(int fd) {
  const auto deadline = Clock::now() + kPatience;
  std::string text;
  const auto complete = [&] { return std::count(text.begin(), text.end(), '\n') >= 2; };
  while (!complete() && text.size() < kLongest) {
    pollfd waiting{fd, POLLIN, 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return;
    char buffer[1024];
    const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) return;
    text.append(buffer, static_cast<size_t>(n));
  }
  const size_t end_of_key = text.find('\n');
  if (!complete() || text.substr(0, end_of_key) != key_) return;
  const std::string answer = answer_(text.substr(end_of_key + 1, text.find('\n', end_of_key + 1) - end_of_key - 1));
  // Fits into the socket's buffer; an asker that has gone does not matter.
  [[maybe_unused]] const ssize_t n = send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
}

std::vector<Answer> Ask(const std::vector<Desk>& desks, const std::string& question, milliseconds timeout) {
  return Converse(desks, question, true, timeout);
}

void Tell(const std::vector<Desk>& desks, const std::string& message, milliseconds timeout) {
  Converse(desks, message, false, timeout);
}

}  // namespace trainyard::dist

#include "operator/http/cpprest_stream.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace trainyard::http {
namespace {

constexpr size_t kPiece = 64u << 10;
// Beyond it we stop taking from the library until the reader has caught up. The library itself knows no back-pressure.
constexpr size_t kBufferLimit = 1u << 20;

// Shared by the stream and the task that waits for the next bytes, which may end later than the stream.
struct Body : std::enable_shared_from_this<Body> {
  std::shared_ptr<CpprestCalls::Call> call;
  concurrency::streams::streambuf<uint8_t> source;
  std::string where;
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  std::string buffer;
  bool pumping = false;
  bool end = false;
  std::optional<Error> error;

  // Waits for one byte and takes what came with it: a getn() of a fixed size would wait until it is full. `pumping` has
  // been set by the caller.
  void Pump() {
    auto self = shared_from_this();
    source.getc().then([self](pplx::task<concurrency::streams::streambuf<uint8_t>::int_type> next) {
      try {
        if (next.get() == concurrency::streams::streambuf<uint8_t>::traits::eof()) return self->Finish(std::nullopt);
        std::string piece(std::clamp<size_t>(self->source.in_avail(), 1, kPiece), '\0');
        // All of it is there, so that this does not wait.
        piece.resize(self->source.getn(reinterpret_cast<uint8_t*>(piece.data()), piece.size()).get());
        if (self->Add(piece)) self->Pump();
      } catch (const std::exception&) {
        // The library's own messages mislead here ("No such file or directory" for a hang-up).
        self->Finish(Error{ErrorCode::kUnavailable, "the answer of " + self->where + " broke off"});
      }
    });
  }
  // False: full, or over.
  bool Add(const std::string& piece) {
    std::lock_guard lock(mutex);
    buffer += piece;
    changed.notify_all();
    pumping = buffer.size() < kBufferLimit && !error;
    return pumping;
  }
  void Finish(std::optional<Error> why) {
    std::lock_guard lock(mutex);
    pumping = false;
    if (!error) error = std::move(why);
    end = true;
    changed.notify_all();
  }
};

class CpprestStream : public Stream {
 public:
  CpprestStream(std::shared_ptr<Body> body, int status, Headers headers)
      : body_(std::move(body)), status_(status), headers_(std::move(headers)) {}
  ~CpprestStream() override { Stop(); }

  int status() const override { return status_; }
  const Headers& headers() const override { return headers_; }

  Result<Chunk> Read(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(body_->mutex);
    body_->changed.wait_for(lock, timeout, [this] { return !body_->buffer.empty() || body_->end || body_->error; });
    if (body_->error && (body_->buffer.empty() || stopped_)) return Fail(*body_->error);
    Chunk chunk{std::move(body_->buffer), false};
    body_->buffer.clear();
    chunk.end = body_->end && !body_->error;
    const bool resume = !body_->end && !body_->error && !body_->pumping;
    if (resume) body_->pumping = true;
    lock.unlock();
    if (resume) body_->Pump();
    return chunk;
  }

  void Stop() override {
    {
      std::lock_guard lock(body_->mutex);
      if (stopped_) return;
      stopped_ = true;
      if (!body_->end) body_->error = Error{ErrorCode::kUnavailable, "the stream of " + body_->where + " was stopped"};
      body_->changed.notify_all();
    }
    body_->call->cancel.cancel();
  }

 private:
  const std::shared_ptr<Body> body_;
  const int status_;
  const Headers headers_;
  bool stopped_ = false;  // guarded by body_->mutex
};

}  // namespace

std::unique_ptr<Stream> NewCpprestStream(std::shared_ptr<CpprestCalls::Call> call, web::http::http_response response,
                                         std::string where) {
  auto body = std::make_shared<Body>();
  body->call = std::move(call);
  body->source = response.body().streambuf();
  body->where = std::move(where);
  body->pumping = true;
  Headers headers;
  for (const auto& [name, value] : response.headers()) headers[name] = value;
  auto stream = std::make_unique<CpprestStream>(body, response.status_code(), std::move(headers));
  body->Pump();
  return stream;
}

}  // namespace trainyard::http

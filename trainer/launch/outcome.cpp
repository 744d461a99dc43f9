#include "trainer/launch/outcome.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "operator/base/files.h"
#include "trainer/contract/contract.h"

namespace trainyard::launch {
namespace {

constexpr size_t kMaxTermination = 4096;  // Kubernetes cuts longer messages

bool Failing(const RankExit& exit) {
  return exit.code != contract::kExitSucceeded && exit.code != contract::kExitStopped;
}

// How much an exit says about the cause; the first of the highest wins.
int Weight(const RankExit& exit) {
  if (!Failing(exit)) return 0;
  if (exit.by_us) return 1;
  return exit.code == contract::kExitCommunication ? 2 : 3;
}

// A number that the trainer last reported.
std::optional<int64_t> Reported(const nlohmann::json& status, const nlohmann::json::json_pointer& where) {
  if (!status.contains(where) || !status[where].is_number_integer()) return std::nullopt;
  return status[where].get<int64_t>();
}

}  // namespace

Outcome Judge(const std::vector<RankExit>& exits) {
  const RankExit* cause = nullptr;
  bool stopped = false;
  for (const RankExit& exit : exits) {
    stopped = stopped || exit.code == contract::kExitStopped;
    if (Failing(exit) && (cause == nullptr || Weight(exit) > Weight(*cause))) cause = &exit;
  }
  if (cause == nullptr) return {stopped ? contract::kExitStopped : contract::kExitSucceeded, -1, 0, ""};
  Outcome outcome{cause->code, cause->rank, cause->signal, cause->message};
  if (cause->signal != 0) {
    const std::string died = "rank " + std::to_string(cause->rank) + " was killed by signal " +
                             std::to_string(cause->signal) + " (" + strsignal(cause->signal) + ")";
    outcome.message = died + (outcome.message.empty() ? "" : "; its last words: " + outcome.message);
  } else if (outcome.message.empty()) {
    outcome.message = "rank " + std::to_string(cause->rank) + " exited with code " + std::to_string(cause->code) +
                      " and said nothing";
  }
  return outcome;
}

std::string TerminationJson(const Outcome& outcome, const std::string& trainer_status) {
  using Pointer = nlohmann::json::json_pointer;
  const auto status = nlohmann::json::parse(trainer_status, nullptr, /*allow_exceptions=*/false);
  nlohmann::json json = {{"contract", contract::kVersion},
                         {"class", contract::ClassOfExit(outcome.exit_code)},
                         {"exitCode", outcome.exit_code},
                         {"message", outcome.message}};
  if (outcome.rank >= 0) json["rank"] = outcome.rank;
  if (outcome.signal != 0) json["signal"] = outcome.signal;
  if (status.is_object()) {
    if (const auto step = Reported(status, Pointer("/step"))) json["step"] = *step;
    if (const auto step = Reported(status, Pointer("/checkpoint/step"))) json["checkpointStep"] = *step;
    json["status"] = status;
  }
  const auto dump = [&json] { return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace); };
  std::string text = dump();
  if (text.size() > kMaxTermination && json.erase("status") > 0) text = dump();
  std::string message = outcome.message;
  while (text.size() > kMaxTermination && !message.empty()) {
    // Escaped characters take up to 12 bytes for one: cut by the excess or by half, whichever is less.
    const size_t excess = text.size() - kMaxTermination;
    message.resize(message.size() -
                   std::min(message.size(), std::max<size_t>(1, std::min(excess, message.size() / 2))));
    while (!message.empty() && (static_cast<unsigned char>(message.back()) & 0xC0) == 0x80) message.pop_back();
    if (!message.empty() && static_cast<unsigned char>(message.back()) >= 0xC0) message.pop_back();
    json["message"] = message + "...";
    text = dump();
  }
  return text;
}

Status WriteTermination(const std::string& path, const std::string& json) {
  if (Status renamed = WriteFileAtomically(path, json); renamed) return {};
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written = fd >= 0 && write(fd, json.data(), json.size()) == static_cast<ssize_t>(json.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!written)
    return Fail(ErrorCode::kUnavailable, "cannot write the termination message to " + path + ": " + strerror(error));
  return {};
}

}  // namespace trainyard::launch

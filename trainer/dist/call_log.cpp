#include "trainer/dist/call_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace trainyard::dist {
namespace {

namespace flight = contract::flight;
using Steady = std::chrono::steady_clock;

int64_t EpochNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

template <size_t kSize>
void SetText(char (&to)[kSize], const std::string& from) {
  const size_t length = std::min(from.size(), kSize - 1);
  std::memcpy(to, from.data(), length);
  std::memset(to + length, 0, kSize - length);
}

}  // namespace

std::string CallRecord::Text() const {
  std::string text = operation;
  if (!label.empty()) text += " '" + label + "'";
  text += " (";
  if (sequence >= 0) text += "#" + std::to_string(sequence) + ", ";
  return text + std::to_string(bytes) + " bytes)";
}

CallLog::CallLog() = default;

Result<std::shared_ptr<CallLog>> CallLog::Open(const std::string& file, int rank, int world) {
  auto log = std::make_shared<CallLog>();
  // A new file, not the old one emptied: whoever still reads that one keeps it.
  unlink(file.c_str());
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  // Reserved, since a full disk would end a rank that writes to a mapped hole by a signal.
  int error = fd < 0 ? errno : posix_fallocate(fd, 0, static_cast<off_t>(flight::kFileBytes));
  void* map = MAP_FAILED;
  if (error == 0) {
    map = mmap(nullptr, flight::kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    error = map == MAP_FAILED ? errno : 0;
  }
  if (fd >= 0) close(fd);
  if (error != 0) return Fail(ErrorCode::kUnavailable, "flight record " + file + ": " + std::strerror(error));
  log->header_ = static_cast<flight::Header*>(map);
  log->entries_ = reinterpret_cast<flight::Entry*>(log->header_ + 1);
  log->header_->format = flight::kFormat;
  log->header_->entries = flight::kEntries;
  log->header_->rank = rank;
  log->header_->world = world;
  log->header_->pid = getpid();
  std::memcpy(log->header_->magic, flight::kMagic, sizeof flight::kMagic);
  return log;
}

CallLog::~CallLog() {
  if (header_ != nullptr) munmap(header_, flight::kFileBytes);
}

int CallLog::AddGroup(std::string name, std::string id) {
  std::lock_guard lock(mutex_);
  groups_.push_back({std::move(name), std::move(id), {}, Steady::now()});
  return static_cast<int>(groups_.size()) - 1;
}

int CallLog::FindGroup(const std::string& id) const {
  std::lock_guard lock(mutex_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].id == id) return static_cast<int>(g);
  }
  return -1;
}

std::string CallLog::GroupName(int group) const {
  std::lock_guard lock(mutex_);
  return groups_.at(static_cast<size_t>(group)).name;
}

std::string CallLog::GroupId(int group) const {
  std::lock_guard lock(mutex_);
  return groups_.at(static_cast<size_t>(group)).id;
}

void CallLog::SetBackground(int group) {
  std::lock_guard lock(mutex_);
  groups_.at(static_cast<size_t>(group)).background = true;
}

uint64_t CallLog::Begin(CallRecord call) {
  std::lock_guard lock(mutex_);
  call.id = ++calls_;
  call.start = Steady::now();
  Write(call, flight::kUnderWay);
  if (header_ != nullptr) header_->calls = calls_;
  under_way_.emplace_hint(under_way_.end(), call.id, std::move(call));
  return calls_;
}

void CallLog::WaitsFor(uint64_t id, int world_rank) {
  std::lock_guard lock(mutex_);
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return;
  found->second.waiting_for = world_rank;
  if (entries_ != nullptr) entries_[id % flight::kEntries].waiting_for = world_rank;
}

void CallLog::End(uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return;
  Write(found->second, flight::kDone);
  Group& group = groups_[static_cast<size_t>(found->second.group)];
  group.last = std::move(found->second);
  group.ended = Steady::now();
  under_way_.erase(found);
}

std::optional<CallRecord> CallLog::Current(int group) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, call] : under_way_) {
    const bool wanted =
        group < 0 ? !groups_[static_cast<size_t>(call.group)].background : call.group == group && call.sequence >= 0;
    if (wanted) return call;
  }
  return std::nullopt;
}

std::optional<CallRecord> CallLog::Find(uint64_t id) const {
  std::lock_guard lock(mutex_);
  const auto found = under_way_.find(id);
  return found == under_way_.end() ? std::nullopt : std::optional<CallRecord>(found->second);
}

std::optional<std::pair<CallRecord, Steady::time_point>> CallLog::Last(int group) const {
  std::lock_guard lock(mutex_);
  const Group& g = groups_.at(static_cast<size_t>(group));
  if (g.last.id == 0) return std::nullopt;
  return std::pair(g.last, g.ended);
}

std::vector<CallRecord> CallLog::UnderWay() const {
  std::lock_guard lock(mutex_);
  std::vector<CallRecord> calls;
  for (const auto& [id, call] : under_way_) calls.push_back(call);
  return calls;
}

void CallLog::Write(const CallRecord& call, flight::Phase phase) {
  if (entries_ == nullptr) return;
  flight::Entry& entry = entries_[call.id % flight::kEntries];
  // A call so old that its place has gone to a later one.
  if (phase == flight::kDone && entry.call != call.id) return;
  std::atomic_ref<uint64_t> version(entry.version);
  version.fetch_add(1);
  if (phase == flight::kUnderWay) {
    entry.call = call.id;
    entry.sequence = call.sequence;
    entry.bytes = call.bytes;
    entry.started_ns = EpochNanoseconds();
    entry.ended_ns = 0;
    SetText(entry.operation, call.operation);
    SetText(entry.group, groups_[static_cast<size_t>(call.group)].id);  // names of two splits may be the same
    SetText(entry.label, call.label);
  } else {
    entry.ended_ns = EpochNanoseconds();
  }
  entry.waiting_for = -1;
  entry.phase = phase;
  version.fetch_add(1);
}

}  // namespace trainyard::dist

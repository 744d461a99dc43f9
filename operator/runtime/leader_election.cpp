#include "operator/runtime/leader_election.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

namespace trainyard::runtime {

using cluster::Kind;
using nlohmann::json;

namespace {

// Rivals that wait for the lease spread their tries over [1, 1 + this] periods, as client-go does.
constexpr double kJitter = 1.2;

// A lease that says it lasts longer than ours is believed, since its holder may have been started with other flags, but
// not without bound: a value that somebody mistyped would keep everybody waiting for ever. Nobody means a factor of
// ten, and what a holder with such flags could still do late is harmless (docs/lifecycle.md).
constexpr int kMostPatience = 10;

// A try and the pause after it take some ten seconds at most.
constexpr Milliseconds kStuck{120'000};

// MicroTime of Kubernetes.
std::string MicroTime(TimePoint time) {
  std::string text = FormatTime(time, true);
  return text.insert(text.size() - 1, "000");
}

const json& SpecOf(const json& lease) {
  static const json kNone = json::object();
  const auto spec = lease.find("spec");
  return spec != lease.end() && spec->is_object() ? *spec : kNone;
}

std::string HolderOf(const json& lease) {
  const json& spec = SpecOf(lease);
  const auto holder = spec.find("holderIdentity");
  return holder != spec.end() && holder->is_string() ? holder->get<std::string>() : "";
}

int64_t IntegerOf(const json& lease, const char* field) {
  const json& spec = SpecOf(lease);
  const auto value = spec.find(field);
  return value != spec.end() && value->is_number_integer() ? value->get<int64_t>() : 0;
}

int64_t SecondsUp(Milliseconds time) { return std::chrono::ceil<std::chrono::seconds>(time).count(); }

}  // namespace

Status CheckLeaderElection(const LeaderElectionOptions& options) {
  const auto text = [](Milliseconds time) { return FormatDuration(time); };
  if (options.retry_period < Milliseconds(1)) {
    return Fail(ErrorCode::kInvalidArgument, "leader election: the retry period must be positive");
  }
  if (options.renew_deadline <= options.retry_period) {
    return Fail(ErrorCode::kInvalidArgument, "leader election: the renew deadline (" + text(options.renew_deadline) +
                                                 ") must be longer than the retry period (" +
                                                 text(options.retry_period) + ")");
  }
  if (options.lease_duration <= options.renew_deadline) {
    return Fail(ErrorCode::kInvalidArgument, "leader election: the lease duration (" + text(options.lease_duration) +
                                                 ") must be longer than the renew deadline (" +
                                                 text(options.renew_deadline) + ")");
  }
  return {};
}

LeaderElector::LeaderElector(cluster::Cluster& cluster, LeaderElectionOptions options, const Clock& clock,
                             uint64_t seed, Now now)
    : cluster_(cluster),
      options_(std::move(options)),
      clock_(clock),
      now_(std::move(now)),
      random_(static_cast<std::minstd_rand::result_type>(seed)) {}

LeaderElector::~LeaderElector() { Stop(); }

void LeaderElector::Start() {
  thread_ = std::jthread([this](std::stop_token stop) { Run(std::move(stop)); });
}

void LeaderElector::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  Release();
}

void LeaderElector::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const Milliseconds pause = Tick();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, pause, [] { return false; });
  }
}

bool LeaderElector::LeadsLocked() const { return held_ && now_() < renewed_at_ + options_.renew_deadline; }

bool LeaderElector::IsLeader() const {
  std::lock_guard lock(mutex_);
  return LeadsLocked();
}

bool LeaderElector::Leads(uint64_t term) const {
  std::lock_guard lock(mutex_);
  return term == term_ && LeadsLocked();
}

std::string LeaderElector::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

Status LeaderElector::Progress() const {
  std::lock_guard lock(mutex_);
  const auto since = std::chrono::duration_cast<Milliseconds>(now_() - tried_at_);
  if (tried_at_ == SteadyTime{} || since < kStuck) return {};
  return Fail(ErrorCode::kDeadlineExceeded, "the lease has not been tried for " + FormatDuration(since));
}

std::optional<uint64_t> LeaderElector::AwaitTerm(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, std::move(stop), [this] { return LeadsLocked(); })) return std::nullopt;
  return term_;
}

void LeaderElector::AwaitEnd(uint64_t term, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (term == term_ && LeadsLocked() && !stop.stop_requested()) {
    changed_.wait_until(lock, stop, renewed_at_ + options_.renew_deadline,
                        [&] { return term != term_ || !LeadsLocked(); });
  }
}

Milliseconds LeaderElector::Tick() {
  const SteadyTime sent = now_();
  {
    std::lock_guard lock(mutex_);
    tried_at_ = sent;
  }
  const Result<bool> holds = TryHold();
  std::lock_guard lock(mutex_);
  const SteadyTime end = renewed_at_ + options_.renew_deadline;
  const bool in_time = held_ && now_() < end;
  if (holds.value_or(false)) {
    // A renewal that comes after the end of the term begins another one: what the old one did is being stopped.
    if (!in_time) {
      ++term_;
      spdlog::info("leader election: {} leads (term {} of this process)", options_.identity, term_);
    }
    held_ = true;
    renewed_at_ = sent;
    problem_.clear();
    gate_.Clear("lease");
    gate_.Clear("wait");
  } else {
    problem_ = holds ? "" : holds.error().message;
    const bool lost = holds.has_value() || !in_time;
    if (held_ && lost) {
      held_ = false;
      spdlog::warn("leader election: {} no longer leads: {}", options_.identity,
                   holds ? "the lease was taken by " + HolderOf(observed_) : problem_);
    } else if (!holds && gate_.Passes("lease", problem_)) {
      spdlog::warn("leader election: {}", problem_);
    }
  }
  changed_.notify_all();
  if (held_) return options_.retry_period;
  const double share = std::uniform_real_distribution<double>(0, kJitter)(random_);
  return std::chrono::duration_cast<Milliseconds>(options_.retry_period * (1 + share));
}

void LeaderElector::Observe(const json& lease) {
  // The whole spec counts: a holder that writes anything is alive.
  if (observed_.is_null() || SpecOf(observed_) != SpecOf(lease)) observed_at_ = now_();
  observed_ = lease;
}

Milliseconds LeaderElector::PatienceWith(const json& lease) const {
  const Milliseconds longest = kMostPatience * options_.lease_duration;
  const int64_t seconds = std::clamp<int64_t>(IntegerOf(lease, "leaseDurationSeconds"), 0, SecondsUp(longest));
  return std::clamp<Milliseconds>(std::chrono::seconds(seconds), options_.lease_duration, longest);
}

void LeaderElector::TellWait(const std::string& holder, Milliseconds patience) {
  const std::string text = holder + " has not renewed the lease for " + FormatDuration(options_.lease_duration) +
                           ", which says that it lasts " +
                           std::to_string(IntegerOf(observed_, "leaseDurationSeconds")) + " s; it is taken over when " +
                           FormatDuration(patience) + " have passed without a renewal";
  if (gate_.Passes("wait", text)) spdlog::warn("leader election: {} waits: {}", options_.identity, text);
}

Result<bool> LeaderElector::TryHold() {
  bool held;
  {
    std::lock_guard lock(mutex_);
    held = held_;
  }
  if (held) {
    const Result<bool> renewed = Write(observed_, /*take=*/false);
    if (!renewed || *renewed) return renewed;  // refused: somebody else wrote, see who
  }
  Result<json> lease = cluster_.Get(Kind::kLease, {options_.ns, options_.name});
  if (!lease) {
    if (lease.error().code != ErrorCode::kNotFound) return Fail(lease.error().Wrap("reading the lease"));
    return Write({{"apiVersion", cluster::InfoOf(Kind::kLease).api_version},
                  {"kind", cluster::InfoOf(Kind::kLease).kind},
                  {"metadata", {{"namespace", options_.ns}, {"name", options_.name}}}},
                 /*take=*/true);
  }
  Observe(*lease);
  const std::string holder = HolderOf(*lease);
  if (holder == options_.identity) return Write(*std::move(lease), /*take=*/false);
  const Milliseconds patience = PatienceWith(*lease);
  const SteadyTime now = now_();
  if (!holder.empty() && now < observed_at_ + patience) {
    if (now >= observed_at_ + options_.lease_duration) TellWait(holder, patience);
    return false;
  }
  return Write(*std::move(lease), /*take=*/true);
}

Result<bool> LeaderElector::Write(json lease, bool take) {
  const std::string now = MicroTime(clock_.Now());
  json spec = SpecOf(lease);
  spec["holderIdentity"] = options_.identity;
  spec["leaseDurationSeconds"] = SecondsUp(options_.lease_duration);
  spec["renewTime"] = now;
  const bool create = cluster::ResourceVersionOf(lease).empty();
  if (take) {
    spec["acquireTime"] = now;
    spec["leaseTransitions"] = IntegerOf(lease, "leaseTransitions") + (create ? 0 : 1);
  }
  lease["spec"] = std::move(spec);
  const Result<json> stored = create ? cluster_.Create(Kind::kLease, lease) : cluster_.Replace(Kind::kLease, lease);
  if (stored) {
    Observe(*stored);
    return true;
  }
  const ErrorCode code = stored.error().code;
  const bool raced =
      code == ErrorCode::kConflict || code == ErrorCode::kAlreadyExists || (!create && code == ErrorCode::kNotFound);
  if (raced) return false;
  return Fail(stored.error().Wrap(create ? "creating the lease" : "renewing the lease"));
}

void LeaderElector::Release() {
  {
    std::lock_guard lock(mutex_);
    const bool leads = LeadsLocked();
    held_ = false;
    changed_.notify_all();
    if (!leads) return;
  }
  json lease = observed_;
  json& spec = lease["spec"];
  spec.erase("holderIdentity");
  spec["leaseDurationSeconds"] = 1;
  spec["renewTime"] = MicroTime(clock_.Now());
  const Result<json> stored = cluster_.Replace(Kind::kLease, lease);
  if (stored) {
    spdlog::info("leader election: {} has given the lease back", options_.identity);
  } else {
    spdlog::warn("leader election: the lease was not given back, another has to wait for it: {}",
                 stored.error().message);
  }
}

}  // namespace trainyard::runtime

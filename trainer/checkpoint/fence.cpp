#include "trainer/checkpoint/fence.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>

#include "trainer/contract/contract.h"

namespace trainyard::checkpoint {
namespace {

constexpr std::string_view kOwners = "owners";
// Directories in .staging that nobody writes into any more.
constexpr std::string_view kDeadPrefixes[] = {"fenced-", "pruned-"};

// One claim: the file name "<generation>.<attempt>.<round>.<uid>". The generation counts the jobs that came to the
// directory, so that claims of different jobs have an order too.
struct Claim {
  int64_t generation = 0;
  Fence fence;

  std::tuple<int64_t, const std::string&, int64_t, int64_t> Key() const {
    return {generation, fence.job_uid, fence.attempt, fence.round};
  }
  std::string FileName() const {
    return std::to_string(generation) + "." + std::to_string(fence.attempt) + "." + std::to_string(fence.round) + "." +
           fence.job_uid;
  }
};

// Takes "<number>." off the front.
std::optional<int64_t> TakeNumber(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || end == text.data() + text.size() || *end != '.') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return value;
}

std::optional<Claim> ParseClaim(std::string_view name) {
  const std::optional<int64_t> generation = TakeNumber(name);
  const std::optional<int64_t> attempt = generation ? TakeNumber(name) : std::nullopt;
  const std::optional<int64_t> round = attempt ? TakeNumber(name) : std::nullopt;
  if (!round || name.empty()) return std::nullopt;
  return Claim{*generation, {std::string(name), *attempt, *round}};
}

std::string StagingName(const Fence& fence) {
  std::string name = fence.job_uid + "-" + std::to_string(fence.attempt);
  return fence.round == 0 ? name : name + "." + std::to_string(fence.round);
}

class Takeover {
 public:
  Takeover(const std::string& root, const Fence& fence, FileSystem& fs)
      : root_(root),
        staging_(root + "/" + std::string(kStagingDirectory)),
        owners_(staging_ + "/" + std::string(kOwners)),
        fs_(fs) {
    mine_.fence = fence;
  }

  // The order of the steps makes it safe against another TakeOver at the same time: both publish their claim first and
  // look for a newer one last, so at least the older one sees the other and gives way.
  Result<TakeOverInfo> Run() {
    if (Status s = MakeDirectories(); !s) return Fail(s.error());
    if (Status s = Publish(); !s) return Fail(s.error());
    if (Status s = RenameOthersAway(); !s) return Fail(s.error());
    const std::string own = StagingDirectory(root_, mine_.fence);
    if (Status s = EnsureDirectory(fs_, own); !s) return Fail(s.error());
    if (Status s = fs_.SyncDirectory(staging_); !s) return Fail(s.error());
    if (Status s = RefuseIfNewer(); !s) {
      if (Status removed = fs_.RemoveDirectory(own); !removed) return Fail(s.error().Wrap(removed.error().message));
      return Fail(s.error());
    }
    CleanUp();
    return std::move(info_);
  }

 private:
  Status MakeDirectories() {
    if (Status s = EnsureParents(fs_, root_); !s) return s;
    for (const std::string& directory : {root_, staging_, owners_}) {
      if (Status s = EnsureDirectory(fs_, directory); !s) {
        return Fail(s.error().Wrap("checkpoint directory " + root_ + " cannot be written"));
      }
    }
    return fs_.SyncDirectory(root_);
  }

  Result<std::vector<Claim>> Claims() {
    Result<std::vector<std::string>> names = fs_.ListDirectory(owners_);
    if (!names) return Fail(names.error());
    std::vector<Claim> claims;
    for (const std::string& name : *names) {
      if (std::optional<Claim> claim = ParseClaim(name)) claims.push_back(std::move(*claim));
    }
    return claims;
  }

  Status Publish() {
    Result<std::vector<Claim>> claims = Claims();
    if (!claims) return Fail(claims.error());
    int64_t newest = 0;
    for (const Claim& claim : *claims) {
      newest = std::max(newest, claim.generation);
      if (claim.fence.job_uid == mine_.fence.job_uid) mine_.generation = claim.generation;
    }
    if (mine_.generation == 0) mine_.generation = newest + 1;
    // Refused before it leaves a trace.
    if (Status s = RefuseIfNewer(); !s) return s;
    if (Status s = WriteWholeFile(fs_, owners_ + "/" + mine_.FileName(), ""); !s) return s;
    return fs_.SyncDirectory(owners_);
  }

  Status RefuseIfNewer() {
    Result<std::vector<Claim>> claims = Claims();
    if (!claims) return Fail(claims.error());
    for (const Claim& claim : *claims) {
      if (claim.Key() <= mine_.Key()) continue;
      if (claim.fence.job_uid == mine_.fence.job_uid) {
        std::string whose = std::string(contract::kOwnedByAttempt) + std::to_string(claim.fence.attempt) +
                            std::string(contract::kOwnedByRound) + std::to_string(claim.fence.round) +
                            std::string(contract::kOwnedByThisJob);
        return Fail(ErrorCode::kFailedPrecondition, "checkpoint directory " + root_ + whose + "; attempt " +
                                                        std::to_string(mine_.fence.attempt) + " (round " +
                                                        std::to_string(mine_.fence.round) + ") is older and must stop");
      }
      return Fail(ErrorCode::kFailedPrecondition, "checkpoint directory " + root_ + " was taken over by job " +
                                                      claim.fence.job_uid + " from job " + mine_.fence.job_uid +
                                                      "; use another path, or stop that job and remove " + owners_ +
                                                      "/" + claim.FileName());
    }
    return {};
  }

  // True for the staging directory of an owner that is newer than we are. Claims are read after the directory was
  // listed: an owner publishes its claim before it makes its directory, so the claim of every listed one is seen.
  static bool IsNewer(const std::string& name, const std::vector<Claim>& claims, const Claim& mine) {
    return std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) {
      return StagingName(claim.fence) == name && claim.Key() > mine.Key();
    });
  }

  Status RenameOthersAway() {
    Result<std::vector<std::string>> names = fs_.ListDirectory(staging_);
    if (!names) return Fail(names.error());
    Result<std::vector<Claim>> claims = Claims();
    if (!claims) return Fail(claims.error());
    for (const std::string& name : *names) {
      const bool dead = std::any_of(std::begin(kDeadPrefixes), std::end(kDeadPrefixes),
                                    [&](std::string_view prefix) { return name.starts_with(prefix); });
      if (name == kOwners || dead || IsNewer(name, *claims, mine_)) continue;
      if (Status s = FenceOff(name); !s) return s;
      info_.fenced.push_back(name);
    }
    return {};
  }

  Status FenceOff(const std::string& name) {
    std::string away;
    for (int i = 0;; ++i) {
      away = staging_ + "/fenced-" + name + "-" + std::to_string(i);
      if (fs_.Stat(away)) continue;
      Status renamed = fs_.Rename(staging_ + "/" + name, away);
      if (renamed) break;
      if (renamed.error().code == ErrorCode::kNotFound) return {};  // its owner gave way itself
      if (renamed.error().code != ErrorCode::kAlreadyExists) return renamed;
    }
    // A commit of the old owner may have passed the name of its directory just before it changed, and be about to
    // rename the step below it. Renaming the steps too takes them from under it: it now fails, or is already visible in
    // root.
    Result<std::vector<std::string>> steps = fs_.ListDirectory(away);
    if (!steps) return steps.error().code == ErrorCode::kFailedPrecondition ? Status() : Status(Fail(steps.error()));
    for (const std::string& step : *steps) {
      Status renamed = fs_.Rename(away + "/" + step, away + "/dead-" + step);
      if (!renamed && renamed.error().code != ErrorCode::kNotFound) return renamed;
    }
    return {};
  }

  // Older claims of this job say nothing that ours does not; claims of other jobs stay, since they fence those jobs
  // off.
  void CleanUp() {
    const auto note = [&](const Status& status) {
      if (!status) info_.warnings.push_back(status.error().message);
    };
    if (Result<std::vector<Claim>> claims = Claims(); !claims) {
      note(Fail(claims.error()));
    } else {
      for (const Claim& claim : *claims) {
        if (claim.fence.job_uid != mine_.fence.job_uid || claim.Key() >= mine_.Key()) continue;
        note(RemoveTree(fs_, owners_ + "/" + claim.FileName()));
      }
    }
    Result<std::vector<std::string>> names = fs_.ListDirectory(staging_);
    if (!names) return note(Fail(names.error()));
    for (const std::string& name : *names) {
      for (std::string_view prefix : kDeadPrefixes) {
        if (name.starts_with(prefix)) note(RemoveTree(fs_, staging_ + "/" + name));
      }
    }
  }

  const std::string root_, staging_, owners_;
  FileSystem& fs_;
  Claim mine_;
  TakeOverInfo info_;
};

}  // namespace

Result<TakeOverInfo> TakeOver(const std::string& root, const Fence& fence, FileSystem& fs) {
  if (root.empty()) return Fail(ErrorCode::kInvalidArgument, "the checkpoint directory has no name");
  if (Status s = CheckFence(fence); !s) return Fail(s.error());
  return Takeover(root, fence, fs).Run();
}

Result<std::string> OwnerJob(const std::string& root, FileSystem& fs) {
  const std::string owners = root + "/" + std::string(kStagingDirectory) + "/" + std::string(kOwners);
  const Result<std::vector<std::string>> names = fs.ListDirectory(owners);
  if (!names && names.error().code == ErrorCode::kNotFound) return std::string();
  if (!names) return Fail(names.error());
  std::optional<Claim> newest;
  for (const std::string& name : *names) {
    std::optional<Claim> claim = ParseClaim(name);
    if (claim && (!newest || claim->Key() > newest->Key())) newest = std::move(claim);
  }
  return newest ? newest->fence.job_uid : std::string();
}

std::string StagingDirectory(const std::string& root, const Fence& fence) {
  return root + "/" + std::string(kStagingDirectory) + "/" + StagingName(fence);
}

Status CheckFence(const Fence& fence) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (fence.job_uid.empty() || fence.job_uid.size() > 128 ||
      !std::all_of(fence.job_uid.begin(), fence.job_uid.end(), allowed)) {
    return Fail(ErrorCode::kInvalidArgument, "job UID \"" + fence.job_uid +
                                                 "\" cannot name a directory: letters, digits, "
                                                 "'-' and '_' only, at most 128");
  }
  if (fence.attempt < 0 || fence.round < 0)
    return Fail(ErrorCode::kInvalidArgument, "attempt and round are not negative");
  return {};
}

Error FencedError(const std::string& root, const Fence& fence, FileSystem& fs) {
  const Result<std::string> owner = OwnerJob(root, fs);
  const bool other = owner && !owner->empty() && *owner != fence.job_uid;
  return {ErrorCode::kFailedPrecondition, "attempt " + std::to_string(fence.attempt) + " of job " + fence.job_uid +
                                              " does not own checkpoint directory " + root +
                                              (other ? ": job " + *owner : ": a newer attempt") +
                                              " took it over; this one must stop"};
}

}  // namespace trainyard::checkpoint

// One size of one product: which strategy, recomputation, offload and micro batch run it best. Private to the room.
// Thread-safety: an Evaluator belongs to one thread; the rest are plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/sizing/batch.h"
#include "operator/sizing/plan.h"
#include "operator/sizing/scaling.h"

namespace trainyard::sizing {

// A product as the request may use it.
struct Candidate {
  const GpuProduct* product = nullptr;
  size_t index = 0;  // in the request's supply
  int64_t memory_mib = 0;
  int64_t capacity = 0;  // bytes of one GPU that a plan may use
  int64_t gpus_per_node = 0;
  int64_t nodes = 0;            // 0: unlimited
  std::optional<double> price;  // per GPU-hour

  bool Holds(int64_t gpus, int64_t per_node) const { return nodes == 0 || gpus / per_node <= nodes; }
};
// Errors: kInvalidArgument, the product is unknown.
Result<Candidate> CandidateOf(const PlanRequest& request, const ProductSupply& supply);

// A way to run the job on a given size. The order of the fields is the order of preference between equals.
struct Method {
  Offload offload = Offload::kNone;
  Checkpointing checkpointing = Checkpointing::kNone;
  api::Strategy strategy = api::Strategy::kDdp;
  int64_t shard_ranks = 1;
  bool hybrid = false;       // HSDP
  bool reduce_once = false;  // of the sharded ones: gradients are summed whole and reduced with the last micro-batch
};
std::string NameOf(const Method& method);  // "FSDP with full activation checkpointing"

// A method on a size of a product, and what it comes to.
struct Trial {
  const Candidate* candidate = nullptr;
  int64_t gpus = 0;
  int64_t per_node = 0;
  size_t method = 0;  // of Evaluator::Methods
  Batch batch;
  int64_t bytes = 0;  // per GPU
  bool fits = false;
  // Times are those of trials that fit.
  double mfu = 0;
  double physical = 1;
  double planned = 1;
  double step_seconds = 0;      // 0: not modelled
  std::optional<double> hours;  // of the whole job
  double pace = 0;              // of the optimizer step: seconds per sequence; relative where not modelled
  // What sizes are compared by: hours, or where none are known seconds per sequence; and that times GPUs and price
  // (times GPUs only where nothing has a price).
  double time = 0;
  double money = 0;

  bool Held() const { return candidate->Holds(gpus, per_node); }
};

class Evaluator {
 public:
  // `request` and `candidates` outlive it; the request is checked, and its supply is the candidates'.
  Evaluator(const PlanRequest& request, const std::vector<Candidate>& candidates);

  // The best method on `gpus` of `candidate`: the fastest that fits, of those within 0.5 % the simplest (see Method);
  // where none fits, the one that needs least. Nothing where the GPUs cannot be shared out as asked.
  const Trial* Best(const Candidate& candidate, int64_t gpus);
  // Every method on that size, in order of preference, each with its fastest micro batch that fits, or its smallest.
  std::vector<Trial> All(const Candidate& candidate, int64_t gpus);

  const Method& MethodOf(const Trial& trial) const;
  // In full, with the reasons.
  PlanOption OptionOf(const Trial& trial);
  // The bytes of a trial at another micro batch or sequence length.
  PerGpuBytes BytesAt(const Trial& trial, int64_t micro_batch, int64_t sequence);

  const PlanRequest& request() const { return request_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  // Counts worth trying on a candidate, rising: those asked for, or the proposed ones within the limits.
  std::vector<int64_t> CountsFor(const Candidate& candidate) const;
  // Smallest of the proposed counts up to the global batch that fits. Nothing when none does.
  std::optional<int64_t> SmallestFull(const Candidate& candidate);
  // The largest count that a search may come to, and what sets it: "the global batch of 8 sequences". What a cluster
  // lacks is no limit: a job can wait for it. It only comes last (Trial::Held).
  int64_t MostGpus(std::string* why) const;
  // State only, of all GPUs together: the reference rule of 16 P for AdamW on every parameter, else what is held at
  // rest.
  int64_t StateBytes();
  bool PricesKnown() const { return prices_known_; }

 private:
  // What does not depend on the product: every method with its bytes at every micro batch worth trying.
  struct Size {
    std::vector<int64_t> micro_batches;
    std::vector<Method> methods;
    std::vector<int64_t> bytes;  // of method m and micro batch i at [m * micro_batches.size() + i]; -1: not asked yet
  };
  Size& SizeOf(const Candidate& candidate, int64_t gpus, int64_t per_node);
  int64_t BytesOf(const Candidate& candidate, Size& size, int64_t ranks, size_t method, size_t micro);
  MemoryInput& InputOf(const Candidate& candidate);
  void Set(MemoryInput& in, const Method& method, int64_t ranks, int64_t micro_batch) const;
  Trial TrialOf(const Candidate& candidate, Size& size, int64_t gpus, int64_t per_node, size_t method);
  void AddTime(const Method& method, Trial& trial);
  StepTraffic TrafficOf(const Method& method, const Trial& trial);
  int64_t RanksOf(int64_t gpus) const;
  // A bound of Trial::pace: as if nothing but arithmetic took time, under the planning ceiling.
  double LeastPace(const Candidate& candidate, const Size& size, int64_t gpus, size_t method) const;
  double Correction() const;  // of times, by what was measured

  const PlanRequest& request_;
  const std::vector<Candidate>& candidates_;
  bool prices_known_ = false;
  double active_parameters_ = 0;
  double attention_flops_ = 0;
  double trained_parameters_ = 0;  // 0: all
  MemoryInput gpu_, cpu_;          // of the two kinds of machine
  std::unordered_map<uint64_t, Size> sizes_;
  std::vector<std::unordered_map<int64_t, std::optional<Trial>>> best_;  // by candidate and count
};

// "162.3 GiB of 140.4 GiB per GPU".
std::string NeedOf(const PlanOption& option);
// Smallest proposed count whose GPUs hold the state together.
int64_t SmallestStateOnly(int64_t state_bytes, const Candidate& candidate);

}  // namespace trainyard::sizing

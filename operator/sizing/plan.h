// The plan: which strategy, how many GPUs of which product, micro batch and accumulation, why, how long and for how
// much, what came next and why it lost. Thread-safety: pure functions on plain values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/memory.h"
#include "operator/sizing/shape.h"

namespace trainyard::sizing {

// What a cluster has of one product.
struct ProductSupply {
  std::string product;        // short name of the catalogue
  int64_t memory_mib = 0;     // of one GPU, from the node's label; 0: the catalogue's
  int64_t gpus_per_node = 0;  // of the largest node; 0: the catalogue's
  int64_t nodes = 0;          // 0: as many as it takes (no cluster is asked)

  bool operator==(const ProductSupply&) const = default;
};

struct PlanRequest {
  std::shared_ptr<const Catalogue> catalogue;  // null: Catalogue::Default()
  ModelShape shape;
  std::vector<ProductSupply> supply;  // empty: every real product of the catalogue
  std::vector<int64_t> counts;        // empty: the proposed ones, from the smallest that fits
  int64_t least_gpus = 1;             // bounds of the search where no counts are given; both ends are tried
  int64_t most_gpus = 0;              // 0: 1,024, and the fastest is looked for where doubling still pays
  int64_t per_node = 0;               // 0: chosen
  api::Strategy strategy = api::Strategy::kAuto;
  api::Precision precision = api::Precision::kBf16;
  int64_t sequence_length = 4096;
  int64_t micro_batch = 1;  // 0: the fastest power of two that fits
  int64_t global_batch = 512;
  // Our trainer runs it: its operations keep less than plain eager ones, it does not recompute activations, and any
  // number of ranks may share a global batch. A user's own program takes exactly micro batch x accumulation x ranks.
  bool bundled_trainer = false;
  bool exact_sums = false;  // our trainer's determinism over world sizes: gradients are added as 64-bit integers
  // Tried, each with every strategy: what costs time is taken only where it gains more than it costs, or nothing fits
  // without it.
  std::vector<Checkpointing> checkpointing = {Checkpointing::kNone, Checkpointing::kFull};
  std::vector<Offload> offloads = {Offload::kNone};
  Optimizer optimizer = Optimizer::kAdamW;
  double momentum = 0;  // of kSgd; 0: none, and no state
  Adapter adapter;
  bool flash_attention = true;
  int64_t tensor_parallel = 1;    // GPUs that share each matrix product
  int64_t pipeline_parallel = 1;  // stages that share the layers
  int64_t keep_last = 3;          // checkpoints on disk besides the one that is being written
  // What a run of this job measured against its plan; 1: nothing is known.
  Corrections corrections;
  double time_correction = 1;  // measured / planned step seconds

  // What the choice among the options is made by. Without a price the cheapest is the one of the fewest GPU-hours.
  api::Goal goal = api::Goal::kCheapest;
  std::optional<double> max_hours;  // a constraint, if hours are known
  std::optional<double> max_cost;   // a constraint, if costs are known

  // Time: of one GPU of the (first) product, or from the tokens to train on.
  std::optional<double> single_gpu_hours;
  std::optional<double> tokens;
  std::map<std::string, double> prices;  // per GPU-hour by short name; "" is the price of every other product. A price
                                         // of the catalogue counts where neither is given
  bool round_hours = false;              // whole hours, and costs of whole hours
};

struct PlanOption {
  std::string product;
  int64_t gpus = 0;
  int64_t per_node = 0;
  api::Strategy strategy = api::Strategy::kDdp;
  int64_t shard_ranks = 1;  // ranks that share one copy of the state
  int64_t replicas = 1;     // such copies; more than one under FSDP is HSDP
  Checkpointing checkpointing = Checkpointing::kNone;
  Offload offload = Offload::kNone;
  bool reduce_once = false;  // gradients are kept whole and reduced with the last micro-batch of a step
  int64_t micro_batch = 0;
  int64_t accumulation = 0;
  int64_t effective_batch = 0;  // sequences per optimizer step
  int64_t padding = 0;          // further ones of no weight, with which our trainer fills the last micro-batches
  bool fits = false;            // the full estimate
  bool tight = false;           // it fits, but takes over 90 % of what the driver reports
  bool state_fits = false;      // the rule of thumb, 16 P / N
  int64_t memory_bytes = 0;     // what the label says
  PerGpuBytes bytes;
  HostBytes host;
  double mfu = 0;                           // of one GPU at this micro batch; 0: not modelled
  double efficiency = 1;                    // planned: of `gpus` times one GPU
  double physical_efficiency = 1;           // expected, without stragglers, data loading and stalls
  double speedup = 1;                       // over one GPU of the product: gpus x efficiency
  std::optional<double> step_seconds;       // planned, of one optimizer step
  std::optional<double> tokens_per_second;  // planned, of all GPUs
  std::optional<double> hours;
  std::optional<double> cost;
  int64_t checkpoint_bytes = 0;
  std::string why;
};

// FSDP with more than one replica is HSDP.
api::Strategy StrategyOf(const PlanOption& option);
api::ActivationCheckpointing CheckpointingOf(const PlanOption& option);
api::OffloadTo OffloadOf(const PlanOption& option);
// "FSDP", "FSDP, full recomputation, optimizer on the host": an option without its size.
std::string MethodOf(const PlanOption& option);

struct ProductMinimum {
  std::string product;
  std::optional<int64_t> state_only;  // smallest proposed count that holds 16 P
  std::optional<int64_t> full;        // smallest proposed count that trains
  std::string difference;             // "State fits, training does not: ..."; empty where the two agree
};

// Sizes of the chosen product that make sense: below, it does not fit; above, the next doubling gains too little.
struct PlanRange {
  std::string product;
  int64_t minimum = 0;
  int64_t maximum = 0;
  std::string why_maximum;  // "8 -> 16 gains 1.31x", "the limit of 64 GPUs"
};

struct RunnerUp {
  PlanOption option;
  std::string why_lost;  // "ZeRO2 on 2 x H100-SXM: 4.1 GiB over", "4 x H100-SXM: 1.7 h faster, costs 1,667 more"
};

struct WayOut {
  std::string what;  // "16 x H200-SXM", "full activation checkpointing", "sequence 2048", "LoRA"
  PlanOption option;
};
struct WaysOut {
  std::string too_big;       // which term of which option, and by how much
  std::vector<WayOut> ways;  // at most three, the cheapest first
};

struct Plan {
  ModelShape shape;
  int64_t state_bytes = 0;  // 16 P
  PlanRequest request;      // as asked, defaults filled in
  std::vector<ProductMinimum> minimums;
  std::optional<int64_t> minimum_state_only;  // over all products
  std::optional<int64_t> minimum_full;
  std::vector<PlanOption> options;
  std::optional<size_t> chosen;       // index into options; none: nothing fits, or the limits are met by none
  std::string not_chosen;             // why none is chosen
  std::optional<PlanRange> range;     // of the chosen product
  std::vector<RunnerUp> runners_up;   // at most kRunnersUp, the nearest first
  std::vector<std::string> advice;    // sentences: what two, four and eight GPUs are good for, with their numbers
  std::vector<std::string> warnings;  // sentences: "8 over PCIe: 4.6x, not 8x"
  std::optional<WaysOut> ways_out;    // where nothing of what was asked for fits
};
inline constexpr size_t kRunnersUp = 6;

// Counts that divide a node evenly, then whole nodes: 1, 2, 4, 8, 16, 24 ... for 8 GPUs per node; up to `limit`.
std::vector<int64_t> ProposedCounts(int64_t gpus_per_node, int64_t limit);

// GPUs per node for `gpus`: one node if it holds them, else equal shares on the fewest nodes; `wanted` (0: none) must
// divide. Errors: kInvalidArgument.
Result<int64_t> PerNodeFor(int64_t gpus, int64_t gpus_per_node, int64_t wanted);

// Errors: kInvalidArgument (unknown product with the nearest names, count above the global batch, wrong numbers).
// That nothing fits is not an error: the options say so.
Result<Plan> MakePlan(const PlanRequest& request);

// What a job asks for, products aside: its own numbers, its goal and limits, and what its runs have measured.
PlanRequest RequestOf(const api::TrainingJob& job, ModelShape shape, std::shared_ptr<const Catalogue> catalogue);

// The frozen plan of a job on a cluster. Counts and micro batches are the job's where it gives them.
// Errors: kInvalidArgument (the job cannot be right), kResourceExhausted ("DoesNotFit: ..." with the numbers and the
// ways out, or a cluster without the products or the nodes).
// `catalogue` null: Catalogue::Default().
Result<api::PlanStatus> PlanJob(const api::TrainingJob& job, const std::vector<ProductSupply>& supply,
                                std::shared_ptr<const Catalogue> catalogue = nullptr);

}  // namespace trainyard::sizing

// The plan: which strategy, how many GPUs of which product, micro batch and accumulation, why, how long and for how
// much. Thread-safety: pure functions on plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/sizing/memory.h"
#include "operator/sizing/shape.h"

namespace trainyard::sizing {

// What a cluster has of one product.
struct ProductSupply {
  std::string product;        // short name of the catalogue
  int64_t memory_mib = 0;     // of one GPU, from the node's label; 0: the catalogue's
  int64_t gpus_per_node = 0;  // of the largest node; 0: the catalogue's
  int64_t nodes = 0;          // 0: as many as it takes (no cluster is asked)
};

struct PlanRequest {
  ModelShape shape;
  std::vector<ProductSupply> supply;  // empty: every real product of the catalogue
  std::vector<int64_t> counts;        // empty: the proposed ones, from the smallest that fits
  int64_t per_node = 0;               // 0: chosen
  api::Strategy strategy = api::Strategy::kAuto;
  api::Precision precision = api::Precision::kBf16;
  int64_t sequence_length = 4096;
  int64_t micro_batch = 1;  // 0: the largest power of two that fits
  int64_t global_batch = 512;
  // Our trainer runs it: its operations keep less than plain eager ones, and it does not recompute activations.
  bool bundled_trainer = false;
  // In order of preference; the first with which some strategy fits is taken.
  std::vector<Checkpointing> checkpointing = {Checkpointing::kNone, Checkpointing::kFull};
  // Time: of one GPU of the (first) product, or from the tokens to train on.
  std::optional<double> single_gpu_hours;
  std::optional<double> tokens;
  std::map<std::string, double> prices;  // per GPU-hour by short name; "" is the price of every other product
  bool round_hours = false;              // whole hours, and costs of whole hours
};

struct PlanOption {
  std::string product;
  int64_t gpus = 0;
  int64_t per_node = 0;
  api::Strategy strategy = api::Strategy::kDdp;
  int64_t micro_batch = 0;
  int64_t accumulation = 0;
  Checkpointing checkpointing = Checkpointing::kNone;
  bool fits = false;         // the full estimate
  bool state_fits = false;   // the rule of thumb, 16 P / N
  int64_t memory_bytes = 0;  // what the label says
  PerGpuBytes bytes;
  double efficiency = 1;           // planned
  double physical_efficiency = 1;  // expected, without stragglers, data loading and stalls
  std::optional<double> hours;
  std::optional<double> cost;
  int64_t checkpoint_bytes = 0;
  std::string why;
};

struct ProductMinimum {
  std::string product;
  std::optional<int64_t> state_only;  // smallest proposed count that holds 16 P
  std::optional<int64_t> full;        // smallest proposed count that trains
  std::string difference;             // "State fits, training does not: ..."; empty where the two agree
};

struct Plan {
  ModelShape shape;
  int64_t state_bytes = 0;  // 16 P
  PlanRequest request;      // as asked, defaults filled in
  std::vector<ProductMinimum> minimums;
  std::optional<int64_t> minimum_state_only;  // over all products
  std::optional<int64_t> minimum_full;
  std::vector<PlanOption> options;
};

// Counts that divide a node evenly, then whole nodes: 1, 2, 4, 8, 16, 24 ... for 8 GPUs per node; up to `limit`.
std::vector<int64_t> ProposedCounts(int64_t gpus_per_node, int64_t limit);

// GPUs per node for `gpus`: one node if it holds them, else equal shares on the fewest nodes; `wanted` (0: none) must
// divide. Errors: kInvalidArgument.
Result<int64_t> PerNodeFor(int64_t gpus, int64_t gpus_per_node, int64_t wanted);

// Errors: kInvalidArgument (unknown product with the nearest names, count above the global batch, wrong numbers).
// That nothing fits is not an error: the options say so.
Result<Plan> MakePlan(const PlanRequest& request);

// The frozen plan of a job on a cluster. Counts and micro batches are the job's where it gives them.
// Errors: kInvalidArgument (the job cannot be right), kResourceExhausted ("DoesNotFit: ..." with the numbers and the
// ways out, or a cluster without the products or the nodes).
Result<api::PlanStatus> PlanJob(const api::TrainingJob& job, const std::vector<ProductSupply>& supply);

}  // namespace trainyard::sizing

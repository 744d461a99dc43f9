// The sharded data-parallel engine: stages 0 (DDP), 1, 2 (ZeRO) and 3 (FSDP) in one code path. A unit of parameters is
// cut into per-parameter row shards; what differs between stages is who owns rows, when gradients are reduced and
// whether full tensors are freed after use. The ranks form a mesh of replicas x owners (dist::Mesh): owners divide the
// rows, replicas hold the same ones. There is one owner at stage 0 (everyone owns all rows), and by default one replica
// else; several of both is HSDP: gradients are reduced to the rows inside a shard group and summed over the replicas.
//
//                      weights             gradients (fp32)         master            optimizer state
//   stage 0            full                full, summed in place    own all           own all
//   stage 1            full                full, then own rows      own rows          own rows
//   stage 2            full                own rows                 own rows          own rows
//   stage 3            gathered in use     own rows                 own rows          own rows
//
// With reduce_each_micro_batch off, stages 2 and 3 keep gradients as stage 1 does: one reduction per step for 4 bytes
// per parameter. In float (and double) the master weights of stages 0-2 are rows of the full tensors. A frozen
// parameter has weights in the compute type, or in NF4, and nothing else. At world size 1 nothing is gathered, copied
// out or reduced. Sums over ranks are in rank order: same bits on every rank and run.
//
// With offload the device has weights and gradients only, at stage 3 no more weights than are in use, also on one rank.
// Master weights and optimizer state are in host memory (kCpu) or in a file of each rank (kNvme, offload_store.h), and
// the update runs on the host, to which it copies gradients. What full tensors are made from (docs/parallelism.md):
//                      kCpu                      kNvme
//   stages 0-2         masters                   nothing: the update writes own rows of them
//   stage 3            masters                   own rows in the compute type in host memory, in FP32 the masters
//
// A step:  BeginStep(); for each micro-batch { loss = model.LossSum(..); Backward(loss, last); } FinishBackward();
//          norm = GradNorm(scale); Step(lr, scale * clip, step);
//
// With exact sums (gradient_sums.h) gradients are added as 64-bit integers in fixed point, and norms without rounding,
// so that the same micro-batches give the same bits at every stage and world size. Rarely, and at the first step of a
// model of unusual gradients, FinishBackward then says that the step has to be run again.
//
// Thread-safety: one engine belongs to one rank's thread; ranks may be threads of one process. Every rank must make the
// same calls in the same order. Communication failures leave as dist::CommError (also out of Backward).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/engine/memory.h"
#include "trainer/engine/offload.h"
#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"
#include "trainer/optim/optimizer.h"

namespace trainyard::device {
class Device;
}
namespace trainyard::dist {
class Comm;
class Mesh;
}  // namespace trainyard::dist

namespace trainyard::engine {

// Which parameters get initial weights. The others are loaded before anything reads them, and drawing those of a large
// model would take minutes.
enum class Draw { kAll, kTrained, kNone };

struct EngineOptions {
  int stage = 0;                              // 0..3
  at::ScalarType compute_dtype = at::kFloat;  // kFloat, kBFloat16 (fp32 master), or kDouble (everything double)
  int max_inflight_reduces = 2;               // reduce inputs alive at once, at least 1 (stages 2 and 3)
  bool reduce_each_micro_batch = true;        // stages 2 and 3: false keeps whole gradients until the last one
  int64_t bucket_bytes = 25 << 20;            // stage 0: the largest reduction; small parameters share one
  bool prefetch = true;                       // gather the next unit while this one computes
  Offload offload = Offload::kNone;           // where master weights and optimizer state are
  OffloadPlace offload_place;                 // of kNvme
  bool poison_freed = false;                  // for tests: freed weights and used-up buffers are NaN, not gone
  uint64_t seed = 0;                          // of the initial weights
  Draw draw = Draw::kAll;                     // what gets initial weights
  optim::Options optimizer;                   // AdamW with its defaults
  // Above 0: exact sums, of the gradients of so many micro-batches of a step at most, those of all ranks counted and
  // padding left out. Not with kDouble.
  int64_t exact_micro_batches = 0;
};

// A tensor of the optimizer (optim::State) as checkpoints see it: of which whole this rank writes and loads which rows.
struct StateBox {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> global_shape;
  RowRange rows;  // those of the parameter, or, of what every owner has whole, a share of all
};

// One parameter as checkpoints see it: the rows that this rank writes and must load. Tensors are views of live state,
// contiguous, in the master type (a frozen parameter: in the compute type), possibly of zero rows. With NVMe offload
// those that are in the file are valid only while their unit is visited, and undefined else.
struct ShardView {
  std::string name;
  int unit = 0;   // Step updates units in this order
  int index = 0;  // of the parameter in its unit
  std::vector<int64_t> global_shape;
  RowRange rows;
  at::Tensor master;                // of a parameter in NF4 its packed rows, uint8 [rows, ParamSpec::kept_row_size()]
  std::vector<at::Tensor> state;    // one for each of optim::States, in that order; frozen: none
  std::vector<StateBox> state_box;  // what they are
};

class Engine final : public ParameterHost {
 public:
  // Initialises this rank's rows; no communication. `device` and `mesh` must outlive the engine. Stage 0 needs a mesh
  // with shard groups of one rank. Throws std::invalid_argument for impossible options, OffloadError (offload_file.h)
  // when the file of NVMe offload cannot be had; then Step, VisitShards, OnLoaded and ParameterHash may throw it too.
  Engine(device::Device& device, dist::Mesh& mesh, std::vector<UnitSpec> units, EngineOptions options);
  // The same over all ranks of `world`: all are replicas at stage 0, and owners else.
  Engine(device::Device& device, dist::Comm& world, std::vector<UnitSpec> units, EngineOptions options);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const at::Tensor& Param(int unit, int index) const override;
  void PreForward(int unit) override;
  at::Tensor PostForward(int unit, at::Tensor y) override;
  void BeginRecompute() override;
  void EndRecompute() override;

  // Forgets the gradients of the previous step.
  void BeginStep();
  // loss_sum: scalar, a SUM over tokens. Gradients of each micro-batch are added up in the master type.
  // last_micro_batch: no further Backward before FinishBackward; stages 0 and 1 reduce now. padding: run for the
  // collectives only, its gradients count as nothing.
  void Backward(at::Tensor loss_sum, bool last_micro_batch, bool padding = false);
  // Waits for the reductions. After it gradients are complete; parameters that no micro-batch used have zeros.
  // With exact sums it is collective and may return false, on every rank: there are no gradients, and the step has to
  // be run again from BeginStep on, once. Throws std::logic_error when the same step then gives other gradients.
  bool FinishBackward();
  // What made FinishBackward return false, or GradNorm NaN, with exact sums: "layers.1.weight has gradients ...".
  const std::string& ExactReason() const;
  // State of exact sums that training goes on with: the shift of each parameter, by name. Setting is before a step;
  // names that are missing start afresh. Empty without exact sums.
  std::map<std::string, int> ExactShifts() const;
  void SetExactShifts(const std::map<std::string, int>& shifts);

  // L2 norm of scale * gradient over all parameters of all ranks, summed in fp64; same bits on every rank. With exact
  // sums the rows' sums of squares are added without rounding, so that it does not depend on who owns them either.
  double GradNorm(double scale);
  // The optimizer's update of the rows that this rank owns, with gradient grad_scale * grad; step counts from 1. No
  // weight decay where the model says so. On the CPU the result does not depend on who owns which rows.
  void Step(double lr, double grad_scale, int64_t step);

  // Called by Step before it updates anything of a unit, units in ascending order: whoever still reads the state of the
  // step before has to be done with that unit when it returns. Nothing else changes that state but a load. Null:
  // nobody.
  void BeforeUpdate(std::function<void(int unit)> hook);

  // Calls fn(unit, its shards) for one unit after another. Replicas divide the rows that they all hold by the shard
  // rule, so that nothing is written twice. `writes`: fn may overwrite the tensors, all of them or some. No other call
  // of the engine from fn.
  void VisitShards(bool writes, const std::function<void(int unit, const std::vector<ShardView>& shards)>& fn);
  // All of them at once, in the order of their units.
  std::vector<ShardView> Shards();
  bool state_in_memory() const;  // false with NVMe offload
  // Copies rows.size() rows of a shard to host memory: its master (`tensor` 0) or its state (1 and on). Any thread,
  // from when Step or a load has returned until BeforeUpdate of the unit has.
  void CopyShard(int unit, int index, int tensor, void* to) const;
  // After tensors of the shards were overwritten on every rank. Collective.
  void OnLoaded();

  // The gradient of the rows that Shards() has of parameter `index` of `unit`, after FinishBackward; master type;
  // undefined for a frozen parameter. For tests and tools.
  at::Tensor GradRows(int unit, int index) const;

  // 16 hex digits over the master weights, independent of world size, mesh and stage: the sum modulo 2^64 over all rows
  // of XXH3-64(row bytes, seed of name and row). Collective.
  std::string ParameterHash();

  MemoryReport memory() const;
  const EngineOptions& options() const;
  int unit_count() const;
  const UnitSpec& unit(int index) const;
  int64_t parameter_count() const;  // of the whole model, a tied weight once

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::engine

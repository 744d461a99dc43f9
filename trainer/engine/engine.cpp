// Forward and backward of the engine. The update is in update.cpp, state for checkpoints and figures in state.cpp.
#include "trainer/engine/engine.h"

#include <stdexcept>
#include <utility>

#include "trainer/device/device.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/engine/exact_sum.h"
#include "trainer/engine/row_squares.h"
#include "trainer/optim/clip.h"

namespace trainyard::engine {
namespace {

// Runs after autograd has added a parameter's gradient up: once per backward pass, however often it was used.
class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit GradientHook(std::function<void()> fn) : fn_(std::move(fn)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    fn_();
    return outputs;
  }

 private:
  std::function<void()> fn_;
};

Layout MakeLayout(device::Device& device, dist::Mesh& mesh, const EngineOptions& options, MemoryReport* memory) {
  if (options.stage < 0 || options.stage > 3) throw std::invalid_argument("engine: stage must be 0, 1, 2 or 3");
  if (options.compute_dtype != at::kFloat && options.compute_dtype != at::kBFloat16 &&
      options.compute_dtype != at::kDouble) {
    throw std::invalid_argument("engine: compute type must be float, bfloat16 or double");
  }
  if (options.stage == 0 && mesh.shard().size() > 1) {
    throw std::invalid_argument("engine: stage 0 shards nothing, so its shard groups are of one rank");
  }
  Layout layout;
  layout.device = &device;
  layout.world = &mesh.world();
  layout.shard = &mesh.shard();
  layout.replicate = &mesh.replicate();
  layout.memory = memory;
  layout.stage = options.stage;
  layout.owners = mesh.shard().size();
  layout.owner = mesh.shard().rank();
  layout.replicas = mesh.replicate().size();
  layout.replica = mesh.replicate().rank();
  layout.compute = options.compute_dtype;
  layout.master = options.compute_dtype == at::kDouble ? at::kDouble : at::kFloat;
  layout.offload = options.offload;
  layout.frees = options.stage == 3 && (layout.owners > 1 || layout.offloads());
  layout.aliased = layout.compute == layout.master && !layout.frees && layout.offload != Offload::kCpu;
  layout.stored_master = layout.offload == Offload::kNvme && layout.compute != layout.master;
  layout.poison = options.poison_freed;
  layout.optimizer = options.optimizer;
  optim::CheckMasters(options.optimizer, layout.master);
  if (options.exact_micro_batches > 0 && optim::SumsOverRows(options.optimizer)) {
    throw std::invalid_argument("engine: Adafactor sums columns over ranks, which exact sums are not made for");
  }
  return layout;
}

Units MakeUnits(const Layout& layout, std::vector<UnitSpec> specs) {
  Units units;
  for (UnitSpec& spec : specs) units.push_back(std::make_unique<Unit>(layout, std::move(spec)));
  return units;
}

std::unique_ptr<OffloadStore> MakeStore(const Layout& layout, Units& units, const EngineOptions& options) {
  if (options.offload != Offload::kNvme) return nullptr;
  if (options.offload_place.directory.empty()) {
    throw std::invalid_argument("engine: NVMe offload needs a directory for its file");
  }
  return std::make_unique<OffloadStore>(layout, units, options.offload_place);
}

std::optional<GradientSums> MakeExact(const Units& units, const EngineOptions& options) {
  if (options.exact_micro_batches <= 0) return std::nullopt;
  if (options.compute_dtype == at::kDouble) {
    throw std::invalid_argument("engine: exact sums are of float and bfloat16 gradients");
  }
  std::vector<std::string> names;
  for (const auto& unit : units) {
    for (const Parameter& p : unit->params()) names.push_back(p.spec.name);
  }
  return GradientSums(std::move(names), options.exact_micro_batches);
}

}  // namespace

Engine::Impl::Impl(device::Device& device, dist::Mesh& mesh, std::vector<UnitSpec> specs, EngineOptions opts)
    : options(opts),
      layout(MakeLayout(device, mesh, opts, &memory)),
      units(MakeUnits(layout, std::move(specs))),
      store(MakeStore(layout, units, opts)),
      exact(MakeExact(units, opts)),
      reducer(MakeReducer(layout, units,
                          {.max_inflight = opts.max_inflight_reduces,
                           .each_micro_batch = opts.reduce_each_micro_batch,
                           .bucket_bytes = opts.bucket_bytes,
                           .exact = exact ? &*exact : nullptr})) {
  if (opts.draw != Draw::kNone) {
    Visit(Access::kFill, [&](int u) { units[u]->Initialise(opts.seed, /*frozen=*/opts.draw == Draw::kAll); });
  }
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t i = 0; i < units[u]->params().size(); ++i) {
      Parameter& p = units[u]->params()[i];
      if (p.spec.frozen) continue;
      p.accumulator = torch::autograd::impl::grad_accumulator(p.full);
      p.accumulator->add_post_hook(std::make_unique<GradientHook>([this, u, i] {
        units[u]->Release(static_cast<int>(i));
        if (reducer->Take(static_cast<int>(u), static_cast<int>(i))) UnitDone(static_cast<int>(u));
      }));
    }
  }
}

void Engine::Impl::UnitDone(int u) {
  // The last gradient of a unit says nothing of its frozen weights: backward may still read them.
  if (!units[u]->has_frozen()) units[u]->Reshard();
  reducer->Complete(u);
}

// Forward order of the previous pass tells what to gather next. A pass starts over when its first unit comes again with
// nothing open, so that evaluation passes need no marks.
void Engine::Impl::Enter(int u) {
  if (open_units == 0 && !forward.empty() && u == forward.front() &&
      (forward.size() >= recorded.size() || recorded[forward.size()] != u)) {
    EndPass();
  }
  const size_t position = forward.size();
  forward.push_back(u);
  ++open_units;
  matches = matches && position < recorded.size() && recorded[position] == u;
}

void Engine::Impl::EndPass() {
  recorded = std::move(forward);
  forward.clear();
  matches = true;
  open_units = 0;
}

void Engine::Impl::PreBackward(size_t use, int u) {
  if (recomputing > 0) {  // gradients of such a stretch come all at its end, too late to free its units
    const int before = std::exchange(passed, u);
    if (before >= 0 && before != u) units[before]->Reshard();
  } else if (const int before = std::exchange(left, u); before >= 0 && before != u) {
    // Backward has left it, and what is frozen there was of use to the last moment.
    Unit& after = *units[before];
    if (after.has_frozen() && after.spec().reshard_after_forward) after.Reshard();
  }
  if (use < uses.size()) uses.resize(use);
  Unit& unit = *units[u];
  unit.UnshardAsync();
  unit.WaitUnshard();
  // Before this unit's reduction is queued, else a backend with one queue would not overlap it.
  if (Prefetches() && use > 0 && use <= uses.size()) units[uses[use - 1]]->UnshardAsync();
}

Engine::Engine(device::Device& device, dist::Mesh& mesh, std::vector<UnitSpec> units, EngineOptions options)
    : impl_(std::make_unique<Impl>(device, mesh, std::move(units), options)) {}

Engine::Engine(device::Device& device, dist::Comm& world, std::vector<UnitSpec> units, EngineOptions options) {
  auto mesh = std::make_unique<dist::Mesh>(world, options.stage == 0 ? 1 : world.size());
  impl_ = std::make_unique<Impl>(device, *mesh, std::move(units), options);
  impl_->own_mesh = std::move(mesh);
}

Engine::~Engine() = default;

const at::Tensor& Engine::Param(int unit, int index) const {
  const Unit& u = *impl_->units[unit];
  TORCH_CHECK(u.full(), "engine: parameters of ", u.spec().name, " are read outside PreForward and PostForward");
  return u.params()[index].full;
}

void Engine::PreForward(int unit) {
  Impl& s = *impl_;
  if (s.recomputing == 0) s.Enter(unit);
  s.units[unit]->UnshardAsync();
  s.units[unit]->WaitUnshard();
  if (s.recomputing > 0) return;
  if (s.Prefetches() && s.matches && s.forward.size() < s.recorded.size()) {
    s.units[s.recorded[s.forward.size()]]->UnshardAsync();
  }
}

at::Tensor Engine::PostForward(int unit, at::Tensor y) {
  Impl& s = *impl_;
  if (s.recomputing == 0) --s.open_units;
  if (!s.layout.frees) return y;
  Unit& u = *s.units[unit];
  const bool graph = at::GradMode::is_enabled() && y.requires_grad();
  if (!graph) {
    u.Reshard();
    return y;
  }
  const size_t use = s.uses.size();
  s.uses.push_back(unit);
  // The last unit of the pass is the first that backward needs.
  const bool last = s.recomputing == 0 && s.matches && s.forward.size() == s.recorded.size();
  if (u.spec().reshard_after_forward && !last) u.Reshard();
  // A hook on the output runs right before the backward of what made it: an identity node without the node.
  y.register_hook([impl = impl_.get(), use, unit](const at::Tensor& grad) {
    impl->PreBackward(use, unit);
    return grad;
  });
  return y;
}

void Engine::BeginRecompute() { ++impl_->recomputing; }

void Engine::EndRecompute() {
  Impl& s = *impl_;
  const int passed = std::exchange(s.passed, -1);
  if (passed >= 0) s.units[passed]->Reshard();
  --s.recomputing;
}

void Engine::BeginStep() {
  impl_->reducer->BeginStep();
  impl_->uses.clear();
  impl_->settled = !impl_->exact;
}

void Engine::Backward(at::Tensor loss_sum, bool last_micro_batch, bool padding) {
  Impl& s = *impl_;
  s.reducer->BeginMicroBatch(last_micro_batch, padding);
  loss_sum.backward();
  at::NoGradGuard no_grad;
  // Units with unused parameters, in an order that all ranks share.
  for (int u = 0; u < static_cast<int>(s.units.size()); ++u) {
    if (s.reducer->Pending(u)) s.UnitDone(u);
  }
  for (auto& unit : s.units) unit->Reshard();  // gathered by a prefetch that nothing used
  s.uses.clear();
  s.left = -1;
  s.EndPass();
}

bool Engine::FinishBackward() {
  at::NoGradGuard no_grad;
  impl_->reducer->Finish();
  if (impl_->exact) impl_->settled = impl_->reducer->Settle();
  return impl_->settled;
}

double Engine::Impl::ExactNorm() {
  ExactSum sum;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t i = 0; i < units[u]->params().size(); ++i) {
      const at::Tensor rows = SavedGradient(static_cast<int>(u), static_cast<int>(i));
      if (!rows.defined()) continue;
      for (const double row : RowSquares(rows)) sum.Add(row);
    }
  }
  const at::Tensor words = at::from_blob(sum.words().data(), {ExactSum::kWords}, at::kLong);
  const at::Tensor device_words = words.to(layout.device->torch());
  layout.world->AllReduce(device_words, dist::Reduce::kInt64, {.label = "gradient norm"})->Wait();
  if (!device_words.is_cpu()) words.copy_(device_words);
  return std::sqrt(sum.Value());
}

double Engine::GradNorm(double scale) {
  Impl& s = *impl_;
  at::NoGradGuard no_grad;
  TORCH_CHECK(s.settled, "GradNorm before FinishBackward has returned true");
  if (s.exact) return std::abs(scale) * s.ExactNorm();
  std::vector<double> sums;
  for (size_t u = 0; u < s.units.size(); ++u) {
    for (size_t i = 0; i < s.units[u]->params().size(); ++i) {
      const at::Tensor rows = GradRows(static_cast<int>(u), static_cast<int>(i));
      if (rows.defined()) sums.push_back(optim::SumSquares(rows));
    }
  }
  const auto count = static_cast<int64_t>(sums.size());
  const int ranks = s.layout.ranks();
  at::Tensor all = at::from_blob(sums.data(), {1, count}, at::kDouble);
  if (ranks > 1) {
    const at::Tensor mine = all.to(s.layout.device->torch());
    at::Tensor gathered = at::empty({ranks, count}, mine.options());
    s.layout.world->AllGather(gathered, mine, {.label = "gradient norm"})->Wait();
    all = gathered.to(at::kCPU);
  }
  const double* value = all.const_data_ptr<double>();
  double total = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    double parameter = 0.0;
    for (int r = 0; r < ranks; ++r) parameter += value[r * count + i];
    total += parameter;
  }
  return std::abs(scale) * std::sqrt(total);
}

}  // namespace trainyard::engine

// One owner and several replicas: every rank holds all gradients, and all sum them in place.
#include <algorithm>
#include <string>

#include "trainer/dist/comm.h"
#include "trainer/engine/buckets.h"
#include "trainer/engine/reduce.h"

namespace trainyard::engine {
namespace {

class ReplicatedReducer final : public Reducer {
 public:
  ReplicatedReducer(const Layout& layout, Units& units, const ReduceOptions& options);

  void Finish() override;

 protected:
  void Clear() override { std::fill(filled_.begin(), filled_.end(), false); }
  void Add(int unit, int index, at::Tensor grad) override;
  void Completed(int unit) override;
  at::Tensor Sum(int unit, int index) const override;
  void Drain(const std::function<void(int, int)>& read) override;

 private:
  // A trained parameter in the memory of its buckets.
  struct Place {
    int unit = 0, index = 0;
    size_t block = 0;
    int64_t offset = 0;
  };
  struct Block {
    int64_t size = 0;
    at::Tensor sums;  // there from the start; with exact sums given back once it is read, until the next gradient
  };

  void Ready(size_t place);
  void LaunchReady();

  std::vector<Place> places_;               // in the order in which backward is expected to bring gradients
  std::vector<std::vector<size_t>> place_;  // by unit and index
  std::vector<Bucket> buckets_;             // of places
  std::vector<size_t> block_;               // by bucket
  std::vector<Block> blocks_;
  std::vector<bool> filled_;  // by place: the sum has something of this step
  std::vector<bool> ready_;   // by place, in the last micro-batch: nothing more comes
  size_t launched_ = 0;       // buckets under way or done: in their order, so that all ranks make the same calls
  std::vector<dist::WorkPtr> works_;
};

ReplicatedReducer::ReplicatedReducer(const Layout& layout, Units& units, const ReduceOptions& options)
    : Reducer(layout, units, options.exact) {
  std::vector<int64_t> sizes;
  for (const auto& unit : units) place_.emplace_back(unit->params().size(), 0);
  for (size_t u = units.size(); u-- > 0;) {
    const auto& params = units[u]->params();
    for (size_t i = params.size(); i-- > 0;) {
      if (params[i].spec.frozen) continue;
      place_[u][i] = places_.size();
      places_.push_back({static_cast<int>(u), static_cast<int>(i)});
      sizes.push_back(params[i].spec.numel());
    }
  }
  filled_.assign(places_.size(), false);
  ready_.assign(places_.size(), false);
  buckets_ = PlanBuckets(sizes, options.bucket_bytes / static_cast<int64_t>(c10::elementSize(SumType())));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (b == 0 || buckets_[b].first != buckets_[b - 1].first) {
      int64_t size = 0;
      for (size_t place = buckets_[b].first; place < buckets_[b].end; ++place) {
        places_[place].block = blocks_.size();
        places_[place].offset = size;
        size += sizes[place];
      }
      blocks_.push_back({size, NewSums(size)});
    }
    block_.push_back(blocks_.size() - 1);
  }
}

at::Tensor ReplicatedReducer::Sum(int unit, int index) const {
  const Place& place = places_[place_[unit][index]];
  const ParamSpec& spec = units_[unit]->params()[index].spec;
  return blocks_[place.block].sums.narrow(0, place.offset, spec.numel()).view(spec.shape);
}

void ReplicatedReducer::Add(int unit, int index, at::Tensor grad) {
  const size_t place = place_[unit][index];
  TORCH_CHECK(!ready_[place], "a second gradient of ", units_[unit]->params()[index].spec.name,
              " in one backward pass, after its sum over the ranks began");
  Block& block = blocks_[places_[place].block];
  if (!block.sums.defined()) block.sums = NewSums(block.size);
  Put(unit, index, grad, filled_[place], Sum(unit, index));
  filled_[place] = true;
  if (last_) Ready(place);
}

void ReplicatedReducer::Completed(int unit) {
  if (!last_) return;
  for (size_t i = 0; i < place_[unit].size(); ++i) {
    const size_t place = place_[unit][i];
    if (units_[unit]->params()[i].spec.frozen || ready_[place]) continue;
    Block& block = blocks_[places_[place].block];
    if (!block.sums.defined()) block.sums = NewSums(block.size);
    if (!filled_[place]) Sum(unit, static_cast<int>(i)).zero_();
    Ready(place);
  }
}

void ReplicatedReducer::Ready(size_t place) {
  ready_[place] = true;
  LaunchReady();
}

void ReplicatedReducer::LaunchReady() {
  for (; launched_ < buckets_.size(); ++launched_) {
    const Bucket& bucket = buckets_[launched_];
    for (size_t place = bucket.first; place < bucket.end; ++place) {
      if (!ready_[place]) return;
    }
    const Place& first = places_[bucket.first];
    const std::string more = bucket.end - bucket.first > 1 ? " and on" : "";
    works_.push_back(layout_.replicate->AllReduce(
        blocks_[block_[launched_]].sums.narrow(0, bucket.lo, bucket.hi - bucket.lo), SumKind(),
        {.label = "reduce " + units_[first.unit]->params()[first.index].spec.name + more}));
  }
}

void ReplicatedReducer::Finish() {
  TORCH_CHECK(launched_ == buckets_.size(), "FinishBackward without a last micro-batch");
  for (const dist::WorkPtr& work : works_) work->Wait();
  works_.clear();
  launched_ = 0;
  std::fill(ready_.begin(), ready_.end(), false);
}

void ReplicatedReducer::Drain(const std::function<void(int, int)>& read) {
  for (size_t place = 0; place < places_.size(); ++place) {
    read(places_[place].unit, places_[place].index);
    const size_t block = places_[place].block;
    if (place + 1 == places_.size() || places_[place + 1].block != block) Release(blocks_[block].sums);
  }
}

}  // namespace

std::unique_ptr<Reducer> MakeReplicatedReducer(const Layout& layout, Units& units, const ReduceOptions& options) {
  return std::make_unique<ReplicatedReducer>(layout, units, options);
}

}  // namespace trainyard::engine

// What a job did at one size, out of its step log, and why it is no faster at another: the "speed does not grow"
// question as arithmetic. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::cli {

// Mean seconds of a step at one size, first steps left out.
struct SizeReport {
  int64_t gpus = 1;
  int64_t micro_batches = 1;  // in a global batch
  int64_t steps = 0;          // that the means are over
  double step_seconds = 0;
  double tokens_per_second = 0;
  // Parts of step_seconds. Means over the ranks, the optimizer and the rest are of rank 0.
  double data = 0;           // waiting for data
  double compute = 0;        // forward and backward
  double communication = 0;  // the least that any rank waited for its peers: what the slowest rank waits is transfer
  double imbalance = 0;      // what the ranks waited for the slowest: mean wait less `communication`
  double optimizer = 0;
  double other = 0;
  double slowest_excess = 0;  // by how much of the mean the rank that computes longest exceeds it
  int slowest_rank = 0;
  std::map<int64_t, double> losses;  // of each step, nine digits
};

// Reads a step log of `gpus` ranks (JSON lines: docs/contract.md). The ranks tell their figures every few steps; those
// up to the first time are warm-up. Errors: kDataLoss for a line that is not one of ours, kInvalidArgument for a log
// without figures of the ranks after the first.
Result<SizeReport> ReadStepLog(std::string_view text, int64_t gpus, int64_t micro_batches);

enum class Cause { kNone, kData, kCompute, kCommunication, kImbalance, kRounding, kOptimizer };

// Of each cause, the seconds per step by which `here` is slower than `base` divided by the ratio of GPUs.
struct Diagnosis {
  double speed_up = 1;    // tokens/s against base
  double efficiency = 1;  // speed_up over the ratio of GPUs
  std::map<Cause, double> lost;
  Cause cause = Cause::kNone;  // that with the most seconds, where efficiency is below 90 %
  std::string text;            // one sentence: what takes the time, with numbers, and what to do; empty for kNone
};
Diagnosis Diagnose(const SizeReport& base, const SizeReport& here);

// How the losses of two sizes compare.
struct LossComparison {
  int64_t steps = 0;             // that both have
  int64_t first_difference = 0;  // first step whose nine digits differ; 0: none
  double largest = 0;            // largest relative difference
  int64_t largest_step = 0;
  int64_t parts = 0;  // first step that differs by more than kSameLoss; 0: none
  std::string text;   // one sentence
};
inline constexpr double kSameLoss = 1e-3;  // relative: sums in another order differ by far less over a few steps
LossComparison CompareLosses(const SizeReport& base, const SizeReport& here);

// A table of all sizes against the first, for people.
std::string ScalingTable(const std::vector<SizeReport>& sizes);

}  // namespace trainyard::cli

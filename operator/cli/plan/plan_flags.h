// The flags of `trainyard plan` as given, and how they and the files they name become a request.
// Thread-safety: plain values; InputFrom reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/sizing/plan.h"

namespace trainyard::cli {

// Texts are checked by InputFrom rather than by the parser of the command line, so that every bad value is told in one
// line of one form: flag, value, what is right.
struct PlanFlags {
  std::string model;
  std::string config;
  std::string pretrained;
  std::string job;
  std::string catalogue;
  std::vector<std::string> products;
  std::vector<std::string> counts;
  std::string per_node;
  std::string strategy;
  std::string precision;
  std::string optimizer;
  std::string momentum;
  std::string adapter;
  std::string adapter_rank;
  std::vector<std::string> adapter_targets;
  std::vector<std::string> offloads;
  std::string tensor_parallel;
  std::string pipeline_parallel;
  bool no_flash_attention = false;
  std::string sequence;
  std::string micro_batch;
  std::string global_batch;
  std::string goal;
  std::string max_hours;
  std::string max_cost;
  std::string single_gpu_hours;
  std::string tokens;
  std::string steps;
  std::vector<std::string> prices;
  std::string currency;
  bool round_hours = false;
  bool links = false;
  bool explain = false;
  std::string emit;
  std::string output = "table";
};

struct PlanInput {
  sizing::PlanRequest request;
  std::optional<api::TrainingJob> job;             // what --job holds, defaults applied
  std::optional<api::VolumeDirectory> pretrained;  // of --pretrained
  bool shape_from_config = false;  // the shape is the one that --config says, not one assumed for a number
  std::string currency;            // of every price; empty: not said
};

// Errors: kInvalidArgument or kNotFound, one line that names the flag, or the file and the field; several errors of a
// job are joined by newlines.
Result<PlanInput> InputFrom(const PlanFlags& given);

// The catalogue of --catalogue, or the built-in one.
Result<std::shared_ptr<const sizing::Catalogue>> CatalogueFrom(const PlanFlags& flags);

}  // namespace trainyard::cli

// Reads members of a Hugging Face config.json and remembers the first problem, so that the readers of the families stay
// flat; remembers what was asked for, so that what nobody knows can be told. Private to the room.
// Thread-safety: none, a short-lived local.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainyard::checkpoint {

class ConfigFields {
 public:
  // `name` stands before the keys in messages: "config.json", "config.json: rope_scaling".
  ConfigFields(const nlohmann::json& config, std::string name) : config_(config), name_(std::move(name)) {}

  // Null counts as absent, as in transformers. The default bound is far above any model and far below what could
  // overflow a product of two. Without `otherwise` an absent one is a problem, and the result is harmless.
  int64_t Size(const char* key, std::optional<int64_t> otherwise = std::nullopt, int64_t most = 1'000'000'000);
  double Number(const char* key, std::optional<double> otherwise = std::nullopt);  // positive
  bool Flag(const char* key, bool otherwise);
  std::string Text(const char* key, const std::string& otherwise);
  const nlohmann::json* Find(const char* key);                       // null when absent
  bool Has(const char* key) const { return config_.contains(key); }  // also where it is null

  // A key that our trainer knows with these values only; the first is the default of transformers.
  void Only(const char* key, const std::vector<nlohmann::json>& allowed);
  // Complains of the keys that nobody has asked for and that are not `harmless`.
  void Finish(const std::set<std::string>& harmless);

  void Complain(const std::string& key, const std::string& what) {
    if (problem_.empty()) problem_ = name_ + ": " + key + ": " + what;
  }
  void Take(const ConfigFields& part) {
    if (problem_.empty()) problem_ = part.problem_;
  }
  const std::string& problem() const { return problem_; }
  const std::string& name() const { return name_; }

 private:
  const nlohmann::json& config_;
  const std::string name_;
  std::set<std::string> asked_;
  std::string problem_;
};

}  // namespace trainyard::checkpoint

// Label selectors in Kubernetes syntax: "a=b,c!=d,e in (x,y),f notin (z),g,!h". Thread-safety: plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"

namespace trainyard::cluster {

class Selector {
 public:
  // The empty text selects everything. Error: kInvalidArgument that quotes the part which does not parse.
  static Result<Selector> Parse(std::string_view text);
  // By metadata.labels of any JSON.
  bool Matches(const nlohmann::json& object) const;

 private:
  enum class Op { kExists, kNotExists, kIn, kNotIn };
  struct Requirement {
    std::string key;
    Op op;
    std::vector<std::string> values;
  };
  std::vector<Requirement> requirements_;
};

}  // namespace trainyard::cluster

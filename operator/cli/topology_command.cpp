#include "operator/cli/topology_command.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "operator/api/names.h"
#include "operator/base/files.h"
#include "operator/cli/exit_codes.h"

namespace trainyard::cli {
namespace {

using placement::LinkClass;
using placement::TopoCell;
using placement::TopoCode;
using placement::TopoFacts;

struct Flags {
  std::string path;
  std::optional<std::string> node;
  bool annotation = false;
};

std::string Count(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// "GPU0-3", "GPU0, GPU2"
std::string Gpus(const std::vector<int64_t>& gpus) {
  std::string text = placement::IslandsText({gpus});
  std::string out = "GPU";
  for (const char c : text) out += c == '+' ? ", GPU" : std::string(1, c);
  return out;
}

std::string Distance(const TopoCell& cell) {
  switch (cell.code) {
    case TopoCode::kNvLink:
      return "NVLink";
    case TopoCode::kSwitch:
      return "one PCIe switch (PIX)";
    case TopoCode::kSwitches:
      return "several PCIe switches (PXB)";
    case TopoCode::kHostBridge:
      return "the PCIe host bridge (PHB)";
    case TopoCode::kNode:
      return "two PCIe host bridges of one socket (NODE)";
    case TopoCode::kSystem:
      return "the link between sockets (SYS)";
    case TopoCode::kSelf:
      break;
  }
  return "itself";
}

void Islands(const TopoFacts& facts, std::string& text) {
  std::vector<int64_t> single;
  for (size_t i = 0; i < facts.islands.size(); ++i) {
    const std::vector<int64_t>& island = facts.islands[i];
    if (island.size() == 1) {
      single.push_back(island.front());
      continue;
    }
    const TopoCell& worst = facts.worst[i];
    text += "island: " + Gpus(island) + ", " +
            (worst.code == TopoCode::kNvLink
                 ? "every pair linked by NVLink (NV" + std::to_string(worst.nvlinks) + ")"
                 : "linked by NVLink, but not every pair: the farthest goes over " + Distance(worst)) +
            "\n";
  }
  if (!single.empty()) text += "no NVLink: " + Gpus(single) + "\n";
}

// What sizes of a pod are good, since the kubelet and not the operator chooses which GPUs a pod gets.
std::string Sizes(const TopoFacts& facts, size_t gpus) {
  const std::string whole = std::to_string(gpus);
  if (gpus == 1) return "one GPU: nothing to link";
  if (facts.link == LinkClass::kNvSwitchNode) return "any number of GPUs from 1 to " + whole + " stays on NVLink";
  if (facts.link == LinkClass::kPcie)
    return "any number of GPUs talks over PCIe; gpus.nvlink: Required is refused here";
  size_t least = gpus;
  for (const std::vector<int64_t>& island : facts.islands) {
    if (island.size() > 1) least = std::min(least, island.size());
  }
  std::string sizes = "1";
  for (size_t size = 2; size <= least; ++size) sizes += (size == least ? " or " : ", ") + std::to_string(size);
  if (facts.islands.size() == 1) return "NVLink for up to " + whole + " GPUs, over one another where no link is direct";
  return sizes + " GPUs stay on NVLink, the device plugin's preferred allocation given; " + whole +
         " are the whole machine, linked by PCIe between islands; sizes between them cut an island";
}

std::string NicLine(const TopoFacts::Nearest& nic, size_t gpus) {
  std::string text = "adapter " + nic.nic + ": ";
  if (nic.gpus.size() == gpus) return text + "as near to every GPU, over " + Distance(nic.cell);
  text += "nearest to " + Gpus(nic.gpus) + ", over " + Distance(nic.cell);
  if (nic.cell.code == TopoCode::kNode || nic.cell.code == TopoCode::kSystem) {
    text += ": GPUs cannot reach it without crossing a host bridge, expect less than its rate";
  }
  return text;
}

int RunTopology(const Flags& flags, std::ostream& out, std::ostream& err) {
  // It goes into a command that people paste.
  if (flags.node && !api::IsDnsSubdomain(*flags.node)) {
    err << "trainyard: --node: '" << api::Printable(*flags.node)
        << "' is not the name of a node: at most 253 lower-case letters, digits, '-' and '.', with a letter or digit "
           "at "
           "both ends of each part\n";
    return kExitBadInput;
  }
  const std::string name = flags.path == "-" ? "standard input" : flags.path;
  std::string text;
  if (flags.path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  } else {
    auto read = ReadFile(flags.path);
    if (!read) {
      err << "trainyard: " << read.error().message << "\n";
      return ExitCodeOf(read.error());
    }
    text = *std::move(read);
  }
  const auto matrix = placement::ParseTopoMatrix(text);
  if (!matrix) {
    err << "trainyard: " << name << ": " << matrix.error().message << "\n";
    return kExitBadInput;
  }
  const TopoFacts facts = placement::Study(*matrix);
  const std::string islands = placement::IslandsText(facts.islands);
  const std::string command = "kubectl annotate node " + flags.node.value_or("NODE") + " --overwrite " +
                              placement::kGpuLinksAnnotation + "=" + islands;
  if (flags.annotation) {
    out << command << "\n";
    for (const std::string& fault : facts.faults) err << "trainyard: " << name << ": " << fault << "\n";
  } else {
    out << TopologyText(*matrix, facts) << "to tell the operator: " << command << "\n";
  }
  return facts.faults.empty() ? kExitOk : kExitJobFailed;
}

}  // namespace

std::string TopologyText(const placement::TopoMatrix& matrix, const TopoFacts& facts) {
  const size_t gpus = matrix.gpus.size();
  std::string text = Count(gpus, "GPU") + ", " + Count(matrix.nics.size(), "network adapter") + "\n";
  Islands(facts, text);
  text += "sizes: " + Sizes(facts, gpus) + "\n";
  for (const TopoFacts::Nearest& nic : facts.nics) text += NicLine(nic, gpus) + "\n";
  for (const std::string& fault : facts.faults) text += "links are missing: " + fault + "\n";
  return text;
}

void AddTopologyCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err) {
  auto flags = std::make_shared<Flags>();
  CLI::App* topology =
      app.add_subcommand("topology", "Say what the output of nvidia-smi topo -m means for a job on that machine");
  topology->add_option("FILE", flags->path, "What nvidia-smi topo -m printed; - reads standard input")->required();
  topology->add_flag("--annotation", flags->annotation, "Print only the command that tells the operator of the links");
  topology->add_option("--node", flags->node, "The node's name, for that command");
  topology->callback([flags, &exit_code, &out, &err] { exit_code = RunTopology(*flags, out, err); });
}

}  // namespace trainyard::cli

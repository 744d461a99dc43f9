#include "tests/cluster/control_plane.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

namespace trainyard::cluster_test {

namespace {

const std::string kScripts = TRAINYARD_SOURCE_DIR "/tests/cluster/";
constexpr int kCannotRunHere = 77;

std::map<std::string, std::string> ReadEnv(const std::string& file) {
  std::map<std::string, std::string> values;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find('=');
    if (at != std::string::npos) values[line.substr(0, at)] = line.substr(at + 1);
  }
  return values;
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) read = ends[0], write = ends[1];
  }
  ~Pipe() { CloseRead(), CloseWrite(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void CloseRead() { read = Close(read); }
  void CloseWrite() { write = Close(write); }
  static int Close(int fd) {
    if (fd >= 0) close(fd);
    return -1;
  }
};

}  // namespace

Ran RunProgram(const std::vector<std::string>& argv, const std::string& input,
               const std::vector<std::string>& environment) {
  Pipe in, out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write, 2);
  std::vector<char*> args, env;
  for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  for (const std::string& e : environment) env.push_back(const_cast<char*>(e.c_str()));
  for (char** e = environ; *e; ++e) {
    const size_t key = std::strcspn(*e, "=") + 1;
    bool replaced = false;
    for (const std::string& ours : environment) replaced = replaced || ours.compare(0, key, *e, key) == 0;
    if (!replaced) env.push_back(*e);
  }
  env.push_back(nullptr);
  Ran ran;
  pid_t pid = 0;
  const int spawned = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  if (spawned != 0) {
    ran.code = 127;
    ran.err = argv[0] + ": " + std::strerror(spawned);
    return ran;
  }
  in.CloseRead(), out.CloseWrite(), err.CloseWrite();
  // A program that ends without reading its input must not end us.
  std::thread feeder([&] {
    sigset_t pipe_signal;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
    for (size_t at = 0; at < input.size();) {
      const ssize_t n = write(in.write, input.data() + at, input.size() - at);
      if (n < 0 && errno != EINTR) break;
      at += n > 0 ? static_cast<size_t>(n) : 0;
    }
    in.CloseWrite();
    const timespec now{};
    while (sigtimedwait(&pipe_signal, nullptr, &now) > 0) {
    }
  });
  pollfd fds[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
  std::string* texts[2] = {&ran.out, &ran.err};
  for (int open = 2; open > 0;) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t n = read(fds[i].fd, buffer, sizeof(buffer));
      if (n > 0) texts[i]->append(buffer, static_cast<size_t>(n));
      if (n == 0) fds[i].fd = -1, --open;
    }
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  feeder.join();
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

bool ClusterRequired() {
  const char* required = std::getenv("TRAINYARD_REQUIRE_CLUSTER");
  return required && std::string(required) == "1";
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::FromDir(const std::string& dir, bool owned) {
  auto env = ReadEnv(dir + "/env");
  std::unique_ptr<ControlPlane> plane(new ControlPlane());
  plane->dir_ = dir, plane->owned_ = owned;
  plane->kubeconfig_ = env["KUBECONFIG"], plane->server_ = env["TRAINYARD_TEST_APISERVER"];
  plane->etcd_ = env["TRAINYARD_TEST_ETCD"], plane->kubectl_ = env["KUBECTL"], plane->helm_ = env["HELM"];
  if (plane->kubeconfig_.empty() || plane->kubectl_.empty()) {
    return Fail(ErrorCode::kFailedPrecondition,
                dir + "/env does not name a cluster: start one with tests/cluster/up.sh --dir " + dir);
  }
  return plane;
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::Start(const std::vector<std::string>& flags,
                                                          const std::vector<std::string>& environment) {
  std::string dir = (std::filesystem::temp_directory_path() / "trainyard-cluster-XXXXXX").string();
  if (!mkdtemp(dir.data())) return Fail(ErrorCode::kInternal, dir + ": " + std::strerror(errno));
  std::vector<std::string> argv = {"bash", kScripts + "up.sh", "--dir", dir, "--while", std::to_string(getpid())};
  argv.insert(argv.end(), flags.begin(), flags.end());
  const Ran ran = RunProgram(argv, "", environment);
  if (ran.code != 0) {
    std::string log = ran.code == kCannotRunHere ? "" : " (logs in " + dir + "/logs)";
    if (ran.code == kCannotRunHere) std::filesystem::remove_all(dir);
    return Fail(ran.code == kCannotRunHere ? ErrorCode::kFailedPrecondition : ErrorCode::kInternal,
                "no control plane: " + LastLine(ran.err) + log);
  }
  return FromDir(dir, true);
}

Result<ControlPlane*> ControlPlane::Shared() {
  // A function's static goes at exit, after the tests: that takes an own control plane down.
  static const Result<std::unique_ptr<ControlPlane>> shared = []() -> Result<std::unique_ptr<ControlPlane>> {
    const char* kubeconfig = std::getenv("TRAINYARD_TEST_KUBECONFIG");
    if (!kubeconfig || !*kubeconfig) return Start();
    const std::string dir = std::filesystem::path(kubeconfig).parent_path().string();
    if (std::filesystem::exists(dir + "/env")) return FromDir(dir, false);
    std::ifstream why(dir + "/skipped");
    std::string reason((std::istreambuf_iterator<char>(why)), {});
    return Fail(ErrorCode::kFailedPrecondition, reason.empty() ? std::string(kubeconfig) +
                                                                     " is not there: the fixture "
                                                                     "cluster_up did not run"
                                                               : "no control plane: " + LastLine(reason));
  }();
  if (!shared) return Fail(shared.error());
  return shared->get();
}

ControlPlane::~ControlPlane() {
  if (owned_) {
    RunProgram({"bash", kScripts + "down.sh", "--dir", dir_});
    return;
  }
  for (const std::string& ns : namespaces_) Kubectl({"delete", "namespace", ns, "--wait=false", "--ignore-not-found"});
}

std::string ControlPlane::FreshNamespace(const std::string& prefix) {
  const std::string name = prefix + "-" + std::to_string(getpid()) + "-" + std::to_string(++names_);
  const Ran created = Kubectl({"create", "namespace", name});
  if (created.code != 0) throw std::runtime_error("namespace " + name + " cannot be created: " + created.err);
  {
    std::lock_guard lock(mutex_);
    namespaces_.push_back(name);
  }
  // Admission refuses pods until the controller manager has made the account.
  const Ran account = Kubectl({"-n", name, "wait", "--for=create", "--timeout=60s", "serviceaccount/default"});
  if (account.code != 0) throw std::runtime_error("no service account in namespace " + name + ": " + account.err);
  return name;
}

Ran ControlPlane::Kubectl(std::vector<std::string> arguments, const std::string& input) const {
  arguments.insert(arguments.begin(), {kubectl_, "--kubeconfig", kubeconfig_});
  return RunProgram(arguments, input);
}

std::string ControlPlane::MustKubectl(std::vector<std::string> arguments, const std::string& input) const {
  std::string line = "kubectl";
  for (const std::string& a : arguments) line += " " + a;
  Ran ran = Kubectl(std::move(arguments), input);
  EXPECT_EQ(ran.code, 0) << line << "\n" << ran.err;
  return ran.code == 0 ? ran.out : "";
}

std::string ControlPlane::ServiceAccountKubeconfig(const std::string& ns, const std::string& account) const {
  const std::string file = (std::filesystem::temp_directory_path() /
                            ("trainyard-" + ns + "-" + account + "-" + std::to_string(getpid()) + ".kubeconfig"))
                               .string();
  const Ran ran = RunProgram({"bash", kScripts + "service_account.sh", "--kubeconfig", kubeconfig_, "--kubectl",
                              kubectl_, "--namespace", ns, "--account", account, "--out", file});
  EXPECT_EQ(ran.code, 0) << ran.err;
  return ran.code == 0 ? file : "";
}

}  // namespace trainyard::cluster_test

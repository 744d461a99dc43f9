#include "tests/trainer/dist/fork_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>

namespace trainyard::dist {

std::vector<RankOutcome> ForkRanks(int world, const std::function<std::string(int)>& body,
                                   const std::function<void(const std::vector<pid_t>&)>& meanwhile) {
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  const auto start = std::chrono::steady_clock::now();
  for (int r = 0; r < world; ++r) {
    int ends[2];
    if (pipe(ends) != 0) {
      std::abort();
    }
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      alarm(60);
      std::string text;
      try {
        text = body(r);
      } catch (const std::exception& e) {
        text = std::string("threw ") + e.what();
      }
      const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      _exit(written ? 0 : 1);
    }
    close(ends[1]);
    pids.push_back(pid);
    pipes.push_back(ends[0]);
  }
  if (meanwhile) {
    meanwhile(pids);
  }
  std::vector<RankOutcome> outcomes(world);
  for (int r = 0; r < world; ++r) {
    char buffer[4096];
    for (ssize_t n = 0; (n = read(pipes[r], buffer, sizeof buffer)) > 0;) {
      outcomes[r].text.append(buffer, static_cast<size_t>(n));
    }
    close(pipes[r]);
    int status = 0;
    waitpid(pids[r], &status, 0);
    outcomes[r].ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    outcomes[r].seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return outcomes;
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  if (bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&any), &length) != 0) {
    std::abort();
  }
  close(fd);
  return ntohs(any.sin_port);
}

}  // namespace trainyard::dist

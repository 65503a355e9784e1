// An xDS client of gRPC C++. It calls the services given as the first argument,
// separated by commas, one after the other, as many times a second in all as the
// second says. For each line "N" on standard input it makes N calls and prints what
// became of them as a line of JSON.

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

namespace {

constexpr char kMethod[] = "/grpc.testing.TestService/EmptyCall";
constexpr auto kDeadline = std::chrono::seconds(5);

// Call is a call with an empty message.
struct Call {
  grpc::ClientContext context;
  grpc::Slice nothing;
  grpc::ByteBuffer request{&nothing, 1};
  grpc::ByteBuffer response;
};

// Outcome counts what became of calls.
class Outcome {
 public:
  void Begin() {
    std::lock_guard<std::mutex> lock(mu_);
    open_++;
  }

  void End(const Call& call, const grpc::Status& status) {
    std::lock_guard<std::mutex> lock(mu_);
    if (status.ok()) {
      const auto& headers = call.context.GetServerInitialMetadata();
      const auto place = headers.find("hostname");
      served_[place == headers.end() ? "" : std::string(place->second.data(), place->second.size())]++;
    } else {
      failed_[std::to_string(status.error_code()) + ": " + status.error_message()]++;
    }
    if (--open_ == 0) none_open_.notify_all();
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mu_);
    none_open_.wait(lock, [this] { return open_ == 0; });
  }

  void Print() const {
    std::cout << "{\"served\":";
    Print(served_);
    std::cout << ",\"failed\":";
    Print(failed_);
    std::cout << "}" << std::endl;
  }

 private:
  static void Print(const std::map<std::string, int>& counts) {
    std::cout << "{";
    const char* comma = "";
    for (const auto& [text, n] : counts) {
      std::cout << comma << "\"";
      for (const char c : text) {
        if (c == '"' || c == '\\') std::cout << '\\';
        std::cout << (static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
      }
      std::cout << "\":" << n;
      comma = ",";
    }
    std::cout << "}";
  }

  std::mutex mu_;
  std::condition_variable none_open_;
  int open_ = 0;
  std::map<std::string, int> served_, failed_;
};

using Stubs = std::vector<std::unique_ptr<grpc::GenericStub>>;

// Send makes n calls at the rate, without waiting for one before the next.
void Send(const Stubs& stubs, int n, double per_second) {
  Outcome outcome;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < n; i++) {
    std::this_thread::sleep_until(began + std::chrono::duration<double>(i / per_second));
    outcome.Begin();
    auto* call = new Call;  // lives until its callback
    call->context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    stubs[i % stubs.size()]->UnaryCall(&call->context, kMethod, grpc::StubOptions(), &call->request, &call->response,
                   [call, &outcome](const grpc::Status& status) {
                     outcome.End(*call, status);
                     delete call;
                   });
  }
  outcome.Wait();
  outcome.Print();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: client TARGET,... CALLS_PER_SECOND" << std::endl;
    return 2;
  }
  Stubs stubs;
  std::istringstream targets(argv[1]);
  for (std::string target; std::getline(targets, target, ',');) {
    stubs.push_back(std::make_unique<grpc::GenericStub>(grpc::CreateChannel(target, grpc::InsecureChannelCredentials())));
  }
  int n = 0;
  while (std::cin >> n) Send(stubs, n, std::atof(argv[2]));
  return 0;
}

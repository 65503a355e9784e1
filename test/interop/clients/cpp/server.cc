// A server of gRPC C++ that takes its listener from xDS. It listens on the
// address given as the first argument, and says the second with every answer.

#include <iostream>
#include <memory>
#include <string>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/xds_server_builder.h>

namespace {

// Answer reads a message and answers with an empty one.
class Answer : public grpc::ServerGenericBidiReactor {
 public:
  Answer() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
      return;
    }
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void OnDone() override { delete this; }

 private:
  grpc::Slice nothing_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_{&nothing_, 1};
};

class Service : public grpc::CallbackGenericService {
 public:
  explicit Service(std::string name) : name_(std::move(name)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    context->AddInitialMetadata("hostname", name_);
    return new Answer();
  }

 private:
  const std::string name_;
};

class Notifier : public grpc::XdsServerServingStatusNotifierInterface {
 public:
  void OnServingStatusUpdate(std::string uri, ServingStatusUpdate update) override {
    std::cerr << uri << ": " << (update.status.ok() ? "serving" : update.status.error_message()) << std::endl;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: server ADDRESS NAME" << std::endl;
    return 2;
  }
  Service service(argv[2]);
  Notifier notifier;
  grpc::XdsServerBuilder builder;
  builder.set_status_notifier(&notifier);
  builder.AddListeningPort(argv[1], grpc::XdsServerCredentials(grpc::InsecureServerCredentials()));
  builder.RegisterCallbackGenericService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  server->Wait();
}

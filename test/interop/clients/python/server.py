"""A server of gRPC Python that takes its listener from xDS.

It listens on the address given as the first argument, and says the second with
every answer.
"""

import sys
from concurrent import futures

import grpc


class Answer(grpc.GenericRpcHandler):
    """Answers every call with the name, and an empty message."""

    def __init__(self, name):
        self._name = name

    def service(self, handler_call_details):
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request, context):
        context.send_initial_metadata((("hostname", self._name),))
        return b""


def main():
    address, name = sys.argv[1], sys.argv[2]
    server = grpc.server(futures.ThreadPoolExecutor(), handlers=[Answer(name)], xds=True)
    server.add_secure_port(address, grpc.xds_server_credentials(grpc.insecure_server_credentials()))
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()

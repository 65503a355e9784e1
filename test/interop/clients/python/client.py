"""An xDS client of gRPC Python.

It calls the service given as the first argument, as many times a second as the
second says. For each line "N" on standard input it makes N calls and prints
what became of them as a line of JSON.
"""

import json
import sys
import time

import grpc

METHOD = "/grpc.testing.TestService/EmptyCall"
DEADLINE_SECONDS = 5


def outcome_of(calls):
    """Waits for the calls and counts what became of them."""
    served, failed = {}, {}
    for call in calls:
        try:
            call.result()
            place = dict(call.initial_metadata()).get("hostname", "")
            served[place] = served.get(place, 0) + 1
        except grpc.RpcError as err:
            text = f"{err.code().name}: {err.details()}"
            failed[text] = failed.get(text, 0) + 1
    return {"served": served, "failed": failed}


def send(method, n, per_second):
    """Makes n calls at the rate, without waiting for one before the next."""
    began = time.monotonic()
    calls = []
    for i in range(n):
        time.sleep(max(0, began + i / per_second - time.monotonic()))
        calls.append(method.future(b"", timeout=DEADLINE_SECONDS))
    return outcome_of(calls)


def main():
    target, per_second = sys.argv[1], float(sys.argv[2])
    with grpc.insecure_channel(target) as channel:
        method = channel.unary_unary(METHOD)
        for line in sys.stdin:
            print(json.dumps(send(method, int(line), per_second)), flush=True)


if __name__ == "__main__":
    main()

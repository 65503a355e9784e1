// Package interop tests Isobar with clients that others wrote: gRPC in Go,
// Node, Python and C++, gRPC's own interop client of an older release, Contour's
// command line and grpcurl. Each drives a real `isobar serve` and, where it makes
// calls, real gRPC backends, all on loopback.
//
// It is a module of its own, so that users of Isobar never download what only
// these tests need. What passed stands in docs/reference/compatibility.md, which
// `go test -update` writes and every whole run checks.
//
// A client that is missing is a failure, never a skip. The tests install what
// comes from the Go proxy and from npm into the user's cache directory; Debian's
// packages (libgrpc++-dev, pkg-config, g++, python3-grpcio) and Node are
// installed by .ci/run.
package interop

// Package checker is a client of the health discovery service (HDS v3): a
// management server designates endpoints, the checker probes them over HTTP,
// TCP, gRPC or Redis as Envoy does, and reports what it finds. It is for fleets
// without Envoy.
//
// One goroutine, in loop.go, owns the state: which endpoints are probed, when
// each is due, and what became of its probes. The stream to the server, in
// stream.go, hands it validated specifiers and reads statuses; probes run on a
// bounded number of goroutines. While the server is away probing goes on.
package checker

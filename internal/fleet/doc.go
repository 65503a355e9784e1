// Package fleet is a fleet of the size of one machine, for the demo and for
// tests: backends with limited concurrency behind real gRPC servers, real
// grpc-go xDS clients with a locality each, connections that are as slow as
// the distance they stand for, and [Agent], a fake client that follows
// assignments and reports load as rates, in real or virtual time.
package fleet

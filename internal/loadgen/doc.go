// Package loadgen connects thousands of synthetic xDS clients to a management
// server and measures what they see: how soon assignments come, also after all
// connections were lost at once, how far apart the first and the last stream
// get a change, and what went wrong.
//
// A client subscribes on one aggregated stream as gRPC does, by name, to
// clusters and then to their assignments, acknowledges what it accepts, and
// reports load on a stream of its own, in the shares that it was assigned.
// Responses are read field by field, and each distinct assignment is decoded
// and checked once for all clients, so that one process can be a fleet.
package loadgen

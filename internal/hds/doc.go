// Package hds serves health discovery: it tells checkers which endpoints to
// probe, checks what they report, and keeps the newest word of each on each
// endpoint until the control loop collects it.
//
// A checker is a stream, or a client that polls. It is told its whole work
// whenever that changes, and reports once per interval on everything it
// probes. Nothing of what it says counts beyond the endpoints that it was
// told to probe.
package hds

// Package xds is the stream layer: state-of-the-world and delta streams of the
// xDS v3 protocol over one engine. It keeps who subscribes to what, pushes what
// changed, and remembers what each client accepted or rejected.
//
// Each stream has two goroutines. One receives: it turns requests into changes
// of the stream's state. The other, the gRPC handler, sends: it is woken
// through a channel of capacity 1, composes one response at a time from
// resources that all streams share, and blocks on nobody's client but its own.
// A publication brings every stream's state up to date without sending, and
// wakes those for which anything changed; a slow stream finds all changes
// merged when it gets to send again.
package xds

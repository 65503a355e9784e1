// Package xds is the stream layer: state-of-the-world and delta streams of the
// xDS v3 protocol over one engine. It keeps who subscribes to what, pushes what
// changed, and remembers what each client accepted or rejected.
//
// Each stream has two goroutines. One receives: it turns requests into changes
// of the stream's state. The other, the gRPC handler, waits for the end of the
// stream, and sends whatever may have to wait for the client.
//
// A publication brings every stream's state up to date and sends at once to
// those streams that have answered everything, since that waits for nobody; all
// others are left to their handlers, which find all changes merged when they
// get to send again, and those that owe an answer for longer come last. A response is composed of resources that all streams
// share.
//
// Streams that subscribe to the same names share the list of them, and a stream
// keeps state only of the resources that are on their way: the others are, and
// are acknowledged, as its view says.
package xds

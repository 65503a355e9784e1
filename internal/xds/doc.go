// Package xds is the stream layer: state-of-the-world and delta streams of the
// xDS protocol, and clients that poll. It keeps who subscribes to what, pushes what
// changed, and remembers what each client accepted or rejected.
//
//	server.go          the streams that are open, their limits, what ends them
//	stream.go          one stream: receives requests, sends responses
//	request.go, subscribe.go, follow.go, compose.go
//	                   its session: what the protocol's messages mean
//	watch.go           what a session subscribes to of one type
//	shared.go          responses that many sessions share
//	locality_group.go  what all streams of one client locality share
//	publish.go         publications on their way to all streams
//	poll.go, rest.go   clients without a stream
//	clients.go         queries of all that, without effects
//
// Each stream has two goroutines. One receives: it turns requests into changes
// of the session. The other, the gRPC handler, waits for the end of the
// stream, and sends whatever may have to wait for the client.
//
// A publication brings every session up to date and sends at once to
// those streams that have answered everything, since that waits for nobody. All
// others are left to their handlers, which find all changes merged when they
// can send again. Streams that owe an answer for longer come last. A response is
// composed of resources that all streams share.
//
// Streams that subscribe to the same names share the list of them, and a session
// keeps state only of the resources that are on their way. All others are what the
// session's view says, and are acknowledged.
package xds

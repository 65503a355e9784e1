// Package rpc holds what all streaming services share: the codec, the node and the
// peer of a stream, transport API versions, errors that name a field, bounds on
// inbound messages, and recovery from panics.
package rpc

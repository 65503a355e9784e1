// Package rawclient is an xDS client that costs next to nothing, so that one
// core can drive a server on another to its limit: bare HTTP/2 frames, of a
// response only its version and nonce are read, and acknowledgements are put
// together from encoded pieces. On the wire it behaves as real clients do:
// every acknowledgement repeats all names, flow control holds, pings are
// answered.
//
// One goroutine serves a connection: it reads, and between reads it writes
// what its streams have to say.
package rawclient

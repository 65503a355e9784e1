package identity

// PeerOf reads the names of a certificate that TLS has verified.
var PeerOf = peerOf

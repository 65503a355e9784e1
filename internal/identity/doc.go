// Package identity knows who is at the other end of a connection and keeps the
// certificates and tokens that prove it: the TLS settings of a listener, reread
// when their files change, the names in a client's certificate, and the rules
// that bind names to roles and localities.
package identity

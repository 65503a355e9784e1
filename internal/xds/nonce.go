package xds

import (
	"math/rand/v2"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// nonceSize is how many characters a nonce has; 5 bits each, so that it can't be
// guessed. See offer.
const nonceSize = 13

// nonce is that of a response, as the field that ends it, so that it needs no
// memory of its own.
type nonce struct {
	encoded [2 + nonceSize]byte // tag, length, characters; the zero value is none
}

// draw makes it a new one.
func (n *nonce) draw() {
	const digits = "0123456789abcdefghijklmnopqrstuv"
	var characters [nonceSize]byte
	v := rand.Uint64() //nolint:gosec // seeded by the system; guards no secret
	for i := range characters {
		characters[i] = digits[v&31]
		v >>= 5
	}
	resource.AppendNonce(n.encoded[:0], string(characters[:]))
}

func (n *nonce) is(answered []byte) bool {
	return n.encoded[0] != 0 && string(answered) == string(n.encoded[2:])
}

func (n *nonce) says(answered string) bool {
	return n.encoded[0] != 0 && answered == string(n.encoded[2:])
}

package group

import (
	"crypto/sha256"
	"slices"
)

// Part is a part of a content. It is immutable.
type Part struct {
	data   []byte
	digest [sha256.Size]byte
}

// NewPart makes a part of bytes that do not change any more.
func NewPart(data []byte) Part { return Part{data, sha256.Sum256(data)} }

// Bytes returns the bytes of the part. The caller must not change them.
func (p *Part) Bytes() []byte { return p.data }

// Digest returns the SHA-256 of the bytes.
func (p *Part) Digest() [sha256.Size]byte { return p.digest }

// Content is the content of a plan: the bytes of its parts, one after the other. Plans that follow
// each other share the parts that stay, which are neither copied nor hashed again. All replicas
// have to cut a content in the same way, because its digest is made from those of its parts. It is
// immutable.
type Content struct {
	parts []Part
	size  int
}

// NewContent makes a content of parts, which the caller hands over.
func NewContent(parts []Part) Content {
	c := Content{parts: slices.DeleteFunc(parts, func(p Part) bool { return len(p.data) == 0 })}
	for i := range c.parts {
		c.size += len(c.parts[i].data)
	}
	return c
}

// Parts returns the parts in order. The caller must not change them.
func (c *Content) Parts() []Part { return c.parts }

// Size is the number of bytes.
func (c *Content) Size() int { return c.size }

// Digest covers all bytes and where the parts end: it is the SHA-256 of the digests of the parts.
func (c *Content) Digest() [sha256.Size]byte {
	h := sha256.New()
	for i := range c.parts {
		_, _ = h.Write(c.parts[i].digest[:]) // a hash takes everything
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Sum256 is the SHA-256 of all bytes, by which earlier versions know a content.
func (c *Content) Sum256() [sha256.Size]byte {
	h := sha256.New()
	for i := range c.parts {
		_, _ = h.Write(c.parts[i].data) // a hash takes everything
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// AppendTo appends all bytes.
func (c *Content) AppendTo(to []byte) []byte {
	to = slices.Grow(to, c.size)
	for i := range c.parts {
		to = append(to, c.parts[i].data...)
	}
	return to
}

//go:build !race

package group_test

import (
	"crypto/sha256"
	"slices"
	"testing"

	"github.com/isobar-xds/isobar/internal/replica/group"
)

// TestContents asserts that a content is the bytes of its parts, and that its digest covers all of
// them, their order, and where each part ends.
func TestContents(t *testing.T) {
	c := contentOf("one", "", "two", "three")
	if got := string(c.AppendTo([]byte("zero"))); got != "zeroonetwothree" || c.Size() != 11 || len(c.Parts()) != 3 {
		t.Errorf("%q has %d bytes in %d parts", got, c.Size(), len(c.Parts()))
	}
	if c.Sum256() != sha256.Sum256([]byte("onetwothree")) {
		t.Error("its SHA-256 is not that of its bytes")
	}
	digests := [][sha256.Size]byte{c.Digest()}
	for _, parts := range [][]string{
		nil, {"onetwothree"}, {"onetwo", "three"}, {"one", "twothree"}, {"two", "one", "three"}, {"one", "two"}, {"one", "two", "three", "four"}, {"one", "two", "threE"},
	} {
		other := contentOf(parts...)
		if slices.Contains(digests, other.Digest()) {
			t.Errorf("%q has the digest of another content", parts)
		}
		digests = append(digests, other.Digest())
	}
	p := planOf(claimOf("b", 1), 0, "x")
	if err := p.CheckContent(); err != nil {
		t.Error(err)
	}
	if p.Content = group.NewContent(nil); p.CheckContent() == nil {
		t.Error("no content has the digest of another one")
	}
}

package replica

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// content is that of a plan with some services; those in changed have another decision.
func content(t *testing.T, services int, changed ...int) []byte {
	t.Helper()
	c := &peerv1.PlanContent{Format: 1, Header: []byte(`{"version": 1}`)}
	for i := range services {
		s := &peerv1.ServiceContent{
			Name: fmt.Sprintf("service-%d", i), Configuration: []byte(strings.Repeat(fmt.Sprintf("endpoint %d;", i), 50)),
			Decision: []byte(strings.Repeat(fmt.Sprintf("decision %d;", i), 20)),
		}
		for _, n := range changed {
			if n == i {
				s.Decision = append(s.Decision, "changed"...)
			}
		}
		c.Services = append(c.Services, s)
	}
	data, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func planOf(version uint64, content []byte) *group.Plan {
	claim := group.Claim{Epoch: 1, Leader: group.Identity{Name: "a", Incarnation: 1}, First: group.BlockSize + 1}
	return &group.Plan{Claim: claim, Version: group.BlockSize + version, Content: content, Digest: sha256.Sum256(content)}
}

// TestDifferences asserts that a difference makes exactly the later content of the
// earlier one, and has no more than what changed.
func TestDifferences(t *testing.T) {
	base := content(t, 100)
	for _, c := range []struct {
		name  string
		next  []byte
		bytes int // at most
	}{
		{"nothing", base, 50},
		{"a decision", content(t, 100, 7), 1000},
		{"all decisions", content(t, 100, func() (all []int) {
			for i := range 100 {
				all = append(all, i)
			}
			return all
		}()...), len(base) / 2},
		{"one more service", content(t, 101), 1500},
		{"fewer services", content(t, 60), 200},
	} {
		d := difference(base, c.next)
		if d == nil {
			t.Fatalf("%s: no difference", c.name)
		}
		data, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > c.bytes {
			t.Errorf("%s: %d bytes, want at most %d of %d", c.name, len(data), c.bytes, len(base))
		}
		if got, err := apply(base, d); err != nil || !bytes.Equal(got, c.next) {
			t.Errorf("%s: it makes another content (%v)", c.name, err)
		}
	}
	if d := difference(base, bytes.Repeat([]byte("another"), 10_000)); d != nil {
		t.Error("a content with nothing in common is a difference")
	}
}

// TestAnyDifference asserts the same for contents that are no protobuf.
func TestAnyDifference(t *testing.T) {
	piece := rapid.SampledFrom([]string{"", "\x0a\x05hello", strings.Repeat("\x0a\x28", 40), strings.Repeat("x", 100), "\x1a\x80\x01" + strings.Repeat("\x0a\x3eabcdefgh", 16)})
	text := rapid.Custom(func(t *rapid.T) []byte {
		return []byte(strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), rapid.StringN(0, 3, 3).Draw(t, "between")))
	})
	rapid.Check(t, func(t *rapid.T) {
		base, next := text.Draw(t, "base"), text.Draw(t, "next")
		if d := difference(base, next); d != nil {
			if got, err := apply(base, d); err != nil || !bytes.Equal(got, next) {
				t.Fatalf("%q becomes %q, %v; want %q", base, got, err, next)
			}
		}
	})
}

// TestPlansOfAStream asserts that plans that follow each other on a stream arrive as they
// are, the later ones as differences, and that a difference from a plan that did not come
// last, or to another content than the digest says, is refused.
func TestPlansOfAStream(t *testing.T) {
	var a assembly
	take := func(parts []*peerv1.PlanPart) (whole *group.Plan, bytes int, err error) {
		for _, p := range parts {
			bytes += len(p.GetContent())
			if whole, err = a.add(p); err != nil {
				return nil, bytes, err
			}
		}
		return whole, bytes, nil
	}
	first, second, third := planOf(1, content(t, 3000)), planOf(2, content(t, 3000, 5)), planOf(3, content(t, 3000, 5, 9))
	got, n, err := take(parts(first, nil, 1))
	if err != nil || !bytes.Equal(got.Content, first.Content) || n != len(first.Content) {
		t.Fatalf("the first plan: %d bytes, %v", n, err)
	}
	got, n, err = take(parts(second, first, 2))
	if err != nil || !bytes.Equal(got.Content, second.Content) || got.Version != second.Version || n > 2000 {
		t.Fatalf("the second plan: %d bytes, %v", n, err)
	}
	alone := planOf(9, content(t, 3000, 8))
	if got, n, err := take(parts(alone, nil, 2)); err != nil || !bytes.Equal(got.Content, alone.Content) || n > len(alone.Content)/3 {
		t.Fatalf("a compressed plan: %d of %d bytes, %v", n, len(alone.Content), err)
	}
	if _, _, err := take(parts(second, alone, 2)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := take(parts(third, first, 2)); err == nil || !strings.Contains(err.Error(), "difference from plan 1000001, and plan 1000002 came last") {
		t.Errorf("a difference from another plan: %v", err)
	}
	third.Digest[0]++
	if _, _, err := take(parts(third, second, 2)); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("a difference to another content: %v", err)
	}
}

// FuzzApply asserts that no difference of another replica panics, or makes another size
// than it says.
func FuzzApply(f *testing.F) {
	base := bytes.Repeat([]byte("0123456789"), 100)
	for _, d := range []*peerv1.PlanDifference{
		{Size: 10, Pieces: []*peerv1.Piece{{Offset: 5, Length: 10}}}, {Size: 3, Pieces: []*peerv1.Piece{{Content: []byte("abc")}}},
		{Size: 10, Pieces: []*peerv1.Piece{{Offset: 1 << 63, Length: 1 << 63}}}, {Size: 1 << 40},
	} {
		data, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d peerv1.PlanDifference
		if proto.Unmarshal(data, &d) != nil {
			return
		}
		if unpacked, err := unpack(data); err == nil && !bytes.Equal(unpacked, data) {
			if again, err := unpack(pack(unpacked)); err != nil || !bytes.Equal(again, unpacked) {
				t.Errorf("%q becomes %q, %v", unpacked, again, err)
			}
		}
		if got, err := apply(base, &d); err == nil && uint64(len(got)) != d.GetSize() {
			t.Errorf("%d bytes, it says %d", len(got), d.GetSize())
		}
	})
}

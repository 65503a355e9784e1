package replica

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
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
	parts := ContentOf(content)
	return &group.Plan{Claim: claim, Version: group.BlockSize + version, Content: parts, Digest: parts.Digest()}
}

// between is a difference between contents, and what it makes of the first one.
func between(base, next []byte) (d *peerv1.PlanDifference, made group.Content, err error) {
	from, to := ContentOf(base), ContentOf(next)
	if d = difference(&from, &to); d != nil {
		made, err = apply(&from, d)
	}
	return d, made, err
}

// wantContent asserts that a content has the given bytes, and the parts into which they are cut.
func wantContent(t interface {
	Fatalf(format string, args ...any)
}, what string, got group.Content, want []byte) {
	if data := got.AppendTo(nil); !bytes.Equal(data, want) {
		t.Fatalf("%s: it has the content %q, want %q", what, data, want)
	}
	cut := ContentOf(want)
	if got.Size() != len(want) || !slices.EqualFunc(got.Parts(), cut.Parts(), func(a, b group.Part) bool { return bytes.Equal(a.Bytes(), b.Bytes()) }) {
		t.Fatalf("%s: its %d bytes of %q have other parts", what, got.Size(), want)
	}
	if got.Digest() != cut.Digest() || got.Sum256() != sha256.Sum256(want) {
		t.Fatalf("%s: %q has another digest", what, want)
	}
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
		d, got, err := between(base, c.next)
		if d == nil || err != nil {
			t.Fatalf("%s: no difference, %v", c.name, err)
		}
		wantContent(t, c.name, got, c.next)
		data, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > c.bytes {
			t.Errorf("%s: %d bytes, want at most %d of %d", c.name, len(data), c.bytes, len(base))
		}
	}
	if d, _, _ := between(base, bytes.Repeat([]byte("another"), 10_000)); d != nil {
		t.Error("a content with nothing in common is a difference")
	}
}

// TestAnyDifference asserts the same for contents that are no protobuf, and for one difference after
// another: the parts that a content keeps of an earlier one are those that it would be cut into.
func TestAnyDifference(t *testing.T) {
	piece := rapid.SampledFrom([]string{"", "\x0a\x05hello", strings.Repeat("\x0a\x28", 40), strings.Repeat("x", 100), "\x1a\x80\x01" + strings.Repeat("\x0a\x3eabcdefgh", 16)})
	text := rapid.Custom(func(t *rapid.T) []byte {
		return []byte(strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), rapid.StringN(0, 3, 3).Draw(t, "between")))
	})
	rapid.Check(t, func(t *rapid.T) {
		base := ContentOf(text.Draw(t, "base"))
		for range 3 {
			next := text.Draw(t, "next")
			to := ContentOf(next)
			if d := difference(&base, &to); d != nil {
				got, err := apply(&base, d)
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, "after "+string(base.AppendTo(nil)), got, next)
				base = got
			}
		}
	})
}

// TestAnyPieces asserts that a content is cut in the same way whatever the pieces of a difference are:
// those of another program may begin and end within fields.
func TestAnyPieces(t *testing.T) {
	base := ContentOf(append(content(t, 5), 0xff))
	rapid.Check(t, func(t *rapid.T) {
		d, want := &peerv1.PlanDifference{}, []byte(nil)
		all := base.AppendTo(nil)
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			from := rapid.IntRange(0, len(all)-1).Draw(t, "from")
			piece := all[from : from+rapid.IntRange(1, len(all)-from).Draw(t, "length")]
			if rapid.Bool().Draw(t, "own") {
				d.Pieces = append(d.Pieces, &peerv1.Piece{Content: piece})
			} else {
				d.Pieces = append(d.Pieces, &peerv1.Piece{Offset: uint64(from), Length: uint64(len(piece))})
			}
			want = append(want, piece...)
		}
		d.Size = uint64(len(want))
		got, err := apply(&base, d)
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, "pieces", got, want)
	})
}

// TestPartsThatStay asserts that a content shares the parts that stay with the earlier one: they are
// neither copied nor hashed again.
func TestPartsThatStay(t *testing.T) {
	base, next := ContentOf(content(t, 50)), ContentOf(content(t, 50, 7))
	got, err := apply(&base, difference(&base, &next))
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for i := range got.Parts() {
		if &got.Parts()[i].Bytes()[0] == &base.Parts()[i].Bytes()[0] {
			same++
		}
	}
	if same != 49 {
		t.Errorf("%d of 50 services are the same parts, want all but one", same)
	}
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
	arrives := func(p *group.Plan, parts []*peerv1.PlanPart, most int) {
		t.Helper()
		got, n, err := take(parts)
		if err != nil || got.Version != p.Version || got.Digest != p.Digest || got.CheckContent() != nil || n > most {
			t.Fatalf("plan %d: %d of %d bytes, %v", p.Version, n, p.Content.Size(), err)
		}
	}
	arrives(first, parts(first, nil, 1), first.Content.Size())
	arrives(second, parts(second, first, 2), 2000)
	arrives(third, parts(third, second, 3), 2000)
	alone := planOf(9, content(t, 3000, 8))
	for speaks := range uint32(4) {
		arrives(alone, parts(alone, nil, speaks), alone.Content.Size())
	}
	arrives(alone, parts(alone, nil, 2), alone.Content.Size()/3)
	arrives(second, parts(second, alone, 2), 3000)
	if _, _, err := take(parts(third, first, 2)); err == nil || !strings.Contains(err.Error(), "difference from plan 1000001, and plan 1000002 came last") {
		t.Errorf("a difference from another plan: %v", err)
	}
	for speaks := uint32(1); speaks <= protocol; speaks++ {
		forged := parts(third, second, speaks)
		first := forged[0]
		if speaks >= fieldsDigest {
			first.FieldsDigest = bytes.Clone(first.GetFieldsDigest())
			first.FieldsDigest[0]++
		} else {
			first.Digest[0]++
		}
		if _, _, err := take(forged); !errors.Is(err, group.ErrDigest) {
			t.Errorf("version %d of the protocol: another content than the digest says: %v", speaks, err)
		}
	}
	for name, damage := range map[string]func(first *peerv1.PlanPart){
		"none":  func(first *peerv1.PlanPart) { first.FieldsDigest = nil },
		"short": func(first *peerv1.PlanPart) { first.FieldsDigest = first.FieldsDigest[:31] },
	} {
		damaged := parts(third, second, protocol)
		damage(damaged[0])
		if _, _, err := take(damaged); err == nil || !strings.Contains(err.Error(), "its digest has") {
			t.Errorf("a digest that is %s: %v", name, err)
		}
	}
}

// FuzzApply asserts that no difference of another replica panics, or makes another size
// than it says.
func FuzzApply(f *testing.F) {
	base := ContentOf(bytes.Repeat([]byte("0123456789"), 100))
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
		if got, err := apply(&base, &d); err == nil && uint64(got.Size()) != d.GetSize() {
			t.Errorf("%d bytes, it says %d", got.Size(), d.GetSize())
		}
	})
}

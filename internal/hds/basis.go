package hds

import (
	"crypto/sha256"
	"slices"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/health"
)

// basis is what the specifier of a checker was worked out from. As long as it
// holds, so does the specifier: most changes concern few services, and to most
// checkers say nothing new.
type basis struct {
	can      health.Protocols
	interval time.Duration
	parts    map[string]part // by service
}

// part is what a checker is told of one service.
type part struct {
	site *site
	keys []health.Key
	sum  [sha256.Size]byte // of the cluster, encoded; zero where there is none to be told of
}

// sums are those of clusters, by name.
type sums map[string][sha256.Size]byte

func sumsOf(told []*healthv3.ClusterHealthCheck) sums {
	out := make(sums, len(told))
	for _, c := range told {
		out[c.GetClusterName()] = sumOf(c)
	}
	return out
}

// differing lists the clusters that are new or changed, sorted.
func differing(is, was sums) (out []string) {
	for name, sum := range is {
		if before, ok := was[name]; !ok || before != sum {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func newBasis(o *assignments, id string, can health.Protocols, interval time.Duration, sums sums) *basis {
	b := &basis{can: can, interval: interval, parts: map[string]part{}}
	for keys := range o.services(id) {
		name := keys[0].Service
		if s := o.site(name); s != nil {
			b.parts[name] = part{site: s, keys: keys, sum: sums[name]}
		}
	}
	return b
}

// holds tells whether a checker is told by new assignments what it was told before.
func (b *basis) holds(o *assignments, id string, can health.Protocols, interval time.Duration) bool {
	if b == nil || b.can != can || b.interval != interval {
		return false
	}
	n := 0
	for keys := range o.services(id) {
		name := keys[0].Service
		s := o.site(name)
		if s == nil {
			continue
		}
		p, ok := b.parts[name]
		if !ok || ((p.site != s || !slices.Equal(p.keys, keys)) && s.sum(keys, can) != p.sum) {
			return false
		}
		b.parts[name] = part{site: s, keys: keys, sum: p.sum} // lets go of older assignments
		n++
	}
	return n == len(b.parts)
}

// sum is that of what a checker would be told.
func (s *site) sum(keys []health.Key, can health.Protocols) (sum [sha256.Size]byte) {
	if c, _, _, err := s.cluster(keys, can); err == nil && c != nil {
		return sumOf(c)
	}
	return sum
}

func sumOf(c *healthv3.ClusterHealthCheck) (sum [sha256.Size]byte) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil { // whole specifiers are encoded, too, and say so
		return sum
	}
	return sha256.Sum256(encoded)
}

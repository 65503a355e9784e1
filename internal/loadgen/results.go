package loadgen

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds on what is remembered.
const (
	maxSightings = 256     // versions that may still be on their way
	maxSpreads   = 100_000 // versions that have arrived
)

// results counts what happens to all clients.
type results struct {
	pushes, bytes, reports, nacks, failures atomic.Int64
	interval                                atomic.Int64 // between reports, as told

	mu       sync.Mutex
	firsts   []time.Duration
	versions map[string]*sighting
	order    []string // of versions, oldest first
	spreads  []time.Duration
	errors   map[codes.Code]*Failure
	refusal  string // the last
}

// sighting is when streams got a version.
type sighting struct {
	first, last time.Time
	streams     int
}

func newResults() *results {
	return &results{versions: map[string]*sighting{}, errors: map[codes.Code]*Failure{}}
}

// first books how long a client waited for its first assignment.
func (b *results) first(wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.firsts = append(b.firsts, wait)
}

// takeFirsts gives what first booked since the last call.
func (b *results) takeFirsts() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.firsts
	b.firsts = nil
	return out
}

// pushed books a response to a client that had its assignments already.
func (b *results) pushed(version string, size int, now time.Time) {
	b.pushes.Add(1)
	b.bytes.Add(int64(size))
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.versions[version]
	if s == nil {
		if len(b.order) >= maxSightings {
			b.record(b.order[0])
			b.order = slices.Delete(b.order, 0, 1)
		}
		s = &sighting{first: now}
		b.versions[version] = s
		b.order = append(b.order, version)
	}
	s.streams++
	s.last = now
}

// record books a version as arrived everywhere. One that went to a single
// stream has no spread. The caller holds the lock.
func (b *results) record(version string) {
	s := b.versions[version]
	delete(b.versions, version)
	if s.streams > 1 && len(b.spreads) < maxSpreads {
		b.spreads = append(b.spreads, s.last.Sub(s.first))
	}
}

// takeSpreads gives the time between the first and the last stream of each
// version that went to more than one.
func (b *results) takeSpreads() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.order {
		b.record(v)
	}
	b.order = nil
	return b.spreads
}

// nacked books an assignment that a client refused.
func (b *results) nacked(err error) {
	b.nacks.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusal = err.Error()
}

// failed books the end of a stream that should have gone on.
func (b *results) failed(err error) {
	code, text := status.Code(err), status.Convert(err).Message()
	if err == nil || errors.Is(err, io.EOF) {
		code, text = codes.OK, "the server ended the stream"
	}
	b.failures.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.errors[code]
	if f == nil {
		f = &Failure{Status: code.String()}
		b.errors[code] = f
	}
	f.Count++
	f.Last = text
}

// failuresByStatus lists the ends of streams.
func (b *results) failuresByStatus() []Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []Failure{}
	for _, f := range b.errors {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(x, y Failure) int { return y.Count - x.Count })
	return out
}

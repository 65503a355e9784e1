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

// takeFirsts returns what first booked since the last call.
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

// takeSpreads returns the time between the first and the last stream of each
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

// Result is what a run found.
type Result struct {
	Clients     int      `json:"clients"`
	Connections int      `json:"connections"`
	Streams     int      `json:"streams"` // for discovery, of all clients
	Services    int      `json:"services"`
	Subscribed  int      `json:"subscribed"` // services of each client
	Localities  []string `json:"localities"`
	Seconds     float64  `json:"seconds"`

	FirstEDS  Arrival  `json:"first_eds"`
	Reconnect *Arrival `json:"reconnect,omitempty"`
	// NoReconnect says that the clients were to come back, and that the run was
	// cut short before that.
	NoReconnect bool `json:"no_reconnect,omitempty"`

	Pushes    int64   `json:"pushes"`     // responses with assignments, after the first of each stream
	PushBytes int64   `json:"push_bytes"` // in them
	Spread    Latency `json:"spread"`     // from the first stream that got a version to the last
	NACKs     int64   `json:"nacks"`      // sent
	Refusal   string  `json:"refusal,omitempty"`

	Reports        int64     `json:"reports"`
	ReportInterval float64   `json:"report_interval_seconds"` // as the server asked for; 0 = it never did
	Errors         []Failure `json:"errors"`
}

// Arrival is how soon clients got their first assignments.
type Arrival struct {
	Latency

	Silent     int `json:"silent"`              // clients that got none
	NotBegun   int `json:"not_begun,omitempty"` // clients that had yet to connect when the run was cut short
	Incomplete int `json:"incomplete"`          // clients that lack the assignment of a service
}

// Latency sums up times.
type Latency struct {
	Count int     `json:"count"`
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

// Failure is how streams ended that should have gone on.
type Failure struct {
	Status string `json:"status"` // of gRPC
	Count  int    `json:"count"`
	Last   string `json:"last"` // what the last one said
}

// OK reports whether every client was served as it should be: of one that had no
// chance to be, because the run was cut short, nobody knows.
func (r *Result) OK() bool {
	whole := func(a *Arrival) bool { return a == nil || a.Silent+a.NotBegun+a.Incomplete == 0 }
	return r.NACKs == 0 && !r.NoReconnect && whole(&r.FirstEDS) && whole(r.Reconnect)
}

// latency sums up times, which it sorts. Quantiles are the smallest time that
// so many of all do not exceed.
func latency(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	at := func(percent int) float64 { return ms(times[(len(times)*percent+99)/100-1]) }
	return Latency{Count: len(times), P50MS: at(50), P99MS: at(99), MaxMS: at(100)}
}

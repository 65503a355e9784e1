package loadgen

import (
	"slices"
	"time"
)

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

// OK tells whether every client was served as it should be: of one that had no
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

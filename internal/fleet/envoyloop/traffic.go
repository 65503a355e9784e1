package envoyloop

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Outcome is how a request ended.
type Outcome uint8

// Outcomes.
const (
	Succeeded Outcome = iota // answered with 200
	Dropped                  // by Envoy, since its assignment says so
	Failed                   // anything else
)

// Request is one request of a client, and how it ended.
type Request struct {
	At       time.Duration // since the start of the traffic, when it was due
	Late     time.Duration // how much later it was sent
	Took     time.Duration
	Source   int // zone
	Service  string
	Outcome  Outcome
	Status   int    // HTTP; 0 = no response
	Flags    string // Envoy's response flags, such as UF or DO
	Upstream string // address of the backend that Envoy chose; empty = none, or not known
	Bytes    int64  // of the body of the response
}

// ServiceHeader is the header of requests that Traffic.Service fills.
const ServiceHeader = "X-Service"

// Headers that the listener of the proxies adds to responses.
const (
	UpstreamHeader = "X-Upstream" // address of the backend
	flagsHeader    = "X-Flags"
	dropHeader     = "X-Envoy-Drop-Overload"
	dropAllHeader  = "X-Envoy-Unconditional-Drop-Overload"
)

// Traffic sends requests to proxies, each at its own rate whatever becomes of
// earlier ones (open loop), and records them.
type Traffic struct {
	Seed uint64
	// Rate of a source at a time since the start, requests/s of each of its proxies.
	Rate func(source int, at time.Duration) float64
	// Host is the Host header of the requests.
	Host string
	// Service chooses the cluster of a request, for routes that take it from
	// ServiceHeader; nil = the header is not sent.
	Service func(rng *rand.Rand) string
	// Timeout is how long a client waits for a response.
	Timeout time.Duration

	mu       sync.Mutex
	requests []Request
}

// Target is a listener of a proxy.
type Target struct {
	Address string
	Source  int // zone that the proxy is in
}

// Run sends until the time has passed, and returns when all requests have ended.
func (t *Traffic) Run(ctx context.Context, targets []Target, length time.Duration) []Request {
	start := time.Now()
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: t.Timeout}).DialContext,
		MaxIdleConnsPerHost: 1024, DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: t.Timeout}
	var senders sync.WaitGroup
	for i, target := range targets {
		senders.Go(func() { t.send(ctx, client, target, uint64(i), start, length) }) //nolint:gosec // an index
	}
	senders.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests
}

// send is a Poisson process, whose rate is that at the time of the request before.
func (t *Traffic) send(ctx context.Context, client *http.Client, to Target, n uint64, start time.Time, length time.Duration) {
	rng := rand.New(rand.NewPCG(t.Seed, n)) //nolint:gosec // arrivals, no secrets
	var open sync.WaitGroup
	defer open.Wait()
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() / t.Rate(to.Source, at) * float64(time.Second))
		if at >= length || !wait(ctx, time.Until(start.Add(at))) {
			return
		}
		service := ""
		if t.Service != nil {
			service = t.Service(rng)
		}
		open.Go(func() {
			sent := time.Now()
			r := Request{At: at, Late: sent.Sub(start.Add(at)), Source: to.Source, Service: service}
			t.do(ctx, client, to, &r)
			r.Took = time.Since(sent)
			t.mu.Lock()
			t.requests = append(t.requests, r)
			t.mu.Unlock()
		})
	}
}

func (t *Traffic) do(ctx context.Context, client *http.Client, to Target, r *Request) {
	r.Outcome = Failed
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to.Address+"/", http.NoBody)
	if err != nil {
		return
	}
	req.Host = t.Host
	req.Header.Set(sourceHeader, strconv.Itoa(to.Source))
	if r.Service != "" {
		req.Header.Set(ServiceHeader, r.Service)
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	r.Bytes, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	r.Status, r.Upstream, r.Flags = resp.StatusCode, resp.Header.Get(UpstreamHeader), resp.Header.Get(flagsHeader)
	switch {
	case resp.Header.Get(dropHeader) != "" || resp.Header.Get(dropAllHeader) != "":
		r.Outcome = Dropped
	case resp.StatusCode == http.StatusOK && err == nil:
		r.Outcome = Succeeded
	}
}

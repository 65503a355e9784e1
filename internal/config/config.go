// Package config reads what users write: the server's configuration file, the
// service objects of the admin API and the problem files of `isobar solve`.
// All go the same way: defaults, strict decode, validation; every error is told
// at once, with its place and what to write instead.
package config

import (
	"cmp"
	"log/slog"
	"math"
	"net/netip"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/identity"
)

// Problem is one error or warning with its place.
type Problem = strict.Problem

// Error is every error of an input at once; it wraps [isobar.ErrInvalid].
type Error = strict.Error

// MaxBytes bounds the size of any input of this package, in bytes.
const MaxBytes = strict.MaxBytes

// Bounds and defaults of the server's settings.
const (
	MinInterval     = time.Second
	MaxInterval     = 5 * time.Minute
	DefaultInterval = 5 * time.Second

	DefaultXDSListen   = "127.0.0.1:18000"
	DefaultAdminListen = "127.0.0.1:18080"
	DefaultStateDir    = "isobar-data"

	DefaultN1Interval = time.Minute
	MaxN1Interval     = 24 * time.Hour

	DefaultStopSpread = 10 * time.Second
	MaxStopSpread     = 5 * time.Minute
)

// Config is a whole configuration file, with defaults filled in.
type Config struct {
	Fixed
	Live
}

// Fixed are the settings that take effect when a server starts, and at no reload.
type Fixed struct {
	XDS      XDS
	Admin    Admin
	StateDir string // where plans and API objects are kept
	Log      Log
	Trace    *Trace    `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; nil = none is kept
	Replicas *Replicas `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only; nil = the server is alone
}

// Live are the settings that a reload changes, all at one moment.
type Live struct {
	ReportInterval time.Duration   // how often clients report load
	Tick           time.Duration   // how often the planner decides
	N1Interval     time.Duration   // how often the loss of each zone is played; 0 = never
	StopSpread     time.Duration   // over which a server that stops sends its clients away; 0 = all at once
	Degradation    Degradation     `json:",omitzero"` //nolint:tagliatelle // called as its neighbours, in golden files only
	Identities     identity.Policy // empty = every client may do everything
	// SubscribedOnly lets load reports count only on services that someone in
	// the client's locality subscribes to.
	SubscribedOnly bool

	// MetricsMatrix names the services whose shares between localities are metrics.
	MetricsMatrix []string `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	// MetricsExceptions lets only localities that need attention have metrics.
	MetricsExceptions bool `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only

	Defaults Defaults // for services; those of the API get them when they are written
	Services []isobar.Service
	// Discovery names the providers that list endpoints of other services.
	Discovery Discovery `json:",omitzero"` //nolint:tagliatelle // called as its neighbours, in golden files only
	Network   *isobar.Network
}

// XDS is the listener for xDS clients.
type XDS struct {
	Listen     string // IP:port; port 0 takes a free one
	Listen2017 string // the same for clients of 2017 alone; "" = none
	ListenREST string // the same for clients that poll over HTTP; "" = none
	Insecure   bool   // plaintext beyond loopback is wanted
	// Clients2017 are patterns, as of [path.Match], of the node ids or node
	// clusters of clients that call the methods of v2 and mean those of 2017.
	Clients2017 []string
	MaxStreams  int // streams of each kind served at once; 0 = 40,000
	// EndpointLoad asks clients to report load by endpoint, too.
	EndpointLoad bool
	// EnvoyEndpoints is how many endpoints an Envoy that probes is given at most,
	// unless its metadata say so; 0 = 500.
	EnvoyEndpoints int `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only

	TLS       *identity.Files // nil = plaintext
	Admission Admission
	// Balancers are the addresses whose connections begin with a PROXY header.
	Balancers []netip.Prefix `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
}

// Admission bounds what may come in. Zero values stand for the defaults.
type Admission struct {
	// StreamsPerSecond is how many new streams are served, and as many new
	// connections; Burst as many at once. One address may take half of it.
	StreamsPerSecond float64
	Burst            int
	MaxConnections   int // open at once; one address may take half of them
	PeerStreams      int // of each kind open at once of one identity, else of one address
	PeerLocalities   int // different ones that one identity, else one address, may speak for
	ReportMegabytes  int // of load reports until the next tick
	NameMegabytes    int // of what the names take that all streams subscribe to, estimated
}

// Defaults of Admission. Those that are left out follow max_streams.
const (
	DefaultMaxStreams       = 40_000
	DefaultStreamsPerSecond = 4_000
	DefaultBurst            = 20_000
	DefaultPeerLocalities   = 1_000
	defaultMaxConnections   = 40_000
	DefaultNameMegabytes    = 1_024
	DefaultReportMegabytes  = 768
)

// Limits returns the admission with defaults filled in.
func (x *XDS) Limits() Admission {
	a := x.Admission
	a.StreamsPerSecond = cmp.Or(a.StreamsPerSecond, DefaultStreamsPerSecond)
	a.Burst = cmp.Or(a.Burst, DefaultBurst)
	streams := cmp.Or(x.MaxStreams, DefaultMaxStreams)
	// One for discovery and one for load reports; many streams share connections.
	a.MaxConnections = cmp.Or(a.MaxConnections, min(2*streams, max(streams, defaultMaxConnections)))
	a.PeerStreams = cmp.Or(a.PeerStreams, streams) // one identity is often a whole fleet
	a.PeerLocalities = cmp.Or(a.PeerLocalities, DefaultPeerLocalities)
	a.ReportMegabytes = cmp.Or(a.ReportMegabytes, DefaultReportMegabytes)
	a.NameMegabytes = cmp.Or(a.NameMegabytes, DefaultNameMegabytes)
	return a
}

// AddressStreams is how many streams of each kind one address may have open that
// shows no certificate.
func (x *XDS) AddressStreams() int {
	return cmp.Or(x.Admission.PeerStreams, (cmp.Or(x.MaxStreams, DefaultMaxStreams)+1)/2)
}

// Admin is the listener for operators.
type Admin struct {
	Listen   string // IP:port; port 0 takes a free one
	Insecure bool   // plaintext beyond loopback is wanted
	Writable bool   // services and health may be changed over it
	// Hosts are the names, beside localhost and IP addresses, by which requests
	// may address it; lower case, without port.
	Hosts []string

	TLS *identity.Files // nil = plaintext
	// TokenFile holds the token that writes ask for, or all requests but
	// probes; empty = none.
	TokenFile   string
	TokenForAll bool

	Console  bool   // the web console is served at /ui/
	BasePath string // beneath which a proxy may pass on requests; "" = none
}

// Log says how to log.
type Log struct {
	JSON  bool
	Level slog.Level
}

// Defaults are the values of services that don't set their own. The zero value
// of each field stands for Isobar's own default, as in [isobar.Service].
type Defaults struct {
	Mode              isobar.Mode
	Policy            isobar.Policy
	Isolation         isobar.Isolation
	Residency         []isobar.Residency   `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	FailoverThreshold float64              `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	Promote           isobar.Promotion     `json:",omitzero"`  //nolint:tagliatelle // called as its neighbours, in golden files only
	MaxShift          float64              // percentage points
	MaxShed           float64              // fraction of demand
	Ceiling           float64              // utilization
	ServiceTimeMS     float64              // milliseconds
	ErrorCostMS       float64              `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	CapacityTrust     isobar.CapacityTrust `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	Limits            []isobar.Limit       `json:",omitempty"` //nolint:tagliatelle // called as its neighbours, in golden files only
	// Cluster has no TLS.
	Cluster isobar.ClusterSettings `json:",omitzero"` //nolint:tagliatelle // called as its neighbours, in golden files only
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Fixed: Fixed{
			XDS:      XDS{Listen: DefaultXDSListen},
			Admin:    Admin{Listen: DefaultAdminListen, Console: true},
			StateDir: DefaultStateDir,
			Log:      Log{Level: slog.LevelInfo},
		},
		Live: Live{
			ReportInterval: DefaultInterval,
			Tick:           DefaultInterval,
			N1Interval:     DefaultN1Interval,
			StopSpread:     DefaultStopSpread,
		},
	}
}

// Decode reads a configuration file; file is the name that errors carry. The
// error, if any, is an [*Error] with all that is wrong.
func Decode(file string, data []byte) (*Config, []Problem, error) {
	doc := strict.Parse(file, data)
	c := Default()
	if root, ok := doc.Root(); ok {
		readFile(root, &c)
	}
	warnings, err := doc.Result()
	if err != nil {
		return nil, warnings, err
	}
	return &c, warnings, nil
}

// DecodeService reads one service, the body of a request to the admin API. The
// service is called name; the body may repeat that name, but not give another.
func DecodeService(name string, data []byte, d Defaults) (isobar.Service, []Problem, error) {
	doc := strict.Parse("body", data)
	var s isobar.Service
	if root, ok := doc.Root(); ok {
		r := serviceReader{defaults: d, name: name}
		s = r.service(root)
	}
	warnings, err := doc.Result()
	if err != nil {
		return isobar.Service{}, warnings, err
	}
	return s, warnings, nil
}

// DecodeServices reads a list of services, or an object with the one field
// services: the body of a request that replaces the API's whole set.
func DecodeServices(data []byte, d Defaults) ([]isobar.Service, []Problem, error) {
	doc := strict.Parse("body", data)
	services := []isobar.Service{}
	if root, ok := doc.Root(); ok {
		read := func(v strict.Value) { services = append(services, readServices(v, d)...) }
		if root.IsObject() {
			root.Object([]strict.Field{{Name: "services", Required: true, Read: read}})
		} else {
			read(root)
		}
	}
	warnings, err := doc.Result()
	if err != nil {
		return nil, warnings, err
	}
	return services, warnings, nil
}

// contradictions warns of numbers of one locality that are fine each but do
// not fit together. at is where to point.
type contradictions struct {
	at    strict.Value
	given bool // endpoints were given, as a list
}

// slack is how far numbers that should be equal may differ unremarked.
const slack = 0.01

func (c contradictions) check(l *isobar.ServiceLocality) {
	if !c.given {
		return
	}
	if len(l.Endpoints) == 0 {
		c.at.Warnf("add endpoints, or remove the locality", "no endpoints: no traffic will go here")
		return
	}
	rates, allRates := total(l.Endpoints, func(e *isobar.Endpoint) float64 { return e.MaxRate })
	slots, _ := total(l.Endpoints, func(e *isobar.Endpoint) float64 { return e.Concurrency })
	if l.Concurrency+slots > 0 && l.MaxRate+rates == 0 {
		c.at.Warnf("add max_rate, to the locality or to endpoints", "concurrency has no effect without a rate")
	}
	switch {
	case l.MaxRate > 0 && rates > l.MaxRate*(1+slack):
		c.at.Warnf("raise the locality's max_rate, or lower theirs",
			"the endpoints' max_rate add up to %g, above the locality's %g", rates, l.MaxRate)
	case l.MaxRate > 0 && allRates && rates < l.MaxRate*(1-slack):
		c.at.Warnf("remove the locality's max_rate, or let it be their sum",
			"the endpoints' max_rate add up to %g, below the locality's %g, and none is left to take the rest", rates, l.MaxRate)
	}
	if l.Concurrency > 0 && slots > l.Concurrency*(1+slack) {
		c.at.Warnf("raise the locality's concurrency, or lower theirs",
			"the endpoints' concurrency add up to %g, above the locality's %g", slots, l.Concurrency)
	}
	c.unmanaged(l, rates, allRates)
	if allRates {
		c.weights(l, rates)
	}
}

func (c contradictions) unmanaged(l *isobar.ServiceLocality, rates float64, allRates bool) {
	capacity := l.MaxRate
	if capacity == 0 && allRates {
		capacity = rates
	}
	ceiling, scaler := l.Ceiling, l.CapacityScaler
	if ceiling == 0 {
		ceiling = isobar.DefaultCeiling
	}
	if scaler == 0 {
		scaler = 1
	}
	if limit := ceiling * scaler * capacity; capacity > 0 && l.UnmanagedLoad >= limit {
		c.at.Warnf("lower unmanaged_load or raise max_rate",
			"unmanaged load of %g leaves nothing of the %g requests/s that the ceiling allows", l.UnmanagedLoad, limit)
	}
}

// weights warns where configured weights send endpoints other shares than the
// rates they are said to carry.
func (c contradictions) weights(l *isobar.ServiceLocality, rates float64) {
	const most = 0.1 // relative difference
	var sum float64
	set := false
	weight := func(e *isobar.Endpoint) float64 { return float64(max(1, e.Weight)) }
	for i := range l.Endpoints {
		sum += weight(&l.Endpoints[i])
		set = set || l.Endpoints[i].Weight > 0
	}
	if !set {
		return // weights follow the rates then
	}
	for i := range l.Endpoints {
		e := &l.Endpoints[i]
		byWeight, byRate := weight(e)/sum, e.MaxRate/rates
		if math.Abs(byWeight-byRate) > most*byRate {
			c.at.Warnf("leave the weights out, so that they follow max_rate",
				"weight sends %s %.0f%% of the locality's traffic, max_rate says %.0f%%", e.Address, 100*byWeight, 100*byRate)
			return
		}
	}
}

// total sums a number over endpoints and reports whether all have it.
func total(endpoints []isobar.Endpoint, of func(*isobar.Endpoint) float64) (sum float64, all bool) {
	all = true
	for i := range endpoints {
		x := of(&endpoints[i])
		sum += x
		all = all && x > 0
	}
	return sum, all
}

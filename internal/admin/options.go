// Package admin is the HTTP interface for operators: services as objects, the
// published plan and why it is so, the state of the clients, metrics, liveness
// and profiles. It changes nothing itself; what it is told goes through the
// small interfaces below.
package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/samples"
)

// Objects is the set of services with their owners. Errors wrap the sentinel
// errors of package isobar. The topology revision that a write returns is the
// one a plan must carry to have that write in it.
type Objects interface {
	// List gives all objects, sorted by name.
	List() []isobar.Object
	// Get gives one object, or isobar.ErrNotFound.
	Get(name string) (isobar.Object, error)
	// Put creates or replaces a service of the API. With ifMatch other than 0
	// the object must stand at that revision (isobar.ErrStale).
	Put(name string, svc isobar.Service, ifMatch uint64) (obj isobar.Object, topology uint64, err error)
	// PutAll replaces all services of the API at once, or none.
	PutAll(services []isobar.Service) (topology uint64, err error)
	// Delete removes a service of the API.
	Delete(name string, ifMatch uint64) (topology uint64, err error)
	// SetHealth overrides the health of an endpoint of any service;
	// isobar.Unknown takes the override back.
	SetHealth(service, address string, h isobar.HealthStatus) (topology uint64, err error)
	// SetHealths does so for several endpoints of a service, all or none.
	SetHealths(service string, addresses []string, h isobar.HealthStatus) (topology uint64, err error)
	// Overrides lists the health that operators set, sorted by service and
	// address.
	Overrides() []isobar.HealthOverride
}

// Parser reads services as the configuration file has them. Bodies are YAML,
// which holds JSON. An error that is an [InputError] is shown fault by fault;
// warnings come back with the answer of a write that succeeds.
type Parser interface {
	// ParseService reads one service. The name may be left out of the body; if
	// it stands there it must be the one given.
	ParseService(name string, body []byte) (svc isobar.Service, warnings []Problem, err error)
	// ParseServices reads a list of services, or an object with a list under
	// `services`.
	ParseServices(body []byte) (services []isobar.Service, warnings []Problem, err error)
}

// Planner is the control loop as operators see it.
type Planner interface {
	// Current gives the published plan; nil before the first one.
	Current() *plan.Plan
	// WaitRevision returns the first published plan whose topology has at
	// least the revision, or the context's error.
	WaitRevision(ctx context.Context, revision uint64) (*plan.Plan, error)
	// Beat is when the loop last advanced; zero before its first turn.
	Beat() time.Time
}

// Operator is the control loop as operators change it. What they change is in
// force when a method returns; warnings say why it may not survive a restart.
// Errors wrap isobar.ErrNotFound, plan.ErrAllPaused and plan.ErrNonePaused.
type Operator interface {
	// Pause freezes the weights of a service, or of all for an empty name.
	Pause(ctx context.Context, p plan.Pause) (next *plan.Plan, warnings []string, err error)
	// Resume takes a pause back; all of them for an empty name. It returns those that it
	// took back.
	Resume(ctx context.Context, of plan.Pause) (resumed plan.Pauses, next *plan.Plan, warnings []string, err error)
	// Rollback returns to the weights of an earlier version and pauses. It is refused
	// where today's demand does not fit, with a [*plan.TooMuchError], unless forced.
	Rollback(ctx context.Context, version uint64, p plan.Pause, force bool) (before, next *plan.Plan, warnings []string, err error)
	// History lists what changed a service, or every change for an empty name,
	// newest first.
	History(ctx context.Context, service string) ([]plan.Change, error)
}

// ExplainFunc explains one service of a plan from one source locality. An
// error that wraps isobar.ErrNotFound becomes 404.
type ExplainFunc func(p *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error)

// Defaults of Options.
const (
	DefaultPublishWait = 5 * time.Second
	DefaultStall       = 30 * time.Second
	DefaultMaxBodies   = 256 << 20
	DefaultMaxAnswers  = 256 << 20
)

// Options of a Server. Objects, Parser, Planner, Explain and Clients must be
// given; the zero value of everything else has a meaning.
type Options struct {
	Objects Objects
	Parser  Parser
	Planner Planner
	Explain ExplainFunc
	Clients func() []Client // the state of the xDS clients, sorted by node id

	// ClientsOf gives those that subscribe to a service; nil = those that name it, as far as
	// Clients tells.
	ClientsOf func(service string) []Client

	// Accepting may change the HTTP server before it serves; nil = nothing does.
	Accepting func(*http.Server)

	// Operator is told what operators decide; nil = they can't.
	Operator Operator

	// Health tells what checkers found, of one service or, for an empty name, of
	// all that have health checks; nil = there is no health discovery.
	Health func(ctx context.Context, service string) ([]health.ServiceReport, error)
	// HealthOverview is Health of all services without their endpoints, which is all
	// that the status shows; nil = Health.
	HealthOverview func(ctx context.Context) ([]health.ServiceReport, error)
	// Release believes a mass flip of a service that is held; false if nothing
	// is held.
	Release func(ctx context.Context, service string) (bool, error)
	// Checkers lists the connected checkers, sorted by id.
	Checkers func() []Checker
	// Preview tells what another configuration file would change; errors wrap
	// isobar.ErrInvalid where it does not hold. nil = there is none.
	Preview func(ctx context.Context, body []byte) (plan.Difference, []Problem, error)
	// WhatIf tells what would become of the plan in force; errors wrap
	// isobar.ErrInvalid and isobar.ErrNotFound where nothing can. nil = nobody
	// tells.
	WhatIf func(ctx context.Context, w *plan.WhatIf) (plan.Difference, error)
	// Record writes a trace of everything that is decided until ctx ends; nil =
	// nobody does.
	Record func(ctx context.Context, w io.Writer) error
	// Breaches tells what a drain would make too much, a line each; nil = drains
	// are not checked.
	Breaches func(ctx context.Context, d *Drain) ([]string, error)
	// Reserves tells how services stand the loss of their worst zone, and when
	// that was so; nil = nobody tells.
	Reserves func() (at time.Time, services []plan.Reserve)
	// Ticks counts the decisions since the start of the process, and tells how
	// long the last one took; nil = nobody counts.
	Ticks func() (count uint64, took time.Duration)
	// Unsaved lists what can't be written to the state, and why; nil = nothing.
	Unsaved func() []string
	// Attention tells what else needs attention; nil = nothing.
	Attention func() []Attention
	// Subscribers lists the clients of each service, sorted by service and locality; nil
	// = nobody knows.
	Subscribers func() []ServiceClients
	// Nearest lists what may be meant by a name among others, at most so many; nil =
	// nobody knows.
	Nearest func(name string, names []string, most int) []string
	// UnknownClusters lists clusters in load reports that are no services; nil = none.
	UnknownClusters func() []string
	// Certificates lists those that the server shows; nil = none.
	Certificates func() []Certificate
	// Source gives the state of the other control plane that lists endpoints, to
	// be shown as JSON, or false when none is configured; nil = there never is.
	Source func() (state any, ok bool)
	// DNS is the same for the names that DNS resolves; it is shown where Source is.
	DNS func() (state any, ok bool)
	// Kubernetes is the same for the Kubernetes cluster.
	Kubernetes func() (state any, ok bool)
	// Replicas is the group of replicas that the server belongs to; nil = none.
	Replicas Replicas
	// Reload reads the configuration file again; a digest confirms what is held of
	// it. It gives what is held then. Errors wrap isobar.ErrStale where the file is
	// another one, and isobar.ErrInvalid where it is refused. nil = there is no file.
	Reload func(confirm string) (*HeldConfiguration, error)
	// Held is what of the configuration file is held; nil = nothing ever is.
	Held func() *HeldConfiguration
	// Samples gives what the plans of the last hour, or with day of the last day, say of
	// a service, or of all together for an empty name; false where there is nothing.
	// nil = nobody keeps any.
	Samples func(service string, day bool) (samples.Series, bool)
	// Archive keeps the changes of the last day; nil = History of Operator is all that is
	// known.
	Archive *archive.Archive
	// Marks lists the moments that are marked in charts of samples, oldest first; nil = none.
	Marks func() []SampleMark
	// Console serves the web console, relative to its path; nil = there is none.
	Console http.Handler
	// BasePath is a path, such as /isobar, beneath which everything is served, too;
	// "" = none.
	BasePath string
	// Polls answers checkers that fetch their work over REST; nil = none may.
	Polls http.Handler

	// Writable allows PUT and DELETE.
	Writable bool
	// Hosts are the names, without port, by which the interface may be
	// addressed, beside IP addresses and localhost. It keeps a web page from
	// reading and writing by way of a name that it controls.
	Hosts []string
	// Token tells whether a bearer token is the right one; nil = none is asked
	// for. Requests other than GET and HEAD need it; with TokenForAll all do but
	// the probes.
	Token       func(presented string) bool
	TokenForAll bool
	// MayWrite, if not nil, is asked about requests other than GET and HEAD, but
	// for those of checkers that poll; an error, which is answered, refuses them.
	MayWrite func(*http.Request) error
	// IsOperator reports whether a request comes from who has proved to be an operator
	// other than by the token. nil = nobody has.
	IsOperator func(*http.Request) bool
	// Removes says how much is removed where these services replace those of the API;
	// "" = little. nil = nobody asks.
	Removes func(services []isobar.Service) string
	// MaxBodies bounds the bytes of the bodies of all writes under way together;
	// 0 = DefaultMaxBodies.
	MaxBodies int64
	// MaxAnswers bounds the bytes of large answers that clients have yet to take,
	// together; 0 = DefaultMaxAnswers.
	MaxAnswers int64
	// PublishWait is how long a write waits for the plan that has it in it;
	// 0 = DefaultPublishWait.
	PublishWait time.Duration
	// Stall is the age of the loop's last turn above which the process counts
	// as stuck: several times what it may rest between two ticks. It is asked
	// at every probe; nil = DefaultStall.
	Stall func() time.Duration
	// Stopping tells whether the server is on its way out; nil = never.
	Stopping func() bool

	Gatherer   prometheus.Gatherer   // for /metrics; nil = the registry of the process
	Registerer prometheus.Registerer // for the interface's own metrics; nil = none
	Logger     *slog.Logger          // nil = none
}

func (o *Options) complete() error {
	switch {
	case o.Objects == nil, o.Parser == nil, o.Planner == nil, o.Explain == nil, o.Clients == nil:
		return errors.New("admin: Objects, Parser, Planner, Explain and Clients must be given")
	}
	if o.PublishWait <= 0 {
		o.PublishWait = DefaultPublishWait
	}
	if o.MaxBodies <= 0 {
		o.MaxBodies = DefaultMaxBodies
	}
	if o.MaxAnswers <= 0 {
		o.MaxAnswers = DefaultMaxAnswers
	}
	if o.Stall == nil {
		o.Stall = func() time.Duration { return DefaultStall }
	}
	if o.Stopping == nil {
		o.Stopping = func() bool { return false }
	}
	if o.Gatherer == nil {
		o.Gatherer = prometheus.DefaultGatherer
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

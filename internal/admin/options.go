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
	// List returns all objects, sorted by name.
	List() []isobar.Object
	// Get returns one object, or isobar.ErrNotFound.
	Get(name string) (isobar.Object, error)
	// Put creates or replaces a service of the API. With ifMatch other than 0
	// the object must stand at that revision (isobar.ErrStale).
	Put(name string, svc isobar.Service, ifMatch uint64) (obj isobar.Object, topology uint64, err error)
	// PutAll replaces all services of the API at once, or none.
	PutAll(services []isobar.Service) (topology uint64, err error)
	// Delete removes a service of the API.
	Delete(name string, ifMatch uint64) (topology uint64, err error)
	// SetHealths overrides the health of endpoints of any service, of all of them or none;
	// isobar.Unknown takes overrides back.
	SetHealths(o *isobar.HealthChange) (topology uint64, err error)
	// ForceHealths keeps what SetHealths sets for the next leader of a group of replicas that
	// has none at the moment; nothing changes before that.
	ForceHealths(ctx context.Context, o *isobar.HealthChange) error
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
	// Current returns the published plan; nil before the first one.
	Current() *plan.Plan
	// WaitRevision returns the first published plan whose topology has at
	// least the revision, or the context's error.
	WaitRevision(ctx context.Context, revision uint64) (*plan.Plan, error)
	// Beat is when the loop last advanced; zero before its first turn.
	Beat() time.Time
	// Explain explains one service of a plan from one source locality. An error that wraps
	// isobar.ErrNotFound becomes 404.
	Explain(p *plan.Plan, service string, source isobar.Locality) (plan.Explanation, error)
	// Ticks counts the decisions since the start of the process, and tells how
	// long the last one took.
	Ticks() (count uint64, took time.Duration)
	// Reserves returns how services stand the loss of their worst zone, and when
	// that was so; zero = it is not known.
	Reserves() (at time.Time, services []plan.Reserve)
	// Losses returns how services stand the loss of each zone, and when that was so;
	// zero = it is not known. They are outdated where the plan of now differs much from
	// the one that they were computed with.
	Losses(now *plan.Plan) (at time.Time, zones []plan.ZoneLoss, outdated bool)
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
	// Breaches tells what a drain would make too much, a line each.
	Breaches(ctx context.Context, d *Drain) ([]string, error)
	// WhatIf tells what would become of the plan in force; errors wrap
	// isobar.ErrInvalid and isobar.ErrNotFound where nothing can.
	WhatIf(ctx context.Context, w *plan.WhatIf) (plan.Difference, error)
}

// Fleet is the clients.
type Fleet interface {
	// Clients lists the clients, sorted by node id.
	Clients() []Client
	// ClientsOf lists those that subscribe to a service.
	ClientsOf(service string) []Client
	// Subscribers lists the clients of each service, sorted by service and locality.
	Subscribers() []ServiceClients
	// UnknownClusters lists clusters in load reports that are no services.
	UnknownClusters() []string
}

// HealthChecks is health discovery.
type HealthChecks interface {
	// Health tells what checkers found, of one service or, for an empty name, of
	// all that have health checks.
	Health(ctx context.Context, service string) ([]health.ServiceReport, error)
	// HealthOverview is Health of all services without their endpoints, which is all
	// that the status shows.
	HealthOverview(ctx context.Context) ([]health.ServiceReport, error)
	// Release believes a mass flip of a service that is held; false if nothing
	// is held.
	Release(ctx context.Context, service string) (bool, error)
	// Checkers lists the connected checkers, sorted by id.
	Checkers() []Checker
}

// Configuration is the configuration file.
type Configuration interface {
	// Preview tells what another file would change; errors wrap isobar.ErrInvalid where it
	// does not hold.
	Preview(ctx context.Context, body []byte) (plan.Difference, []Problem, error)
	// Reload reads the file again; a digest confirms what is held of it. It returns what is
	// held then. Errors wrap isobar.ErrStale where the file is another one, and
	// isobar.ErrInvalid where it is refused.
	Reload(confirm string) (*HeldConfiguration, error)
	// Held is what of the file is held; nil = nothing.
	Held() *HeldConfiguration
	// Removes says how much is removed where these services replace those of the API;
	// "" = little.
	Removes(services []isobar.Service) string
}

// Providers are the sources of endpoints beside the configuration file and the API. A state
// is shown as JSON; ok is false where the provider is not configured.
type Providers interface {
	ControlPlane() (state any, ok bool)
	DNS() (state any, ok bool)
	Kubernetes() (state any, ok bool)
}

// Recorder writes recordings.
type Recorder interface {
	// Record writes everything that is decided until ctx ends.
	Record(ctx context.Context, w io.Writer) error
}

// Charts keeps samples of plans.
type Charts interface {
	// Samples returns what the plans of the last hour, or with day of the last day, say of
	// a service, or of all together for an empty name; false where there is nothing.
	Samples(service string, day bool) (samples.Series, bool)
	// Marks lists the moments that are marked in charts, oldest first.
	Marks() []SampleMark
	// Mark marks a moment; the same text within a second is the same mark. Errors wrap
	// isobar.ErrUnavailable where a group of replicas has no leader to bring it to all.
	Mark(m SampleMark) error
}

// Process is the server as a process.
type Process interface {
	// Stopping reports whether the server is on its way out.
	Stopping() bool
	// Stall is the age of the loop's last turn above which the process counts
	// as stuck: several times what it may rest between two ticks. It is asked
	// at every probe.
	Stall() time.Duration
	// Unsaved lists what can't be written to the state, and why.
	Unsaved() []string
	// Attention lists what else needs attention.
	Attention() []Attention
	// Certificates lists those that the server shows.
	Certificates() []Certificate
}

// Identities tells who sends a request, by its certificate.
type Identities interface {
	// MayWrite is asked about requests other than GET and HEAD, but for those of checkers
	// that poll; an error, which is answered, refuses them.
	MayWrite(r *http.Request) error
	// IsOperator reports whether a request comes from who has proved to be an operator.
	IsOperator(r *http.Request) bool
}

// noIdentities is an interface without certificates.
type noIdentities struct{}

func (noIdentities) MayWrite(*http.Request) error  { return nil }
func (noIdentities) IsOperator(*http.Request) bool { return false }

// running is a process of which nothing is known.
type running struct{}

func (running) Stopping() bool              { return false }
func (running) Stall() time.Duration        { return DefaultStall }
func (running) Unsaved() []string           { return nil }
func (running) Attention() []Attention      { return nil }
func (running) Certificates() []Certificate { return nil }

// Defaults of Options.
const (
	DefaultPublishWait = 5 * time.Second
	DefaultStall       = 30 * time.Second
	DefaultMaxBodies   = 48 << 20
	DefaultMaxAnswers  = 256 << 20
)

// Options of a Server. Objects, Parser, Planner and Fleet must be given; the zero value of
// everything else has a meaning.
type Options struct {
	Rules
	Handlers
	Limits
	Metrics

	Objects Objects
	Parser  Parser
	Planner Planner
	Fleet   Fleet

	Operator      Operator      // nil = operators can't change anything but services
	HealthChecks  HealthChecks  // nil = there is no health discovery
	Configuration Configuration // nil = there is no file
	Providers     Providers     // nil = there are none
	Recorder      Recorder      // nil = nothing is recorded
	Charts        Charts        // nil = no samples are kept
	Process       Process       // nil = nothing is known of it
	// Replicas is the group of replicas that the server belongs to; nil = none.
	Replicas Replicas
	// Archive keeps the changes of the last day; nil = History of Operator is all that is
	// known.
	Archive *archive.Archive
	// Nearest lists what may be meant by a name among others, at most so many; nil =
	// nobody knows.
	Nearest func(name string, names []string, most int) []string

	Logger *slog.Logger // nil = none
}

// Rules are the rules for who may send which request.
type Rules struct {
	Identities Identities // nil = nobody shows a certificate
	// Writable allows PUT and DELETE.
	Writable bool
	// Hosts are the names, without port, by which the interface may be
	// addressed, beside IP addresses and localhost. It keeps a web page from
	// reading and writing through a name that it controls.
	Hosts []string
	// Token reports whether a bearer token is the right one; nil = none is asked
	// for. Requests other than GET and HEAD need it; with TokenForAll all do but
	// the probes.
	Token       func(presented string) bool
	TokenForAll bool
}

// Handlers are what the HTTP server has beside the API.
type Handlers struct {
	// Console serves the web console, relative to its path; nil = there is none.
	Console http.Handler
	// Polls answers checkers that fetch their work over REST; nil = none may.
	Polls http.Handler
	// BasePath is a path, such as /isobar, beneath which everything is served, too;
	// "" = none.
	BasePath string
	// Accepting may change the HTTP server before it serves; nil = nothing does.
	Accepting func(*http.Server)
}

// Limits bound what requests cost.
type Limits struct {
	// MaxBodies bounds the bytes of the bodies of all writes under way together;
	// 0 = DefaultMaxBodies.
	MaxBodies int64
	// MaxAnswers bounds the bytes of large answers that clients have yet to take,
	// together; 0 = DefaultMaxAnswers.
	MaxAnswers int64
	// PublishWait is how long a write waits for the plan that has it in it;
	// 0 = DefaultPublishWait.
	PublishWait time.Duration
}

// Metrics are the registries of metrics.
type Metrics struct {
	Gatherer   prometheus.Gatherer   // for /metrics; nil = the registry of the process
	Registerer prometheus.Registerer // for the interface's own metrics; nil = none
}

func (o *Options) complete() error {
	switch {
	case o.Objects == nil, o.Parser == nil, o.Planner == nil, o.Fleet == nil:
		return errors.New("admin: Objects, Parser, Planner and Fleet must be given")
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
	if o.Process == nil {
		o.Process = running{}
	}
	if o.Identities == nil {
		o.Identities = noIdentities{}
	}
	if o.Gatherer == nil {
		o.Gatherer = prometheus.DefaultGatherer
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

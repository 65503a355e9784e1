package view

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Options of a Builder. All are optional.
type Options struct {
	Registerer prometheus.Registerer
	// Refused is called for each resource that is refused, from whichever
	// goroutine first asked for it; it must not block. It is called once per
	// content, not once per client.
	Refused func(Refusal)
}

// Builder makes sets of views.
type Builder struct {
	refusedHook func(Refusal)
	encoded     *prometheus.CounterVec
	refused     *prometheus.CounterVec
	renamed     atomic.Int64 // bytes of what is kept under xdstp names; see maxRenamedSize
	servers     serverListeners
}

// NewBuilder makes a builder.
func NewBuilder(o Options) *Builder {
	b := &Builder{
		refusedHook: o.Refused,
		encoded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_xds_resources_encoded_total",
			Help: "Resources encoded, by type.",
		}, []string{"type"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_xds_resources_refused_total",
			Help: "Resources that broke a rule; Isobar did not send them, by type.",
		}, []string{"type"}),
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(b.encoded, b.refused)
	}
	for k := range resource.Kinds {
		kind := resource.Kind(k).String()
		b.encoded.WithLabelValues(kind)
		b.refused.WithLabelValues(kind)
	}
	return b
}

// sequence numbers all sets of the process, so that numbers of two builders are
// never taken for each other's.
var sequence atomic.Uint64

// Build makes the set of a plan. What the previous set has encoded already is
// taken over where it still holds; previous may be nil.
func (b *Builder) Build(p Plan, previous *Set) *Set {
	specs := specsOf(p)
	s := &Set{
		builder: b,
		plan:    p,
		version: p.VersionString(),
		names:   make([]string, 0, len(specs)),
		static:  make(map[string]*static, len(specs)),
		seq:     sequence.Add(1),
	}
	s.head = mem.SliceBuffer(resource.ResponseHead(s.version))
	if previous != nil {
		s.base = previous.seq
	}
	renewed := previous == nil // the services are others than before
	for _, spec := range specs {
		name := spec.Name
		s.names = append(s.names, name)
		if l := (Lifetime{Stale: spec.Assignment.EndpointStaleAfter, TTL: spec.Assignment.ResourceTTL}); l != (Lifetime{}) {
			if s.lifetimes == nil {
				s.lifetimes = map[string]Lifetime{}
			}
			s.lifetimes[name] = l
		}
		s.compare(name, previous)
		old, limit := previous.staticOf(name), p.RequestLimit(name)
		renewed = renewed || old == nil
		if old != nil && old.fits(spec, limit) {
			s.static[name] = old
			continue
		}
		s.static[name] = newStatic(spec, limit, old)
		s.changed = append(s.changed, name)
	}
	if previous != nil {
		for _, name := range previous.names {
			if s.static[name] == nil {
				if gone := previous.static[name]; gone != nil {
					gone.renamed.drop(&b.renamed)
				}
				s.changed = append(s.changed, name)
				renewed = true
			}
		}
	}
	if s.services = s.seq; !renewed {
		s.services = previous.services
	}
	return s
}

// specsOf lists the services that clients can see, sorted. Those whose endpoints
// are not known yet are among them: they have cluster, listener and routes, so
// that clients that know them already do not take them for gone.
func specsOf(p Plan) []*isobar.Service {
	names, awaited := p.ServiceNames(), p.Awaited()
	out := make([]*isobar.Service, 0, len(names)+len(awaited))
	for _, name := range names {
		if spec := p.Spec(name); spec != nil {
			out = append(out, spec)
		}
	}
	if len(awaited) == 0 {
		return out
	}
	for i := range awaited {
		out = append(out, &awaited[i])
	}
	slices.SortFunc(out, func(a, b *isobar.Service) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// compare notes whether a service's assignments are those of the previous set.
func (s *Set) compare(name string, previous *Set) {
	if previous == nil {
		return
	}
	if basis := s.plan.Basis(name); basis == nil || basis != previous.plan.Basis(name) {
		return
	}
	if s.same == nil {
		s.same = make(map[string]struct{}, len(s.names))
	}
	s.same[name] = struct{}{}
}

func (b *Builder) done(kind resource.Kind) { b.encoded.WithLabelValues(kind.String()).Inc() }

func (b *Builder) refuse(kind resource.Kind, r Refusal) {
	b.refused.WithLabelValues(kind.String()).Inc()
	if b.refusedHook != nil {
		r.Type = kind.String()
		b.refusedHook(r)
	}
}

// Plan is what a set of views is made from. It is immutable, and its methods
// may be called from several goroutines at once for as long as the set is used.
type Plan interface {
	// VersionString is the version as clients get it.
	VersionString() string
	// ServiceNames lists the services, sorted and unique. The slice never changes.
	ServiceNames() []string
	// Spec returns a service; nil when there is none of that name.
	Spec(name string) *isobar.Service
	// RequestLimit returns how many requests each client of a service may have in
	// progress; 0 = no limit.
	RequestLimit(name string) uint32
	// Awaited lists services of which nothing is decided, since their endpoints
	// are not known yet, sorted and unique; none of them is a service of the plan.
	Awaited() []isobar.Service
	// Assignment returns what the clients of a service in a source locality
	// get; nil when there is no such service. Between plans the pointer stays
	// the same while nothing in it changes: only then encoding is spared.
	Assignment(service string, source isobar.Locality) *isobar.Assignment
	// Basis returns what all assignments of a service follow from: where it is equal
	// in two plans, they are, and need not be compared. It is comparable; nil is
	// equal to nothing.
	Basis(service string) any
}

// Refusal is a resource that broke a rule and was therefore not sent; the last
// good one stays.
type Refusal struct {
	Service string
	Source  isobar.Locality // zero for what does not depend on it
	Type    string          // cds, eds, lds or rds
	Err     error           // wraps rpc.ErrRefused
}

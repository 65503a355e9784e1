package views

import (
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/wire"
)

// Resource is an encoded resource. Resources of equal content are often the
// same pointer, and always of the same Version.
type Resource = wire.Encoded

// Set is everything that clients can see of one plan. Immutable but for
// encoding what is first asked for; safe for concurrent use.
type Set struct {
	builder *Builder
	plan    Plan
	version string
	head    []byte
	names   []string
	static  map[string]*static
	seq     uint64
	base    uint64   // seq of the set that changed was compared with; 0 = none
	changed []string // services that are new, gone, or have another cluster
}

// Version is the version of the plan.
func (s *Set) Version() string { return s.version }

// Names lists the services, sorted. The slice must not be changed.
func (s *Set) Names() []string { return s.names }

// Head is the encoded beginning of every response from this set.
func (s *Set) Head() []byte { return s.head }

// Seq counts the sets: a later set has a higher number.
func (s *Set) Seq() uint64 { return s.seq }

func (s *Set) staticOf(name string) *static {
	if s == nil {
		return nil
	}
	return s.static[name]
}

// static is what of a service does not depend on who asks: cluster, listener
// and routes. It lives as long as the service keeps its form.
type static struct {
	name  string
	orca  bool
	slots [wire.Kinds]slot
}

func newStatic(name string, orca bool, old *static) *static {
	s := &static{name: name, orca: orca}
	if old != nil {
		for k := range s.slots {
			s.slots[k].fallback = old.slots[k].peek()
		}
	}
	return s
}

func (s *static) get(b *Builder, kind wire.Kind) *Resource {
	return s.slots[kind].get(func() (*Resource, error) {
		spec := &isobar.Service{Name: s.name, ORCA: s.orca}
		var (
			m   proto.Message
			err error
		)
		switch kind {
		case wire.Cluster:
			m, err = wire.ClusterOf(spec)
		case wire.Listener:
			m, err = wire.ListenerOf(spec)
		case wire.Route:
			m, err = wire.RouteOf(spec)
		default:
			return nil, nil // no such resource
		}
		if err != nil {
			b.refuse(kind, Refusal{Service: s.name, Err: err})
			return nil, err
		}
		b.done(kind)
		return wire.Encode(s.name, kind, m)
	})
}

// Package kubernetes is the engine for replicas that run in a Kubernetes cluster (1.33
// or newer): leadership is a Lease of its API.
//
//	spec.holderIdentity               which replica leads, as NAME_INCARNATION
//	spec.renewTime                    changes with each renewal
//	annotation isobar.dev/group       the group that the Lease belongs to
//	annotation isobar.dev/claim       the newest claim
//	annotation isobar.dev/present     how many replicas each follower reaches; see presence.go
//	annotation isobar.dev/operators   the head of operators' writes; see operators.go
//
// All of it is in one object, so each write replaces exactly the state that it was decided
// on: the API server refuses an update whose resource version is not the newest. No clock
// is compared with another one: a replica takes over once it has seen no renewal for the
// time of the lease on its own clock, as client-go's leaderelection does.
package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

const (
	// DefaultDuration is for how long a replica that shows no renewal keeps others from
	// leading: the default of client-go and of Kubernetes' own components.
	DefaultDuration = 15 * time.Second
	// Deadline is for how long after a renewal a leader publishes. The rest of
	// DefaultDuration is for a request that is under way.
	Deadline = 10 * time.Second

	// longest bounds the duration that is taken from a Lease of another version.
	longest = time.Minute
	// tries bounds how often a request restarts because the Lease changed.
	tries = 10

	groupKey, claimKey, operatorsKey = "isobar.dev/group", "isobar.dev/claim", "isobar.dev/operators"
)

// Options of an Engine. All but Duration are required.
type Options struct {
	Config    *rest.Config // of the API server
	Namespace string       // of the Lease and of the operators' objects
	Lease     string       // its name
	Group     string
	Self      group.Identity
	Duration  time.Duration // default DefaultDuration; whole seconds
}

// Engine implements [engine.Engine] and [engine.Operators] on a Lease.
type Engine struct {
	opts   Options
	self   string
	client *rest.RESTClient
	close  func()

	observing sync.Mutex
	seen      string              // the last record of the holder that was read
	seenAt    time.Time           // when it was read first
	sightings map[string]sighting // of other replicas; nil before the first look

	left   present // by this replica, while it does not lead
	leftAt time.Time
	beats  uint64

	writing   sync.Mutex // held while operators write
	collected uint64     // the epoch in which objects of earlier ones were removed
}

var _ engine.Engine = (*Engine)(nil)

// Open opens the engine of one replica. It sends nothing yet.
func Open(opts Options) (*Engine, error) {
	if opts.Config == nil || opts.Namespace == "" || opts.Lease == "" || opts.Group == "" || opts.Self.Name == "" {
		return nil, errors.New("kubernetes: Config, Namespace, Lease, Group and Self are required")
	}
	if opts.Duration == 0 {
		opts.Duration = DefaultDuration
	}
	cfg := rest.CopyConfig(opts.Config)
	cfg.Timeout = engine.RequestPatience
	cfg.QPS = -1 // the group asks once in two seconds; a limit would only delay a renewal
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	cfg.WarningHandler = rest.NoWarnings{}
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(cfg, transport)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return &Engine{opts: opts, self: encode(opts.Self), client: client, close: transport.CloseIdleConnections}, nil
}

// encode returns the identity as kubectl shows it.
func encode(i group.Identity) string { return i.Name + "_" + strconv.FormatUint(i.Incarnation, 16) }

func decode(holder string) (group.Identity, error) {
	if holder == "" {
		return group.Identity{}, nil
	}
	at := strings.LastIndexByte(holder, '_')
	if at < 1 {
		return group.Identity{}, fmt.Errorf("its holder is %q, which is no replica of Isobar: give each user of Leases a Lease of its own", holder)
	}
	incarnation, err := strconv.ParseUint(holder[at+1:], 16, 64)
	if err != nil {
		return group.Identity{}, fmt.Errorf("its holder is %q, which is no replica of Isobar: give each user of Leases a Lease of its own", holder)
	}
	return group.Identity{Name: holder[:at], Incarnation: incarnation}, nil
}

// Changed implements [engine.Engine]: replicas send each other a message when they hand
// leadership over, and no event shows that a Lease has run out.
func (e *Engine) Changed() <-chan struct{} { return nil }

// Close implements [engine.Engine]. What the replica holds ends with its Lease; release
// it before.
func (e *Engine) Close() error {
	e.close()
	return nil
}

// Do implements [engine.Engine].
func (e *Engine) Do(ctx context.Context, r group.Request) (group.Standing, error) {
	s, err := e.do(ctx, r)
	if ctx.Err() != nil {
		e.close() // the next request takes a new connection: this one may lead to a machine that is gone
	}
	if err != nil {
		return group.Standing{}, fmt.Errorf("lease %s/%s: %s: %w", e.opts.Namespace, e.opts.Lease, r.Op, err)
	}
	return s, nil
}

func (e *Engine) do(ctx context.Context, r group.Request) (group.Standing, error) {
	for range tries {
		now, err := e.read(ctx)
		if err != nil {
			return group.Standing{}, err
		}
		e.observe(now, time.Now())
		next, changes, err := e.next(now, r)
		if err != nil {
			return group.Standing{}, err
		}
		if !changes {
			return e.standing(now), nil
		}
		written, err := e.write(ctx, next)
		if replaced(err) {
			continue
		}
		if err != nil {
			return group.Standing{}, err
		}
		now = &state{lease: written}
		if err := now.decode(); err != nil {
			return group.Standing{}, err
		}
		e.observe(now, time.Now())
		return e.standing(now), nil
	}
	return group.Standing{}, fmt.Errorf("it changed during each of %d attempts to write it", tries)
}

// replaced reports whether a write was refused because the Lease is another one now.
func replaced(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// state is a Lease, decoded. lease is nil where there is none.
type state struct {
	lease  *coordinationv1.Lease
	holder group.Identity
	claim  group.Claim
	head   head

	present map[string]present // by name
}

// holderText is the encoded holder; empty if no replica leads.
func (s *state) holderText() string {
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

func (s *state) decode() (err error) {
	s.present = map[string]present{}
	if s.lease == nil {
		return nil
	}
	if s.present, err = decodePresent(s.lease.Annotations[presentKey]); err != nil {
		return err
	}
	if s.holder, err = decode(s.holderText()); err != nil {
		return err
	}
	if s.claim, err = group.DecodeClaim([]byte(s.lease.Annotations[claimKey])); err != nil {
		return fmt.Errorf("annotation %s: %w", claimKey, err)
	}
	s.head, err = decodeHead(s.lease.Annotations[operatorsKey])
	return err
}

// read reads the Lease as it is now, not from the cache of the API server.
func (e *Engine) read(ctx context.Context) (*state, error) {
	data, err := e.client.Get().AbsPath(e.leases(), e.opts.Lease).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return &state{present: map[string]present{}}, nil
	}
	if err != nil {
		return nil, explain(err, "get, create and update of leases.coordination.k8s.io")
	}
	s := &state{lease: &coordinationv1.Lease{}}
	if err := json.Unmarshal(data, s.lease); err != nil {
		return nil, err
	}
	if of := s.lease.Annotations[groupKey]; of != e.opts.Group && (of != "" || s.holderText() != "") {
		return nil, fmt.Errorf("it belongs to group %q, not to %q: give each group a Lease of its own", of, e.opts.Group)
	}
	return s, s.decode()
}

// explain names the permission that is missing.
func explain(err error, permission string) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("not permitted: give the service account %s, by a Role in the namespace: %w", permission, err)
	}
	return err
}

func (e *Engine) leases() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + e.opts.Namespace + "/leases"
}

// write makes the Lease or replaces the one that was read.
func (e *Engine) write(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	l.TypeMeta = metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}
	body, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	method, path := http.MethodPut, []string{e.leases(), e.opts.Lease}
	if l.ResourceVersion == "" {
		method, path = http.MethodPost, path[:1]
	}
	data, err := e.client.Verb(method).AbsPath(path...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Raw()
	if err != nil {
		return nil, explain(err, "get, create and update of leases.coordination.k8s.io")
	}
	out := &coordinationv1.Lease{}
	return out, json.Unmarshal(data, out)
}

// observe notes when the holder's record changed last, on this replica's own clock.
func (e *Engine) observe(s *state, now time.Time) {
	record := ""
	if s.lease != nil {
		spec := &s.lease.Spec
		record = fmt.Sprint(s.lease.UID, s.holderText(), moment(spec.AcquireTime), moment(spec.RenewTime), pointed(spec.LeaseTransitions))
	}
	e.observing.Lock()
	defer e.observing.Unlock()
	if record != e.seen || e.seenAt.IsZero() {
		e.seen, e.seenAt = record, now
	}
	e.sight(s, now)
}

// moment returns a time of the Lease as text; empty where it has none, as in a Lease that
// an operator made.
func moment(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	return t.String()
}

func pointed(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// free reports whether another replica may take leadership.
func (e *Engine) free(s *state, now time.Time) bool {
	if s.holder.Name == "" {
		return true
	}
	duration := e.opts.Duration
	if n := s.lease.Spec.LeaseDurationSeconds; n != nil {
		duration = max(duration, min(longest, time.Duration(*n)*time.Second))
	}
	e.observing.Lock()
	defer e.observing.Unlock()
	return now.Sub(e.seenAt) >= duration
}

func (e *Engine) standing(s *state) group.Standing {
	out := group.Standing{Holder: s.holder, Claim: s.claim, Present: e.presences(time.Now())}
	if s.holderText() != e.self && e.free(s, time.Now()) {
		out.Holder = group.Identity{}
	}
	return out
}

// next returns the Lease that a request makes of the one that was read, and whether it
// changes.
func (e *Engine) next(s *state, r group.Request) (next *coordinationv1.Lease, changes bool, err error) {
	mine := s.holderText() == e.self
	switch {
	case r.Op == group.OpAcquire && !mine && e.free(s, time.Now()):
		next = e.acquired(s)
		return next, true, e.forget(next, s, time.Now())
	case r.Op == group.OpAcquire && !mine:
		return e.announced(s, r.Reaches, time.Now())
	case (r.Op == group.OpAcquire || r.Op == group.OpRenew) && mine:
		next = renewed(s)
		return next, true, e.forget(next, s, time.Now())
	case r.Op == group.OpClaim && mine && s.claim == r.Previous:
		data, err := r.Claim.Encode()
		if err != nil {
			return nil, false, err
		}
		next = renewed(s)
		next.Annotations[claimKey] = string(data)
		return next, true, nil
	case r.Op == group.OpRelease && mine:
		next = renewed(s)
		next.Spec.HolderIdentity = nil
		return next, true, nil
	}
	return s.lease, false, nil
}

// renewed is the Lease with the present time, which is for display only.
func renewed(s *state) *coordinationv1.Lease {
	next := s.lease.DeepCopy()
	now := metav1.NowMicro()
	next.Spec.RenewTime = &now
	next.Annotations = maps.Clone(next.Annotations)
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	return next
}

// acquired is the Lease with this replica as its holder.
func (e *Engine) acquired(s *state) *coordinationv1.Lease {
	base := s
	if base.lease == nil {
		base = &state{lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.opts.Lease, Namespace: e.opts.Namespace}}}
	}
	next := renewed(base)
	seconds, transitions := int32(min(e.opts.Duration, longest).Seconds()), pointed(next.Spec.LeaseTransitions)+1
	next.Spec.HolderIdentity, next.Spec.AcquireTime = &e.self, next.Spec.RenewTime
	next.Spec.LeaseDurationSeconds, next.Spec.LeaseTransitions = &seconds, &transitions
	next.Annotations[groupKey] = e.opts.Group
	return next
}

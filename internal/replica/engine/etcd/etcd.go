// Package etcd is the engine for replicas on several machines: leadership is a key
// of etcd (3.6 or newer) that lives as long as a lease.
//
//	PREFIX/GROUP/election/leader         the leader's identity, under its lease
//	PREFIX/GROUP/election/claim          the newest claim
//	PREFIX/GROUP/election/members/NAME   what a replica that does not lead reaches, under a lease
//
// It does not use etcd's concurrency package: what that remembers of a session
// outlives the session. Here each request asks etcd for everything that it builds
// on.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// DefaultTTL is the lease of leadership. A leader stops publishing 3 s before it
// runs out.
const DefaultTTL = 10 * time.Second

// maxMembers bounds the number of replicas that are read beside the leader.
const maxMembers = 4 * group.MaxReplicas

// Options of an Engine. Client, Group and Self are required.
type Options struct {
	Client *clientv3.Client // the caller closes it after the engine
	Prefix string           // of all keys; default "isobar"
	Group  string
	Self   group.Identity
	TTL    time.Duration // default DefaultTTL; whole seconds
}

// Engine implements [engine.Engine] on etcd.
type Engine struct {
	opts    Options
	prefix  string // of the election's keys, with / at the end
	self    []byte
	changed chan struct{}
	stop    context.CancelFunc
	done    chan struct{}

	presence clientv3.LeaseID // 0 = none
	reaches  int              // as last written under it
}

var _ engine.Engine = (*Engine)(nil)

// Open begins to watch the group. It does not wait for etcd.
func Open(opts Options) (*Engine, error) {
	if opts.Client == nil || opts.Self.Name == "" || opts.Group == "" {
		return nil, errors.New("etcd: Client, Group and Self are required")
	}
	if strings.ContainsAny(opts.Group, "/\x00") || strings.ContainsAny(opts.Self.Name, "/\x00") {
		return nil, fmt.Errorf("replicas: group %q and name %q may not contain /", opts.Group, opts.Self.Name)
	}
	if opts.Prefix == "" {
		opts.Prefix = "isobar"
	}
	if opts.TTL == 0 {
		opts.TTL = DefaultTTL
	}
	self, err := engine.EncodeIdentity(opts.Self)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &Engine{
		opts: opts, prefix: opts.Prefix + "/" + opts.Group + "/election/", self: self,
		changed: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
	}
	go e.watch(ctx)
	return e, nil
}

// Changed implements [engine.Engine].
func (e *Engine) Changed() <-chan struct{} { return e.changed }

// Close ends the watch. What the replica holds ends with its lease; release it
// before.
func (e *Engine) Close() error {
	e.stop()
	<-e.done
	return nil
}

// Do implements [engine.Engine].
func (e *Engine) Do(ctx context.Context, r group.Request) (group.Standing, error) {
	s, err := e.do(ctx, r)
	if err != nil {
		return group.Standing{}, fmt.Errorf("etcd: %s: %w", r.Op, err)
	}
	return s, nil
}

func (e *Engine) do(ctx context.Context, r group.Request) (group.Standing, error) {
	st, err := e.read(ctx)
	if err != nil {
		return group.Standing{}, err
	}
	mine := st.leads(e.self)
	switch {
	case r.Op == group.OpAcquire && st.leader == nil:
		return e.acquire(ctx)
	case r.Op == group.OpAcquire && !mine:
		return st.Standing, e.announce(ctx, r.Reaches)
	case (r.Op == group.OpAcquire || r.Op == group.OpRenew) && mine:
		return e.renew(ctx, st)
	case r.Op == group.OpClaim && mine && st.Claim == r.Previous:
		return e.claim(ctx, st, r.Claim)
	case r.Op == group.OpRelease && mine:
		if _, err := e.revoke(ctx, clientv3.LeaseID(st.leader.GetLease())); err != nil {
			return group.Standing{}, err
		}
		return e.again(ctx)
	}
	return st.Standing, nil
}

// state is the content of etcd at one revision.
type state struct {
	group.Standing

	leader *mvccpb.KeyValue // nil = no replica leads
	claim  *mvccpb.KeyValue // nil = no replica claimed

	presence []clientv3.LeaseID // of Present
}

// leads reports whether the leader's key carries the identity.
func (s *state) leads(self []byte) bool {
	return s.leader != nil && string(s.leader.GetValue()) == string(self)
}

func (e *Engine) read(ctx context.Context) (*state, error) {
	r, err := e.get(ctx, e.prefix, clientv3.WithPrefix(), clientv3.WithLimit(maxMembers))
	if err != nil {
		return nil, err
	}
	return e.decode(r.Kvs)
}

func (e *Engine) again(ctx context.Context) (group.Standing, error) {
	st, err := e.read(ctx)
	if err != nil {
		return group.Standing{}, err
	}
	return st.Standing, nil
}

// decode reads the election's keys.
func (e *Engine) decode(kvs []*mvccpb.KeyValue) (*state, error) {
	st := &state{}
	var err error
	for _, kv := range kvs {
		switch key := strings.TrimPrefix(string(kv.GetKey()), e.prefix); {
		case key == "leader":
			st.leader = kv
			if st.Holder, err = engine.DecodeIdentity(kv.GetValue()); err != nil {
				return nil, fmt.Errorf("%s: %w", kv.GetKey(), err)
			}
			if st.Holder.Name == "" {
				return nil, fmt.Errorf("%s: the leader has no name", kv.GetKey())
			}
		case key == "claim":
			st.claim = kv
			if st.Claim, err = group.DecodeClaim(kv.GetValue()); err != nil {
				return nil, fmt.Errorf("%s: %w", kv.GetKey(), err)
			}
		case strings.HasPrefix(key, "members/") && len(st.Present) < group.MaxReplicas:
			// An unreadable entry is left out: it is a hint.
			reaches, err := strconv.Atoi(string(kv.GetValue()))
			if err == nil && reaches >= 0 && reaches <= group.MaxReplicas {
				st.Present = append(st.Present, group.Presence{Name: strings.TrimPrefix(key, "members/"), Reaches: reaches})
				st.presence = append(st.presence, clientv3.LeaseID(kv.GetLease()))
			}
		}
	}
	return st, nil
}

// acquire makes the leader's key under a lease of its own, if there is none.
func (e *Engine) acquire(ctx context.Context) (group.Standing, error) {
	lease, err := e.grant(ctx)
	if err != nil {
		return group.Standing{}, err
	}
	leader := e.prefix + "leader"
	if err := e.transact(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(leader), "=", 0)},
		clientv3.OpPut(leader, string(e.self), clientv3.WithLease(lease))); err != nil {
		return group.Standing{}, err // the lease runs out, and with it the key, if it was made
	}
	st, err := e.read(ctx)
	if err != nil {
		return group.Standing{}, err
	}
	if !st.leads(e.self) || clientv3.LeaseID(st.leader.GetLease()) != lease {
		if _, err := e.revoke(ctx, lease); err != nil {
			return group.Standing{}, err
		}
	}
	return st.Standing, nil
}

// renew prolongs the lease that the leader's key has, and reads afterwards that
// the key is there still.
func (e *Engine) renew(ctx context.Context, st *state) (group.Standing, error) {
	if _, err := e.prolong(ctx, clientv3.LeaseID(st.leader.GetLease())); err != nil {
		return group.Standing{}, err
	}
	after, err := e.read(ctx)
	if err != nil {
		return group.Standing{}, err
	}
	if after.leads(e.self) && after.leader.GetLease() != st.leader.GetLease() {
		return group.Standing{}, errors.New("the leader's key changed its lease meanwhile")
	}
	e.ages(ctx, after)
	return after.Standing, nil
}

// ages finds out the age of the replicas' entries: a replica that was killed leaves its entry for
// as long as its lease. An unknown age counts as old: it is a hint.
func (e *Engine) ages(ctx context.Context, st *state) {
	for i := range st.Present {
		st.Present[i].Age = e.opts.TTL
		once, cancel := context.WithTimeout(ctx, attemptPatience)
		lease, err := e.opts.Client.TimeToLive(led(once), st.presence[i])
		cancel()
		if err == nil {
			st.Present[i].Age -= time.Duration(max(0, lease.TTL)) * time.Second
		}
	}
}

// claim writes a claim, guarded by leadership and by the claim that was read.
func (e *Engine) claim(ctx context.Context, st *state, c group.Claim) (group.Standing, error) {
	data, err := c.Encode()
	if err != nil {
		return group.Standing{}, err
	}
	leader, key := e.prefix+"leader", e.prefix+"claim"
	var written int64
	if st.claim != nil {
		written = st.claim.GetModRevision()
	}
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(leader), "=", st.leader.GetCreateRevision()),
		clientv3.Compare(clientv3.Value(leader), "=", string(e.self)),
		clientv3.Compare(clientv3.ModRevision(key), "=", written),
	}
	if err := e.transact(ctx, conditions, clientv3.OpPut(key, string(data))); err != nil {
		return group.Standing{}, err
	}
	return e.again(ctx)
}

// announce writes how many replicas this one reaches, for a leader that may be cut off from it.
func (e *Engine) announce(ctx context.Context, reaches int) error {
	known := e.presence != 0
	if known {
		var err error
		if known, err = e.prolong(ctx, e.presence); err != nil {
			return err
		}
	}
	if known && reaches == e.reaches {
		return nil
	}
	if !known {
		lease, err := e.grant(ctx)
		if err != nil {
			return err
		}
		e.presence = lease
	}
	e.reaches = -1
	key := e.prefix + "members/" + e.opts.Self.Name
	if err := e.transact(ctx, nil, clientv3.OpPut(key, strconv.Itoa(reaches), clientv3.WithLease(e.presence))); err != nil {
		return err
	}
	e.reaches = reaches
	return nil
}

// watch signals when the leader's key goes. It is a hint: only the results of requests count. A
// watch that ends, as when its revision was compacted away or etcd was restored, restarts at the
// present.
func (e *Engine) watch(ctx context.Context) {
	defer close(e.done)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		e.watchOnce(ctx)
		pause.Reset(time.Second)
	}
}

func (e *Engine) watchOnce(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var newest int64
	for r := range e.opts.Client.Watch(led(ctx), e.prefix+"leader") {
		if r.Err() != nil {
			return
		}
		for _, event := range r.Events {
			if event.GetKv().GetModRevision() <= newest { // told before
				continue
			}
			newest = event.GetKv().GetModRevision()
			if event.GetType() != clientv3.EventTypeDelete {
				continue
			}
			select {
			case e.changed <- struct{}{}:
			default:
			}
		}
	}
}
